#include "benchmarks/contender.h"

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <numeric>

#include "reducer/base/check.h"
#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/gloo/gloo_process_group.h"
#include "reducer/comm/reduce_functions.h"

namespace lockstep::benchmarks {
namespace {

constexpr std::chrono::seconds kTimeout{120};

Ref<Storage> allocate(HostDevice& device, std::int64_t elements) {
  Result<Ref<Storage>> made = device.allocate(static_cast<std::size_t>(elements) * sizeof(float));
  LOCKSTEP_CHECK(made.has_value());
  return std::move(*made);
}

float* floats(const Storage& memory) { return reinterpret_cast<float*>(memory.data()); }
float* floats(const Ref<Storage>& memory) { return floats(*memory); }

std::shared_ptr<::gloo::Context> connect_alone(const Place& place) {
  const std::string directory = place.directory + "/flat";
  std::filesystem::create_directories(directory);
  ::gloo::rendezvous::FileStore store(directory);
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  std::shared_ptr<::gloo::transport::Device> device =
      ::gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<::gloo::rendezvous::Context>(place.rank, place.ranks);
  context->setTimeout(kTimeout);
  context->connectFullMesh(store, device);
  return context;
}

Result<Place> with_group(Place place, const char* name, bool share_memory) {
  GlooOptions options;
  options.timeout = kTimeout;
  GlooContextOptions connection;
  connection.timeout = kTimeout;
  connection.share_memory = share_memory;
  auto group = GlooProcessGroup::connect(std::make_shared<PrefixStore>(name, place.store),
                                         place.rank, place.ranks, options, connection);
  if (!group) return failed(std::move(group.error()));
  place.group = std::move(*group);
  return place;
}

}  // namespace

Result<Place> take_place(int rank, int ranks, const std::string& directory) {
  return with_group({rank, ranks, directory, std::make_shared<FileStore>(directory), nullptr},
                    "group", true);
}

Result<Place> over_tcp(const Place& place) { return with_group(place, "tcp", false); }

FlatSum::FlatSum(const Place& place, std::int64_t elements)
    : rank_(place.rank),
      elements_(elements),
      memory_(allocate(device_, elements)),
      context_(connect_alone(place)) {}

FlatSum::~FlatSum() = default;

Status FlatSum::prepare(const Values& values) {
  values.fill(rank_, 0, elements_, floats(memory_));
  return {};
}

Status FlatSum::step() {
  try {
    ::gloo::AllreduceOptions options(context_);
    options.setOutput(floats(memory_), static_cast<std::size_t>(elements_));
    options.setReduceFunction(sum_function(DType::kFloat32));
    ::gloo::allreduce(options);
  } catch (const std::exception& error) {
    return Status(Code::kTransport, error.what());
  }
  return {};
}

std::uint64_t FlatSum::wrong(const Values& values) const {
  return values.not_sum(0, elements_, floats(memory_));
}

MemoryPass::MemoryPass(std::int64_t elements)
    : elements_(elements),
      one_(allocate(device_, elements)),
      other_(allocate(device_, elements)),
      sum_(allocate(device_, elements)) {}

Status MemoryPass::prepare(const Values& values) {
  values.fill(0, 0, elements_, floats(one_));
  std::fill_n(floats(other_), elements_, 0.0f);
  return {};
}

Status MemoryPass::step() {
  sum_function(DType::kFloat32)(floats(sum_), floats(one_), floats(other_),
                                static_cast<std::size_t>(elements_));
  return {};
}

std::uint64_t MemoryPass::wrong(const Values&) const {
  return static_cast<std::uint64_t>(
      std::inner_product(floats(one_), floats(one_) + elements_, floats(sum_), std::int64_t{0},
                         std::plus<>(), [](float a, float b) { return a == b ? 0 : 1; }));
}

GroupSums::GroupSums(const Place& place, const std::vector<std::int64_t>& elements,
                     Reduction reduction, Copies copies, bool verify)
    : place_(place), reduction_(reduction), verify_(verify) {
  std::int64_t first = 0;
  for (const std::int64_t count : elements) {
    const Ref<Storage> outside =
        copies == Copies::kNone ? Ref<Storage>() : allocate(device_, count);
    buckets_.push_back({first, count, allocate(device_, count), outside, std::make_unique<Work>()});
    first += count;
  }
}

Status GroupSums::prepare(const Values& values) {
  for (const Bucket& bucket : buckets_)
    values.fill(place_.rank, bucket.first, bucket.elements, floats(bucket.home()));
  return {};
}

Status GroupSums::step() {
  for (const Bucket& bucket : buckets_) {
    if (bucket.outside)
      std::memcpy(bucket.memory->data(), bucket.outside->data(), bucket.memory->bytes());
    Collective collective;
    collective.count = static_cast<std::uint64_t>(bucket.elements);
    collective.reduction = reduction_;
    collective.verify = verify_;
    collective.data = bucket.memory->data();
    LOCKSTEP_RETURN_IF_ERROR(place_.group->start(collective, *bucket.work));
  }
  Status status;
  for (const Bucket& bucket : buckets_) {
    Status ended = bucket.work->wait(platform::Deadline::in(2 * kTimeout));
    if (bucket.outside)
      std::memcpy(bucket.outside->data(), bucket.memory->data(), bucket.memory->bytes());
    if (status.ok()) status = std::move(ended);
  }
  return status;
}

std::uint64_t GroupSums::wrong(const Values& values) const {
  std::uint64_t wrong = 0;
  for (const Bucket& bucket : buckets_)
    wrong += values.not_sum(bucket.first, bucket.elements, floats(bucket.home()));
  return wrong;
}

}  // namespace lockstep::benchmarks
