// F3 in the simulator: verified collectives, and payload faults in them.
#include "faults/sim/frames.h"

#include <gtest/gtest.h>

#include "faults/sim/job_for_test.h"

namespace lockstep::simulated {
namespace {

using faults::Fault;
using faults::Kind;
using simulation::End;

// Two verified sums on every rank, unless one fails; then a broadcast.
End run_sums(Job& job, bool verify) {
  job.statuses.assign(job.world, {});
  job.data.assign(job.world, std::vector<float>(24));
  const auto all = [&](std::uint32_t rank, SimProcessGroup& group) {
    for (int i = 0; i < 3; ++i) {
      std::vector<float>& data = job.data[rank];
      for (std::size_t e = 0; e < data.size(); ++e)
        data[e] = static_cast<float>(rank + 1) * static_cast<float>(e + 1);
      Collective collective;
      collective.op = i < 2 ? Op::kAllReduceSum : Op::kBroadcast;
      collective.reduction = Reduction::kRankOrdered;
      collective.verify = verify;
      collective.count = data.size();
      collective.data = reinterpret_cast<std::byte*>(data.data());
      collective.pass = 3;
      collective.bucket = i;
      Work work;
      Status status = group.start(collective, work);
      if (status.ok()) status = work.wait(platform::Deadline::never());
      job.statuses[rank].push_back(status);
      if (!status.ok()) return;
    }
  };
  return job.run(all).end;
}

Fault planned(Kind kind, std::uint32_t site, std::uint32_t at) {
  Fault fault;
  fault.kind = kind;
  fault.rank = 2;
  fault.site = site;
  fault.peer = 0;
  fault.at = at;
  return fault;
}

std::uint64_t fired(const Job& job, Kind kind) {
  return job.injector.fired().counts[static_cast<std::size_t>(kind)];
}

TEST(SimVerified, F3VerifiedCollectivesAreExact) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U})
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      Job job(ranks);
      job.schedule.seed = seed;
      EXPECT_EQ(run_sums(job, true), End::kFinished);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(job.statuses[rank].size(), 3u);
        ASSERT_TRUE(job.last(rank).ok()) << job.last(rank).to_string();
        for (std::size_t e = 0; e < 24; ++e)
          ASSERT_EQ(job.data[rank][e], static_cast<float>(e + 1));  // of rank 0, at last
      }
    }
}

TEST(SimVerified, F3EveryPayloadFaultIsFoundByItsReceiver) {
  for (const Kind kind : {Kind::kPayloadFlip, Kind::kPayloadTruncate, Kind::kPayloadSwap,
                          Kind::kPayloadStale, Kind::kPayloadShift})
    for (std::uint32_t site = 0; site < 6; ++site)
      for (const std::uint32_t at : {0U, 7U, 65U, 90U}) {
        Job job(3);
        job.plan.faults = {planned(kind, site, at)};
        EXPECT_EQ(run_sums(job, true), End::kFinished);
        // No other frame was sent before the first; and who is not the root of a broadcast sends
        // zeros, of which a part is lost without a trace.
        const bool is_nothing = (kind == Kind::kPayloadStale && site == 0) ||
                                (kind == Kind::kPayloadTruncate && site == 4 && at >= 64);
        ASSERT_EQ(fired(job, kind), is_nothing ? 0u : 1u)
            << name_of(kind) << ", site " << site << ", at " << at;
        if (is_nothing) {
          EXPECT_TRUE(job.last(0).ok());
          continue;
        }
        const Status& found = job.last(0);
        ASSERT_EQ(found.code(), Code::kCorrupted) << found.to_string();
        EXPECT_EQ(found.failure().suspect, 2);
        EXPECT_EQ(found.failure().rank, 0);
        EXPECT_TRUE(found.failure().definite);
        EXPECT_EQ(found.failure().sequence, site / 2);
        EXPECT_EQ(found.failure().bucket, static_cast<int>(site / 2));
        EXPECT_EQ(found.failure().pass, 3);
      }
}

// The control: without checks nothing is exchanged in frames, so that no such fault can fire.
TEST(SimVerified, F3PayloadFaultsActOnVerifiedCollectivesAlone) {
  Job job(3);
  job.plan.faults = {planned(Kind::kPayloadFlip, 0, 600)};
  EXPECT_EQ(run_sums(job, false), End::kFinished);
  EXPECT_EQ(fired(job, Kind::kPayloadFlip), 0u);
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(job.last(rank).ok());
}

// Two flips of one bit are none.
TEST(SimVerified, FaultsThatUndoEachOtherHaveNotFired) {
  Job job(3);
  job.plan.faults = {planned(Kind::kPayloadFlip, 1, 600), planned(Kind::kPayloadFlip, 1, 600)};
  EXPECT_EQ(run_sums(job, true), End::kFinished);
  EXPECT_EQ(fired(job, Kind::kPayloadFlip), 0u);
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(job.last(rank).ok());
}

}  // namespace
}  // namespace lockstep::simulated
