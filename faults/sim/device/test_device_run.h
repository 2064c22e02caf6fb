// A helper for tests of SimDevice: it runs one rank's fiber with a device, moves floats in and out,
// and lists the schedules under which a claim is checked.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "faults/sim/device/sim_device.h"
#include "faults/sim/scheduler/scheduler.h"

namespace lockstep::simulated {

// Floats on a device, and operations on them by name.
struct Bench {
  explicit Bench(SimDevice& of)
      : device(of), s0{&of, 0}, s1(*of.new_stream()), s2(*of.new_stream()) {}

  Tensor made(const std::string& name, std::int64_t elements = 16) {
    Tensor tensor = *Tensor::empty(device, DType::kFloat32, Shape::row_major({elements}));
    device.label(tensor.data(), tensor.storage()->bytes(), name);
    return tensor;
  }
  // Sets every value[i] = `value` on `stream`, in an operation called `name`.
  void set(const Stream& stream, const Tensor& tensor, float value, const char* name = "kernel") {
    auto* data = reinterpret_cast<float*>(tensor.data());
    const std::int64_t count = tensor.elements();
    device.submit(stream, name, {{tensor.data(), tensor.storage()->bytes(), true}},
                  [=] { std::fill(data, data + count, value); });
  }
  // Does what a collective with one other rank does: it doubles each value.
  void reduce(const Stream& stream, const Tensor& tensor) {
    auto* data = reinterpret_cast<float*>(tensor.data());
    const std::int64_t count = tensor.elements();
    device.submit(stream, "all_reduce", {{tensor.data(), tensor.storage()->bytes(), true}}, [=] {
      for (std::int64_t i = 0; i < count; ++i) data[i] *= 2;
    });
  }
  void order(const Stream& first, const Stream& second) {
    device.wait(second, device.record(first));
  }
  Status finish(const Stream& stream) {
    return device.synchronize(device.record(stream), platform::Deadline::in(std::chrono::hours(1)));
  }
  // The host reads, without waiting. Returns whether all values equal `value`.
  bool holds(const Tensor& tensor, float value) {
    std::vector<float> got(static_cast<std::size_t>(tensor.elements()));
    device.host_read(tensor.data(), std::as_writable_bytes(std::span(got)));
    return std::all_of(got.begin(), got.end(), [&](float one) { return one == value; });
  }

  SimDevice& device;
  Stream s0;
  Stream s1;
  Stream s2;
};

struct Seen {
  simulation::End end = simulation::End::kFinished;
  std::vector<Finding> findings;
  std::string text() const {
    std::string all;
    for (const Finding& finding : findings) all += finding.to_string() + "\n";
    return all;
  }
};

inline Seen run_on_device(const simulation::Schedule& schedule, const DeviceOptions& options,
                          const std::function<void(Bench&)>& body) {
  Seen seen;
  simulation::Scheduler scheduler;
  scheduler.reset(schedule);
  scheduler.spawn("rank 0", 0, [&] {
    SimDevice device(options);
    Bench bench(device);
    body(bench);
    seen.findings = device.findings();
  });
  seen.end = scheduler.run().end;
  return seen;
}

inline Seen run_on_device(const std::function<void(Bench&)>& body,
                          const DeviceOptions& options = {}) {
  return run_on_device({simulation::Policy::kRandomWalk, 1, {}}, options, body);
}

inline std::vector<simulation::Schedule> many_schedules(std::uint64_t seeds) {
  using simulation::Policy;
  std::vector<simulation::Schedule> all{{Policy::kDefault, 0, {}}, {Policy::kRoundRobin, 0, {}}};
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    all.push_back({Policy::kRandomWalk, seed, {}});
    all.push_back({Policy::kStayBiased, seed, {}});
  }
  return all;
}

}  // namespace lockstep::simulated
