#include "properties/generate/neighbour.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "properties/case/fields.h"
#include "properties/generate/generate.h"

namespace lockstep::properties {
namespace {

Case some_case() {
  GenerateOptions options;
  return generate(3, 17, options);
}

TEST(Neighbour, NumberZeroIsTheCaseItself) {
  const Case base = some_case();
  EXPECT_TRUE(equal(neighbour(base, 1, 0, Capabilities::all()), base));
}

TEST(Neighbour, TheSameNumberIsTheSameCase) {
  const Case base = some_case();
  for (std::uint64_t index = 1; index < 50; ++index)
    EXPECT_TRUE(equal(neighbour(base, 5, index, Capabilities::all()),
                      neighbour(base, 5, index, Capabilities::all())));
}

TEST(Neighbour, NeighboursDifferFromTheCaseAndFromEachOther) {
  const Case base = some_case();
  std::set<std::uint64_t> hashes = {hash_of(base)};
  for (std::uint64_t index = 1; index <= 200; ++index)
    hashes.insert(hash_of(neighbour(base, 5, index, Capabilities::all())));
  EXPECT_GT(hashes.size(), 190u);
}

// Each part of a case has to change in some neighbour, and to stay in some other one.
TEST(Neighbour, SchedulesValuesAndOptionsChange) {
  const Case base = some_case();
  int schedules = 0;
  int values = 0;
  int fields = 0;
  for (std::uint64_t index = 1; index <= 200; ++index) {
    Case near = neighbour(base, 5, index, Capabilities::all());
    schedules += near.schedule.seed != base.schedule.seed ? 1 : 0;
    values += near.program.key != base.program.key ? 1 : 0;
    near.schedule = base.schedule;
    near.program.key = base.program.key;
    for (std::size_t i = 0; i < std::min(near.program.steps.size(), base.program.steps.size()); ++i)
      near.program.steps[i].key = base.program.steps[i].key;
    fields += equal(near, base) ? 0 : 1;
  }
  for (const int count : {schedules, values, fields}) {
    EXPECT_GT(count, 40);
    EXPECT_LT(count, 180);
  }
}

// Other values are other values alone; the environment changes as any field does.
TEST(Neighbour, OtherValuesLeaveTheEnvironmentAsItIs) {
  Case base = some_case();
  base.environment.latency = Environment::Latency::kLong;
  normalize(base);
  int with_other_values = 0;
  int kept = 0;
  int changed = 0;
  for (std::uint64_t index = 1; index <= 400; ++index) {
    const Case near = neighbour(base, 5, index, Capabilities::all());
    const bool is_kept = fields::same(near.environment, base.environment);
    changed += is_kept ? 0 : 1;
    if (near.program.key == base.program.key) continue;
    ++with_other_values;
    kept += is_kept ? 1 : 0;
  }
  EXPECT_GT(kept, with_other_values * 2 / 3);
  EXPECT_GT(changed, 20);
}

TEST(Neighbour, NeedsNothingThatTheSubjectLacks) {
  GenerateOptions options;
  options.capabilities =
      Capabilities().with(Capability::kStrides).with(Capability::kSeveralForwards);
  for (std::uint64_t number = 0; number < 20; ++number) {
    const Case base = generate(4, number, options);
    for (std::uint64_t index = 0; index < 20; ++index)
      EXPECT_TRUE(
          missing(neighbour(base, 5, index, options.capabilities), options.capabilities).empty());
  }
}

}  // namespace
}  // namespace lockstep::properties
