// A GoogleTest program that tests reducers with <lockstep/gtest.h>, as an example, and for the
// tests of that header. The first reducer is right. The others are wrong in one way each, and their
// tests fail; gtest_test.sh runs them one by one, and says what each has to print.
#include <lockstep/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace {

// After the backward it copies all gradients into their buckets, scaled by 1/N, sums the buckets
// over all ranks, and copies the sums back.
class FlatReducer {
 public:
  static constexpr std::uint64_t kCan = LOCKSTEP_CAN_NO_SYNC;

  FlatReducer(const lockstep_setup& setup, const lockstep::Host& host)
      : setup_(setup), host_(host), tickets_(setup.bucket_count) {
    for (std::uint32_t b = 0; b < setup.bucket_count; ++b)
      buckets_.emplace_back(setup.buckets[b].count);  // padding stays zero
  }

  void backward_end(std::int64_t, std::uint32_t) {
    for (std::uint32_t b = 0; b < setup_.bucket_count; ++b) {
      for (const lockstep_member& member : members(b)) gather(member, buckets_[b]);
      tickets_[b] = host_.start_all_reduce(buckets_[b].data(), buckets_[b].size(), LOCKSTEP_FLOAT32,
                                           static_cast<std::int32_t>(b));
    }
    for (std::uint32_t b = 0; b < setup_.bucket_count; ++b) {
      host_.wait(tickets_[b]);
      for (const lockstep_member& member : members(b)) scatter(member, buckets_[b]);
    }
  }

 protected:
  std::vector<lockstep_member> members(std::uint32_t bucket) const {
    const lockstep_bucket& record = setup_.buckets[bucket];
    return {record.members, record.members + record.member_count};
  }

  void gather(const lockstep_member& member, std::vector<float>& bucket) const {
    const float factor = 1.0f / static_cast<float>(setup_.world);
    const auto* gradient = static_cast<const float*>(host_.gradient(member.parameter));
    for (std::uint64_t i = 0; i < member.count; ++i)
      bucket[member.offset + i] = gradient != nullptr ? gradient[i] * factor : 0.0f;
  }

  void scatter(const lockstep_member& member, const std::vector<float>& bucket) const {
    auto* gradient = static_cast<float*>(host_.result(member.parameter));
    for (std::uint64_t i = 0; i < member.count; ++i) gradient[i] = bucket[member.offset + i];
  }

  const lockstep_setup& setup_;
  const lockstep::Host host_;
  std::vector<std::vector<float>> buckets_;
  std::vector<std::uint64_t> tickets_;
};

// A gradient that is ready under no_sync is remembered, and the synced pass sends that one.
class StaleReducer : public FlatReducer {
 public:
  using FlatReducer::FlatReducer;

  void gradient_ready(std::uint32_t parameter, std::int64_t pass) {
    if (pass != LOCKSTEP_LOCAL) return;
    early_.resize(setup_.parameter_count);
    const auto* gradient = static_cast<const float*>(host_.gradient(parameter));
    if (gradient == nullptr || !early_[parameter].empty()) return;
    early_[parameter].assign(gradient, gradient + setup_.parameters[parameter].count);
  }

  void backward_end(std::int64_t pass, std::uint32_t outputs_left) {
    for (std::uint32_t p = 0; p < early_.size(); ++p) {
      if (early_[p].empty()) continue;
      auto* gradient = static_cast<float*>(host_.result(p));
      for (std::size_t i = 0; i < early_[p].size(); ++i) gradient[i] = early_[p][i];
      early_[p].clear();
    }
    FlatReducer::backward_end(pass, outputs_left);
  }

 private:
  std::vector<std::vector<float>> early_;  // by parameter
};

class ThrowingReducer : public FlatReducer {
 public:
  using FlatReducer::FlatReducer;
  void backward_end(std::int64_t pass, std::uint32_t outputs_left) {
    if (setup_.bucket_count > 1) throw std::runtime_error("the stream cannot be captured");
    FlatReducer::backward_end(pass, outputs_left);
  }
};

class HangingReducer : public FlatReducer {
 public:
  using FlatReducer::FlatReducer;
  void backward_end(std::int64_t, std::uint32_t) {
    while (true) ::usleep(1000);
  }
};

class ExitingReducer : public FlatReducer {
 public:
  using FlatReducer::FlatReducer;
  void backward_end(std::int64_t, std::uint32_t) { std::exit(0); }
};

// Right, but it divides the sums, so that its bits are other ones.
class DividingReducer : public FlatReducer {
 public:
  using FlatReducer::FlatReducer;
  void backward_end(std::int64_t, std::uint32_t) {
    const auto ranks = static_cast<float>(setup_.world);
    for (std::uint32_t p = 0; p < setup_.parameter_count; ++p) {
      const std::uint64_t count = setup_.parameters[p].count;
      const bool is_defined = host_.gradient(p) != nullptr;
      auto* gradient = static_cast<float*>(host_.result(p));
      if (!is_defined) std::fill_n(gradient, count, 0.0f);
      host_.wait(host_.start_all_reduce(gradient, count, LOCKSTEP_FLOAT32));
      for (std::uint64_t i = 0; i < count; ++i) gradient[i] /= ranks;
    }
  }
};

LOCKSTEP_TEST(FlatReducer, sim, gloo)
LOCKSTEP_TEST(StaleReducer, sim)
LOCKSTEP_TEST(ThrowingReducer, sim)
LOCKSTEP_TEST(HangingReducer, sim)
LOCKSTEP_TEST(ExitingReducer, sim)
LOCKSTEP_TEST(DividingReducer, sim)
LOCKSTEP_TEST_VALUES(DividingReducer, sim, gloo)

// As the test of StaleReducer prints it, under the names of both.
constexpr const char* kAccumulates = R"case({
 "schema": 3,
 "program": {
  "world": 2,
  "parameters": [{}],
  "steps": [
   {"kind": "no_sync", "variants": [{"forwards": [{"nodes": [{}], "outputs": [{}]}]}]},
   {"key": 1, "variants": [{"forwards": [{"nodes": [{}], "outputs": [{}]}]}]}
  ]
 }
})case";
LOCKSTEP_CASE(FlatReducer, sim, Accumulates, kAccumulates)
LOCKSTEP_CASE(StaleReducer, sim, Accumulates, kAccumulates)

}  // namespace
