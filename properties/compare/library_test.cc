#include "properties/compare/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "properties/compare/temporary_folder.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CompareLibrary : public ::testing::Test {
 protected:
  CompareLibrary() {
    for (const char* const version : {"2.28.9", "2.30.7"}) {
      fs::create_directories(fs::path(folder_.path()) / version / "lib");
      std::ofstream(file_of(version)) << "library";
    }
  }
  std::string file_of(const std::string& version) const {
    return folder_.path() + "/" + version + "/lib/libnccl.so.2";
  }
  Result<std::vector<Library>> find(const std::vector<std::string>& names) const {
    return find_libraries(names, folder_.path());
  }
  const TemporaryFolder folder_;
};

TEST_F(CompareLibrary, VersionsOfTheCacheAndFilesAreFound) {
  const auto found = find({"2.28.9", file_of("2.30.7"), "mine=" + file_of("2.30.7"), "2.28.9"});
  ASSERT_TRUE(found.has_value()) << found.error().to_string();
  ASSERT_EQ(found->size(), 4);
  EXPECT_EQ((*found)[0].name, "2.28.9");
  EXPECT_EQ((*found)[0].file, file_of("2.28.9"));
  EXPECT_EQ((*found)[2].name, "mine");
  EXPECT_EQ((*found)[3].name, "2.28.9 again");
}

TEST_F(CompareLibrary, WhatIsNotThereIsSaidWithWhatIs) {
  const auto problem = [this](const std::vector<std::string>& names) {
    const auto found = find(names);
    return found ? std::string("none") : found.error().failure().detail;
  };
  EXPECT_THAT(problem({"2.28.9", "2.99.1"}),
              HasSubstr("(there are 2.28.9, 2.30.7); fetch it with ci/nccl fetch 2.99.1"));
  EXPECT_THAT(problem({"2.28.9", "./none.so"}), HasSubstr("there is no file ./none.so"));
  EXPECT_THAT(problem({"2.28.9"}), HasSubstr("two libraries or more"));
}

}  // namespace
}  // namespace lockstep::properties
