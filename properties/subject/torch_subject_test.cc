// Claim: the versions of PyTorch that were built beside a program are listed, in order, and nothing
// else that lies there. The tests of the subject itself need libtorch (subject/torch).
#include "properties/subject/torch_subject.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "properties/generate/generate.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TorchVersionsThatAreBuilt, AreListedInTheirOrder) {
  const fs::path folder = fs::path(testing::TempDir()) / ("torch." + std::to_string(::getpid()));
  EXPECT_THAT(built_torch_versions(folder), IsEmpty());
  for (const char* each : {"2.15.0", "2.9.1", "with", "2.4.1"}) {
    fs::create_directories(folder / kTorchVersions / each);
    std::ofstream(folder / kTorchVersions / each / "lockstep-torch");
  }
  fs::create_directories(folder / kTorchVersions / "2.0.1");  // whose build was interrupted
  EXPECT_THAT(built_torch_versions(folder), ElementsAre("2.4.1", "2.9.1", "2.15.0"));
  fs::remove_all(folder);
}

TEST(TorchCapabilities, YoungOptionsAreDrawnForVersionsThatHaveThem) {
  using enum Capability;
  EXPECT_EQ(torch_capabilities(torch_model::kOldestVersion), torch_capabilities());
  EXPECT_EQ(torch_capabilities({2, 4, 1}), torch_capabilities().with(kUpdatesGroup));
  EXPECT_EQ(torch_capabilities({2, 9, 1}), torch_capabilities({2, 4, 1}).with(kSkipsUnused));
  EXPECT_EQ(torch_capabilities({2, 15, 0}), torch_capabilities({2, 9, 1})
                                                .with(kBatchedCopy)
                                                .with(kLazyBuckets)
                                                .with(kThreeLimits)
                                                .with(kFinalization));
}

// A case with faults says itself who has to fail.
TEST(TorchCapabilities, PassesAreEndedByHandInEveryWayAndNeverWronglyBesideAFault) {
  using Finalization = TorchOptions::Finalization;
  std::map<Finalization, int> alone;
  std::map<Finalization, int> with_faults;
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  options.capabilities = torch_capabilities({2, 15, 0});
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const Case drawn = generate(5, index, options);
    ++(drawn.faults.faults.empty() ? alone : with_faults)[drawn.torch.finalization];
  }
  EXPECT_EQ(alone.size(), static_cast<std::size_t>(Finalization::kNever) + 1);
  for (const auto& [finalization, count] : alone) EXPECT_GE(count, 10);
  EXPECT_GE(with_faults[Finalization::kAfter], 10);
  EXPECT_EQ(with_faults.size(), 2U);  // and those whose passes end by themselves
  options.capabilities = torch_capabilities({2, 9, 1});
  for (std::uint64_t index = 0; index < 100; ++index)
    EXPECT_EQ(generate(5, index, options).torch.finalization, Finalization::kAutomatic);
}

}  // namespace
}  // namespace lockstep::properties
