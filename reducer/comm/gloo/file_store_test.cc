#include "reducer/comm/gloo/file_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

#include "reducer/comm/gloo/test_util.h"
#include "reducer/test_ranks.h"

namespace lockstep {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::on_ranks;
using testing::Processes;
using testing::TemporaryDirectory;

int files_in(const std::string& directory) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST(FileStore, FirstValueStaysAndLeavesOneFile) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  EXPECT_TRUE(store.set("k", "first").value());
  EXPECT_FALSE(store.set("k", "second").value());
  EXPECT_EQ(store.get("k", Deadline::in(milliseconds(0))).value(), "first");
  EXPECT_EQ(files_in(directory.path()), 1);
}

TEST(FileStore, KeysAndValuesAreBytes) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  const std::string keys[] = {"",
                              ".",
                              "..",
                              "../escape",
                              "a/b",
                              "a%2fb",
                              std::string("a\0b", 3),
                              "\xff\n ",
                              std::string(5000, 'x'),
                              std::string(5000, 'x') + "y"};
  const std::string value("\0\n\xff", 3);
  for (const std::string& key : keys) {
    EXPECT_FALSE(store.contains(key).value());
    EXPECT_TRUE(store.set(key, value + key).value());
  }
  for (const std::string& key : keys) {
    EXPECT_TRUE(store.contains(key).value());
    EXPECT_EQ(store.get(key, Deadline::in(milliseconds(0))).value(), value + key);
  }
  EXPECT_EQ(files_in(directory.path()), 10);
}

TEST(FileStore, ExactlyOneOfManyWritersWins) {
  TemporaryDirectory directory;
  for (int round = 0; round < 20; ++round) {
    const std::string key = "key" + std::to_string(round);
    std::atomic<int> winners{0};
    std::atomic<int> winner{-1};
    on_ranks(4, [&](int rank) {
      FileStore store(directory.path());
      if (store.set(key, std::to_string(rank)).value()) {
        ++winners;
        winner = rank;
      }
    });
    EXPECT_EQ(winners, 1);
    FileStore store(directory.path());
    EXPECT_EQ(store.get(key, Deadline::never()).value(), std::to_string(winner));
  }
}

TEST(FileStore, ProcessesSeeWholeValues) {
  TemporaryDirectory directory;
  const std::string large(200'000, 'v');
  Processes ranks(3, [&](int rank) {
    FileStore store(directory.path());
    if (rank == 0) testing::pause_for(milliseconds(20));  // The other ranks wait.
    if (rank == 0) return store.set("large", large).value() ? 0 : 3;
    return store.get("large", Deadline::in(seconds(20))).value() == large ? 0 : 4;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.wait(rank), 0);
}

TEST(FileStore, MissingKeyTimesOutNamingKeyAndPath) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  const auto missing = store.get("rank/7", Deadline::in(milliseconds(30)));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), Code::kTimeout);
  EXPECT_NE(missing.error().to_string().find("'rank/7'"), std::string::npos);
  EXPECT_NE(missing.error().to_string().find(directory.path()), std::string::npos);
}

TEST(FileStore, MissingDirectoryIsAnErrorAtOnce) {
  FileStore store("/nonexistent/lockstep");
  const auto set = store.set("k", "v");
  const auto get = store.get("k", Deadline::never());
  const auto contains = store.contains("k");
  ASSERT_FALSE(set.has_value());
  ASSERT_FALSE(get.has_value());
  ASSERT_FALSE(contains.has_value());
  EXPECT_EQ(set.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(get.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(contains.error().code(), Code::kInvalidArgument);
  EXPECT_NE(get.error().to_string().find("/nonexistent/lockstep"), std::string::npos);
}

TEST(FileStore, FileAsDirectoryIsAnError) {
  TemporaryDirectory directory;
  const std::string file = directory.path() + "/file";
  std::ofstream(file) << "x";
  FileStore store(file);
  EXPECT_EQ(store.set("k", "v").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(store.get("k", Deadline::never()).error().code(), Code::kInvalidArgument);
}

TEST(FileStore, UnwritableDirectoryIsAnErrorThatSaysSo) {
  TemporaryDirectory directory;
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0555));
  Processes child(1, [&](int) {
    // Root may write everywhere, so the child becomes nobody.
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 3;
    FileStore store(directory.path());
    const auto result = store.set("k", "v");
    if (result.has_value()) return 4;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_NE(result.error().to_string().find("Permission denied"), std::string::npos)
        << result.error().to_string();
    return 0;
  });
  EXPECT_EQ(child.wait(0), 0);
}

TEST(FileStore, FailedWriteLeavesTheKeyUnsetAndNoFile) {
  TemporaryDirectory directory;
  Processes child(1, [&](int) {
    // This simulates a full disk: the file can be made, but not written.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_FSIZE, &none) != 0) return 3;
    FileStore store(directory.path());
    const auto result = store.set("k", "v");
    if (result.has_value()) return 4;
    return result.error().code() == Code::kTransport ? 0 : 5;
  });
  EXPECT_EQ(child.wait(0), 0);
  EXPECT_EQ(files_in(directory.path()), 0);
  FileStore store(directory.path());
  EXPECT_TRUE(store.set("k", "v").value());
}

TEST(FileStore, ForeignFileIsNoticed) {
  TemporaryDirectory directory;
  std::ofstream(directory.path() + "/" + file_name_of("k")) << "not ours";
  FileStore store(directory.path());
  EXPECT_EQ(store.get("k", Deadline::never()).error().code(), Code::kCorrupted);
}

// Opening a pipe waits for its other end, and a device may have no end.
TEST(FileStore, WhatIsNoRegularFileIsRefusedAndNamed) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  const auto path_of = [&](const char* key) { return directory.path() + "/" + file_name_of(key); };
  ASSERT_EQ(::mkfifo(path_of("pipe").c_str(), 0644), 0);
  ASSERT_EQ(::symlink("/dev/zero", path_of("device").c_str()), 0);
  ASSERT_EQ(::mkdir(path_of("folder").c_str(), 0755), 0);
  for (const char* key : {"pipe", "device", "folder"}) {
    const auto value = store.get(key, Deadline::in(seconds(30)));
    ASSERT_FALSE(value.has_value()) << key;
    EXPECT_EQ(value.error().code(), Code::kCorrupted);
    const std::string text = value.error().to_string();
    EXPECT_NE(text.find(path_of(key)), std::string::npos) << text;
    EXPECT_NE(text.find("not a regular file"), std::string::npos) << text;
    EXPECT_NE(text.find("Remove it"), std::string::npos) << text;
  }
}

TEST(FileStore, AFileTooLargeToBeAValueIsRefused) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  const std::string path = directory.path() + "/" + file_name_of("k");
  std::ofstream(path) << "";
  ASSERT_EQ(::truncate(path.c_str(), off_t{65} << 20), 0);
  const auto value = store.get("k", Deadline::in(seconds(30)));
  ASSERT_FALSE(value.has_value());
  EXPECT_NE(value.error().to_string().find("more than 64 MiB"), std::string::npos);
  const auto set = store.set("large", std::string(std::size_t{65} << 20, 'x'));
  ASSERT_FALSE(set.has_value());
  EXPECT_EQ(set.error().code(), Code::kInvalidArgument);
}

TEST(FileStore, FileNamesAreDistinctAndShort) {
  std::set<std::string> names;
  for (int i = 0; i < 256; ++i) {
    const std::string byte(1, static_cast<char>(i));
    for (const std::string& key : {byte, byte + byte, std::string(300, byte[0])}) {
      const std::string name = file_name_of(key);
      EXPECT_LE(name.size(), 200u);
      EXPECT_EQ(name.find('/'), std::string::npos);
      EXPECT_TRUE(names.insert(name).second) << i;
    }
  }
}

}  // namespace
}  // namespace lockstep
