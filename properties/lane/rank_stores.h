// The stores of one rank in the simulator: what its process reaches of the store of all ranks, and
// what the rank writes into the store of its group.
//
// Threads: the fibers of the rank. Ownership: the network, and the text that says what is wrong,
// outlive the stores. Failure: a Status, as of any store.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "faults/sim/network.h"
#include "faults/sim/scheduler/scheduler.h"
#include "properties/lane/report_check.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The store as a rank's process sees it: a process that has exited writes nothing, and faults of
// the plan act on the calls of the others.
class RankStore final : public Store {
 public:
  RankStore(std::shared_ptr<Store> inner, simulated::SimNetwork& network, std::uint32_t rank)
      : inner_(std::move(inner)), network_(network), rank_(rank) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    std::optional<std::uint32_t> torn_at;
    if (Status status = call(&torn_at); !status.ok()) return failed(std::move(status));
    if (torn_at && !value.empty()) value = value.substr(0, *torn_at % value.size());
    return inner_->set(key, value);
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    if (Status status = call(); !status.ok()) return failed(std::move(status));
    return inner_->get(key, deadline);
  }
  Result<bool> contains(std::string_view key) override {
    if (Status status = call(); !status.ok()) return failed(std::move(status));
    return inner_->contains(key);
  }

 private:
  // Begins a call. One that writes a value gives a place for the length that arrives of it.
  Status call(std::optional<std::uint32_t>* torn_at = nullptr) {
    if (network_.exited(rank_))
      return Status(Code::kAborted, "the process of this rank has exited");
    const faults::StoreFault fault =
        network_.injector_of(rank_).on_store(rank_, torn_at != nullptr);
    if (fault.delay_us != 0) {
      simulation::Scheduler* const scheduler = simulation::Scheduler::running();
      scheduler->sleep_until(scheduler->now() + std::chrono::microseconds(fault.delay_us));
    }
    if (fault.fails) return Status(Code::kTransport, "the store cannot be reached");
    if (torn_at != nullptr) *torn_at = fault.torn_at;
    return {};
  }

  std::shared_ptr<Store> inner_;
  simulated::SimNetwork& network_;
  const std::uint32_t rank_;
};

// The store of one rank in one group. Whatever the rank writes there is its own, under a key that
// ends in its number (F2): the first key that does not goes to `wrong`. The first report of its
// failure goes to `check`.
class OwnKeysStore final : public PrefixStore {
 public:
  OwnKeysStore(std::shared_ptr<Store> inner, std::string prefix, std::ptrdiff_t rank,
               std::string& wrong, std::shared_ptr<ReportCheck> check)
      : PrefixStore(std::move(prefix), std::move(inner)),
        end_("/" + std::to_string(rank)),
        wrong_(wrong),
        check_(std::move(check)) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    if (!key.ends_with(end_) && wrong_.empty())
      wrong_ = "it writes " + std::string(key) + " into the store of its group";
    if (key == "failure" + end_) check_->reported(value);
    return PrefixStore::set(key, value);
  }

 private:
  const std::string end_;
  std::string& wrong_;
  const std::shared_ptr<ReportCheck> check_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
