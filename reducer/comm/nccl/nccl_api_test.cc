#include "reducer/comm/nccl/nccl_api.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// The libraries that the build made of test_libraries/test_played_nccl.cc.
std::string played(const std::string& name) {
  return std::string(LOCKSTEP_PLAYED_NCCL_FOLDER) + "/played_nccl_" + name + ".so";
}

std::string error_of(const std::string& library) {
  const Result<NcclApi> api = load_nccl(library);
  if (api.has_value()) return "";
  EXPECT_EQ(api.error().code(), Code::kInvalidArgument);
  return api.error().to_string();
}

// Loads the system's NCCL, or else one that ci/nccl has fetched. Returns the reason why there is
// none to test with, or nothing.
std::string real_nccl(NcclApi& api) {
  Result<NcclApi> loaded = load_nccl();
  const char* const named = std::getenv("LOCKSTEP_NCCL_CACHE");
  std::error_code absent;
  for (const auto& version : std::filesystem::directory_iterator(
           named != nullptr ? named : LOCKSTEP_NCCL_USUAL_CACHE, absent))
    if (!loaded) loaded = load_nccl(version.path() / "lib" / "libnccl.so.2");
  if (!loaded) return loaded.error().to_string();
  api = *loaded;
  return "";
}

TEST(NcclApi, MissingLibraryIsAnErrorThatSaysWhatToDo) {
  const std::string error = error_of("/nonexistent/libnccl.so.2");
  EXPECT_THAT(error, HasSubstr("'/nonexistent/libnccl.so.2'"));
  EXPECT_THAT(error, HasSubstr("No such file"));
  EXPECT_THAT(error, HasSubstr("give the path"));
}

TEST(NcclApi, FileThatIsNoLibraryIsAnError) {
  EXPECT_THAT(error_of("/proc/self/cmdline"), HasSubstr("cannot load '/proc/self/cmdline'"));
}

// The test's own program, with ELF's number for aarch64, 183.
TEST(NcclApi, LibraryForAnotherProcessorIsAnErrorThatNamesBoth) {
  const std::string file = ::testing::TempDir() + "lockstep-other-processor.so";
  std::filesystem::copy_file("/proc/self/exe", file,
                             std::filesystem::copy_options::overwrite_existing);
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out).seekp(18).put('\xb7');
  const std::string error = error_of(file);
  std::filesystem::remove(file);
  EXPECT_THAT(error, HasSubstr("it is built for aarch64, and this program for "));
}

// The loader would map all of it, and end the process by SIGBUS.
TEST(NcclApi, ALibraryThatWasCutOffIsAnErrorThatSaysHowMuchThereIs) {
  const std::string file = ::testing::TempDir() + "lockstep-cut-off.so";
  std::filesystem::copy_file("/proc/self/exe", file,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of(file), Not(HasSubstr("it is cut off")));
  for (const int bytes : {100000, 4096, 100}) {
    std::filesystem::resize_file(file, static_cast<std::uintmax_t>(bytes));
    EXPECT_THAT(error_of(file), HasSubstr("it is cut off: of "));
    EXPECT_THAT(error_of(file), HasSubstr(" bytes it has " + std::to_string(bytes)));
  }
  std::filesystem::resize_file(file, 20);
  EXPECT_THAT(error_of(file), HasSubstr("cannot load"));
  std::filesystem::remove(file);
}

TEST(NcclApi, OtherLibraryIsAnError) {
  const std::string error = error_of("libm.so.6");
  EXPECT_THAT(error, HasSubstr("'libm.so.6'"));
  EXPECT_THAT(error, HasSubstr("not NCCL"));
}

TEST(NcclApi, OldLibraryIsAnErrorThatNamesBothVersions) {
  const std::string error = error_of(played("old"));
  EXPECT_THAT(error, HasSubstr("version 2.13.4"));
  EXPECT_THAT(error, HasSubstr("too old: use 2.14"));
}

TEST(NcclApi, LibraryOfTheNextMajorVersionIsAnError) {
  const std::string error = error_of(played("unknown"));
  EXPECT_THAT(error, HasSubstr("version 3.0.0"));
  EXPECT_THAT(error, HasSubstr("not known here"));
}

TEST(NcclApi, LibraryThatDoesNotTellItsVersionIsAnError) {
  EXPECT_THAT(error_of(played("mute")), HasSubstr("does not report its version"));
}

TEST(NcclApi, MissingFunctionIsAnErrorThatNamesIt) {
  const std::string error = error_of(played("without_all_reduce"));
  EXPECT_THAT(error, HasSubstr("lacks ncclAllReduce:"));
  EXPECT_THAT(error, HasSubstr("2.18.3"));
}

TEST(NcclApi, RefusedLibraryIsClosedAgain) {
  EXPECT_NE(error_of(played("without_all_reduce")), "");
  EXPECT_EQ(::dlopen(played("without_all_reduce").c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST(NcclApi, AcceptedLibraryStaysLoaded) {
  ASSERT_TRUE(load_nccl(played("nothing")).has_value());
  void* again = ::dlopen(played("nothing").c_str(), RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(again, nullptr);
}

TEST(NcclApi, FunctionsOfLaterVersionsAreNullAndNamed) {
  const Result<NcclApi> api = load_nccl(played("nothing"));
  ASSERT_TRUE(api.has_value()) << api.error().to_string();
  EXPECT_EQ(api->version, 21803);
  EXPECT_NE(api->comm_split, nullptr);
  EXPECT_EQ(api->comm_shrink, nullptr);
  EXPECT_TRUE(api->lacking("ncclAllReduce").ok());
  EXPECT_TRUE(api->lacking("ncclCommSplit").ok());
  const std::string error = api->lacking("ncclCommShrink").to_string();
  EXPECT_THAT(error, HasSubstr("played_nccl_nothing.so' (2.18.3) lacks ncclCommShrink"));
  EXPECT_THAT(error, HasSubstr("use 2.27.3 or newer"));
  EXPECT_THAT(api->lacking("ncclMistyped").to_string(), HasSubstr("no function 'ncclMistyped'"));
}

TEST(NcclApi, LibrariesOfOneProcessKeepTheirOwnFunctions) {
  const Result<NcclApi> one = load_nccl(played("nothing"));
  const Result<NcclApi> other = load_nccl(played("newer"));
  ASSERT_TRUE(one.has_value());
  ASSERT_TRUE(other.has_value());
  EXPECT_NE(one->all_reduce, other->all_reduce);
  int version = 0;
  EXPECT_EQ(one->get_version(&version), NcclResult::kSuccess);
  EXPECT_EQ(version, 21803);
  EXPECT_EQ(other->get_version(&version), NcclResult::kSuccess);
  EXPECT_EQ(version, 23099);
}

TEST(NcclApi, VersionsReadAsPeopleWriteThem) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(23007), "2.30.7");
  EXPECT_EQ(nccl_version_text(21403), "2.14.3");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");
}

// The sizes that the headers of these releases give, on a machine with pointers of 8 bytes.
TEST(NcclApi, ConfigurationHasTheSizeOfItsVersion) {
  const std::pair<int, std::size_t> sizes[] = {
      {21403, 24}, {21602, 24}, {21701, 40}, {21801, 48}, {22602, 48},  {22703, 72}, {22803, 80},
      {22902, 88}, {22907, 88}, {23003, 96}, {23007, 96}, {23102, 112}, {23203, 120}};
  for (const auto& [version, size] : sizes)
    EXPECT_EQ(make_nccl_config(version).size, size) << version;
}

TEST(NcclApi, ConfigurationChoosesNothing) {
  const NcclConfig config = make_nccl_config(22809);
  EXPECT_EQ(config.magic, 0xcafebeefu);
  EXPECT_EQ(config.version, 22809u);
  EXPECT_EQ(config.blocking, INT_MIN);
  EXPECT_EQ(config.splitShare, INT_MIN);
  EXPECT_EQ(config.graphStreamOrdering, INT_MIN);
  EXPECT_EQ(config.nvlsHostMode, INT_MIN);
  EXPECT_EQ(config.netName, nullptr);
  EXPECT_EQ(config.commName, nullptr);
}

TEST(NcclReal, TellsItsVersionAndWhereItIs) {
  NcclApi api;
  if (const std::string why = real_nccl(api); !why.empty()) GTEST_SKIP() << why;
  EXPECT_GE(api.version, 21400);
  EXPECT_LT(api.version, 30000);
  EXPECT_TRUE(std::filesystem::exists(api.library)) << api.library;
  EXPECT_EQ(api.lacking("ncclCommSplit").ok(), api.version >= 21801);
  EXPECT_EQ(api.lacking("ncclCommShrink").ok(), api.version >= 22703);
  EXPECT_EQ(api.lacking("ncclCommRevoke").ok(), api.version >= 22807);
  EXPECT_EQ(api.lacking("ncclCommGrow").ok(), api.version >= 22902);
  EXPECT_STREQ(api.get_error_string(NcclResult::kSuccess), "no error");
}

TEST(NcclReal, GivesUniqueIdsThatDiffer) {
  NcclApi api;
  if (const std::string why = real_nccl(api); !why.empty()) GTEST_SKIP() << why;
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  NcclUniqueId first{};
  NcclUniqueId second{};
  ASSERT_EQ(api.get_unique_id(&first), NcclResult::kSuccess) << api.get_last_error(nullptr);
  ASSERT_EQ(api.get_unique_id(&second), NcclResult::kSuccess) << api.get_last_error(nullptr);
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
}

TEST(NcclReal, TwoCopiesLiveSideBySide) {
  NcclApi api;
  if (const std::string why = real_nccl(api); !why.empty()) GTEST_SKIP() << why;
  std::string directory = ::testing::TempDir() + "lockstep-nccl-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/libnccl.so.2";
  std::error_code error;
  std::filesystem::copy_file(std::filesystem::canonical(api.library), path, error);
  const Result<NcclApi> copy = load_nccl(path);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);  // what is loaded stays so
  if (error) GTEST_SKIP() << "no room for a copy: " << error.message();
  ASSERT_TRUE(copy.has_value()) << copy.error().to_string();
  EXPECT_EQ(copy->library, path);
  EXPECT_NE(copy->get_version, api.get_version);
  int version = 0;
  EXPECT_EQ(copy->get_version(&version), NcclResult::kSuccess);
  EXPECT_EQ(version, api.version);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  NcclUniqueId id{};
  EXPECT_EQ(copy->get_unique_id(&id), NcclResult::kSuccess);
  EXPECT_EQ(api.get_unique_id(&id), NcclResult::kSuccess);
}

TEST(NcclReal, InitializationFailsAtOnceWithoutADriver) {
  NcclApi api;
  if (const std::string why = real_nccl(api); !why.empty()) GTEST_SKIP() << why;
  if (void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); driver != nullptr)
    GTEST_SKIP() << "this machine has a CUDA driver";
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  NcclUniqueId id{};
  ASSERT_EQ(api.get_unique_id(&id), NcclResult::kSuccess);
  NcclConfig config = make_nccl_config(api.version);
  config.blocking = 0;
  NcclComm comm = nullptr;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(api.comm_init_rank_config(&comm, 2, id, 0, &config), NcclResult::kUnhandledCudaError);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_NE(std::string(api.get_last_error(nullptr)), "");
}

}  // namespace
}  // namespace lockstep
