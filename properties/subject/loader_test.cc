// Claims: the loader finds every fault of a user's library, and reports it in one line that says
// what to do. Controls: the loader accepts the example, and a table with all its functions. The
// libraries are built with the tests, in LOCKSTEP_SUBJECT_DIR.
#include "properties/subject/loader.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <fstream>

namespace lockstep::properties {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string library(const std::string& name) {
  return std::string(LOCKSTEP_SUBJECT_DIR) + "/liblockstep_" + name + "_subject.so";
}

// What load_subject() says of a path that it must refuse.
std::string refusal(const std::string& path) {
  const Result<LoadedSubject> loaded = load_subject(path);
  if (loaded) return "accepted";
  EXPECT_EQ(loaded.error().code(), Code::kInvalidArgument);
  return loaded.error().failure().detail;
}

class File {
 public:
  File(const std::string& name, const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              (name + "." + std::to_string(reinterpret_cast<std::uintptr_t>(this)))) {
    std::ofstream(path_) << text;
  }
  ~File() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Loader, TakesTheExample) {
  const Result<LoadedSubject> loaded = load_subject(library("example"));
  ASSERT_TRUE(loaded.has_value()) << loaded.error().to_string();
  EXPECT_STREQ(loaded->table->name, "flat");
  EXPECT_TRUE(loaded->capabilities.has(Capability::kNoSync));
  EXPECT_TRUE(loaded->capabilities.has(Capability::kFloat64));
  EXPECT_FALSE(loaded->capabilities.has(Capability::kDynamic));
  EXPECT_FALSE(loaded->capabilities.has(Capability::kRecovery));
}

TEST(Loader, TakesAPathRelativeToTheFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(LOCKSTEP_SUBJECT_DIR);
  EXPECT_TRUE(load_subject("liblockstep_example_subject.so").has_value());
  EXPECT_TRUE(load_subject("./liblockstep_stale_subject.so").has_value());
  std::filesystem::current_path(before);
}

TEST(Loader, SaysThatThereIsNoFile) {
  EXPECT_THAT(refusal("/nowhere/libmine.so"),
              AllOf(HasSubstr("no file '/nowhere/libmine.so'"), HasSubstr("shared library"),
                    HasSubstr("lockstep_subject_entry"), Not(HasSubstr("\n"))));
  EXPECT_THAT(refusal(""), HasSubstr("no file"));
}

TEST(Loader, SaysThatAFolderIsNotAFile) {
  EXPECT_THAT(refusal(LOCKSTEP_SUBJECT_DIR), HasSubstr("is not a file"));
}

TEST(Loader, SaysThatAFileIsNotALibrary) {
  const File text("not_a_library", "#!/bin/sh\n");
  EXPECT_THAT(refusal(text.path()), AllOf(HasSubstr("cannot load '" + text.path()),
                                          HasSubstr("-shared -fPIC"), Not(HasSubstr("\n"))));
  const File empty("empty_library", "");
  EXPECT_THAT(refusal(empty.path()), HasSubstr("cannot load"));
}

// As after a copy that was broken off.
TEST(Loader, SaysThatALibraryIsTruncated) {
  std::ifstream in(library("example"), std::ios::binary);
  std::string bytes(512, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const File half("half_library", bytes);
  EXPECT_THAT(refusal(half.path()), HasSubstr("cannot load"));
}

TEST(Loader, SaysThatALibraryHasNoEntryPoint) {
  Dl_info standard_library{};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&std::rethrow_exception), &standard_library), 0);
  EXPECT_THAT(refusal(standard_library.dli_fname),
              AllOf(HasSubstr("without lockstep_subject_entry"), HasSubstr("extern \"C\""),
                    Not(HasSubstr("\n"))));
}

// A table with all its functions; none is called.
lockstep_subject full_table() {
  lockstep_subject table = *load_subject(library("example"))->table;
  table.forward_end = [](void*, std::uint32_t, const std::uint8_t*, lockstep_error*) {
    return std::int32_t{LOCKSTEP_OK};
  };
  table.abort = [](void*, const lockstep_error*) {};
  table.reset = [](void*, const lockstep_setup*, lockstep_error*) {
    return std::int32_t{LOCKSTEP_OK};
  };
  table.poisoned = [](void*) { return 0; };
  table.capabilities = hosted_capabilities().bits();
  return table;
}

std::string refusal(const lockstep_subject& table) {
  const Result<LoadedSubject> checked = check_subject(&table, "mine");
  if (checked) return "accepted";
  const std::string detail = checked.error().failure().detail;
  EXPECT_THAT(detail, AllOf(HasSubstr("'mine'"), Not(HasSubstr("\n"))));
  return detail;
}

TEST(Loader, TakesAFullTable) { EXPECT_EQ(refusal(full_table()), "accepted"); }

TEST(Loader, RefusesAnotherVersionOfTheInterface) {
  lockstep_subject table = full_table();
  table.abi = LOCKSTEP_ABI + 1;
  EXPECT_THAT(refusal(table),
              AllOf(HasSubstr("interface version 2"), HasSubstr("this Lockstep version 1"),
                    HasSubstr("lockstep_subject.h")));
  const Result<LoadedSubject> refused = check_subject(nullptr, "mine");  // it refused us
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().failure().detail, HasSubstr("does not serve interface version 1"));
}

TEST(Loader, RefusesATableThatIsTooShort) {
  lockstep_subject table = full_table();
  table.size = 8;
  EXPECT_THAT(refusal(table), HasSubstr("sizeof(lockstep_subject)"));
}

// A subject built with the header of Lockstep 0.1.0, whose table ended before `scale`.
TEST(Loader, TakesATableFromBeforeScale) {
  lockstep_subject table = full_table();
  table.size = offsetof(lockstep_subject, scale);
  table.scale = "not to be read";
  EXPECT_EQ(refusal(table), "accepted");
  table.size -= 1;
  EXPECT_THAT(refusal(table), HasSubstr("sizeof(lockstep_subject)"));
}

TEST(Loader, TakesTheScalesThatThereAre) {
  lockstep_subject table = full_table();
  table.scale = "divide after";
  EXPECT_EQ(refusal(table), "accepted");
  EXPECT_EQ(check_subject(&table, "mine")->scale, "divide after");
  table.scale = "halve";
  EXPECT_THAT(refusal(table), HasSubstr("the scale 'halve': give 'multiply before'"));
}

// A subject built with a later header of the same version.
TEST(Loader, TakesATableThatHasGrown) {
  lockstep_subject table = full_table();
  table.size += 64;
  EXPECT_EQ(refusal(table), "accepted");
}

TEST(Loader, RefusesATableWithoutAName) {
  lockstep_subject table = full_table();
  table.name = nullptr;
  EXPECT_THAT(refusal(table), HasSubstr("has no name"));
  table.name = "";
  EXPECT_THAT(refusal(table), HasSubstr("has no name"));
}

TEST(Loader, RefusesCapabilitiesThatDoNotExist) {
  lockstep_subject table = full_table();
  table.capabilities |= UINT64_C(1) << 40;
  EXPECT_THAT(refusal(table), HasSubstr("0x10000000000"));
}

TEST(Loader, TakesErrorsWithoutRecovery) {
  lockstep_subject table = full_table();
  table.capabilities &= ~LOCKSTEP_CAN_RECOVER;
  table.abort = nullptr;
  table.reset = nullptr;
  table.poisoned = nullptr;
  EXPECT_EQ(refusal(table), "accepted");
}

TEST(Loader, NamesEveryFunctionThatIsMissing) {
  const auto without = [](auto lockstep_subject::*function) {
    lockstep_subject table = full_table();
    table.*function = nullptr;
    return refusal(table);
  };
  EXPECT_THAT(without(&lockstep_subject::create), HasSubstr("lacks functions: create"));
  EXPECT_THAT(without(&lockstep_subject::destroy), HasSubstr("lacks functions: destroy"));
  EXPECT_THAT(without(&lockstep_subject::forward_begin), HasSubstr("functions: forward_begin"));
  EXPECT_EQ(without(&lockstep_subject::forward_end), "accepted");
  EXPECT_THAT(without(&lockstep_subject::backward_begin), HasSubstr("functions: backward_begin"));
  EXPECT_THAT(without(&lockstep_subject::gradient_ready), HasSubstr("functions: gradient_ready"));
  EXPECT_THAT(without(&lockstep_subject::backward_end), HasSubstr("functions: backward_end"));
  EXPECT_THAT(without(&lockstep_subject::backward_failed), HasSubstr("functions: backward_failed"));
  EXPECT_THAT(without(&lockstep_subject::check_complete), HasSubstr("functions: check_complete"));
  EXPECT_THAT(without(&lockstep_subject::abort), HasSubstr("functions: abort"));
  EXPECT_THAT(without(&lockstep_subject::reset), HasSubstr("functions: reset"));
  EXPECT_THAT(without(&lockstep_subject::poisoned), HasSubstr("functions: poisoned"));
}

TEST(Loader, AsksOnlyForFunctionsThatCapabilitiesNeed) {
  lockstep_subject table = full_table();
  table.capabilities = 0;
  table.check_complete = nullptr;
  table.abort = nullptr;
  table.reset = nullptr;
  table.poisoned = nullptr;
  EXPECT_EQ(refusal(table), "accepted");
  table.create = nullptr;
  table.destroy = nullptr;
  EXPECT_THAT(refusal(table), HasSubstr("create, destroy"));
}

}  // namespace
}  // namespace lockstep::properties
