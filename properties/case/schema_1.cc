#include "properties/case/schema_1.h"

#include <cstdint>

#include "reference/construction_disagreement.h"

namespace lockstep::properties {
namespace {

// The key of the program, by its bits.
class Key {
 public:
  explicit Key(std::uint32_t key) : key_(key) {}
  std::uint32_t whole() const { return key_; }
  std::uint32_t from(std::uint32_t bit) const { return key_ >> bit; }
  bool is_set(std::uint32_t bit) const { return (from(bit) & 1) != 0; }
  std::uint32_t field(std::uint32_t bit, std::uint32_t mask) const { return from(bit) & mask; }

 private:
  std::uint32_t key_;
};

Environment::Records records_of(const Key& key) {
  using enum Environment::Records;
  if (key.whole() % 16 == 0) return kOfAll;
  if (key.whole() % 8 == 0) return kWithTraces;
  return key.whole() % 2 == 0 ? kOfFailures : kNone;
}

Environment::NcclRelease nccl_of(const Key& key) {
  using enum Environment::NcclRelease;
  switch (key.field(16, 15)) {
    case 10:
    case 11:
      return k2_23;
    case 12:
      return k2_27;
    case 13:
    case 14:
      return k2_32;
    default:
      return kDefault;
  }
}

Environment::Keeps keeps_of(const Key& key) {
  using enum Environment::Keeps;
  if (!key.is_set(9)) return kNone;
  return key.is_set(11) ? kAllRanks : kEvenRanks;
}

void take_unlike_join(const Key& key, Environment& environment) {
  if (key.from(11) % 4 != 1) return;
  using enum Environment::UnlikeJoin;
  environment.unlike_join = key.is_set(24) ? kTermination : kDivisor;
  environment.unlike_rank = key.from(14);
  environment.unlike_terminates = key.is_set(22);
  environment.unlike_divides_active = key.is_set(23);
}

void take_nccl(const Key& key, std::uint32_t world, Environment& environment) {
  environment.nccl = nccl_of(key);
  if (key.field(12, 3) == 0) environment.shrink_fails_on = 1 + key.whole() % world;
  if (!key.is_set(19)) environment.revoke_fails_on = 1 + key.from(22) % world;
  environment.revoke_fails_late = key.is_set(21);
  environment.shrinks = key.is_set(8);
  environment.keeps = keeps_of(key);
  environment.scales_down = key.is_set(10);
  environment.late_peer = key.is_set(23);
  environment.excludes_twice = key.is_set(24);
  environment.lacks_shrink = key.field(25, 7) == 1;
}

}  // namespace

void take_choices_from_key(Case& value) {
  reference::Program& program = value.program;
  const Key key(program.key);
  Environment environment;
  environment.latency = static_cast<Environment::Latency>(key.whole() % 3);
  environment.latency_seed = key.whole();
  environment.hook_seed = key.whole();
  environment.processes = key.whole() % 8 == 0;
  environment.times = key.field(5, 3) == 0;
  environment.rosters = key.field(7, 3) == 3;
  environment.records = records_of(key);
  environment.reads_layouts = key.whole() % 4 == 1;
  environment.asks_diagnosis = key.from(18) % 32 == 1;
  environment.asks_after_failure = key.from(14) % 4 == 1;
  environment.uses_ended_group = key.from(23) % 4 == 1;
  take_unlike_join(key, environment);
  take_nccl(key, program.world, environment);
  value.environment = environment;
  program.options.power_sgd_rank = key.whole() % 4 == 1 ? 1 : 2;
  program.disagreement.variant =
      (program.disagreement.pick + key.from(4) % 60) % reference::kDisagreementVariants;
  normalize(value);
}

}  // namespace lockstep::properties
