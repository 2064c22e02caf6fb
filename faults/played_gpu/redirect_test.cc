// Libraries of our own that hold a "CUDA runtime", as NCCL's wheels do, or are linked with one.
#include "faults/played_gpu/redirect.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <string>

#include "faults/played_gpu/gpu.h"
#include "faults/played_gpu/load.h"
#include "faults/played_gpu/played_gpu.h"

namespace lockstep::played {
namespace {

using ::testing::HasSubstr;

std::string in_folder(const std::string& file) { return LOCKSTEP_PLAYED_TESTS "/" + file; }

class Library {
 public:
  explicit Library(const std::string& name)
      : handle_(::dlopen(in_folder(name).c_str(), RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
  }
  void* handle() const { return handle_; }
  int call(const char* function) const {
    const auto found = reinterpret_cast<int (*)()>(::dlsym(handle_, function));
    EXPECT_NE(found, nullptr) << function;
    return found();
  }

 private:
  void* const handle_;
};

TEST(PlayedRuntime, CallsOfALibraryAmongItselfGoToThePlayedRuntime) {
  const Library library("libplayed_inner.so");
  EXPECT_EQ(library.call("devices"), 77);
  EXPECT_EQ(library.call("allocates"), 0);
  const Result<std::size_t> redirected = redirect_runtime(library.handle());
  ASSERT_TRUE(redirected.has_value()) << redirected.error().to_string();
  EXPECT_EQ(*redirected, 4u);
  EXPECT_EQ(library.call("devices"), 1);
  EXPECT_EQ(library.call("allocates"), 0xff);  // poison
  EXPECT_EQ(library.call("calls_a_helper"), 14);
}

TEST(PlayedRuntime, TheRuntimesOwnCallsStay) {
  const Library library("libplayed_inner_calls.so");
  ASSERT_TRUE(redirect_runtime(library.handle()).has_value());
  EXPECT_EQ(library.call("devices"), 1);
  EXPECT_EQ(library.call("devices_by_the_runtime"), 77);
}

TEST(PlayedRuntime, WhatIsNotPlayedFailsByItsName) {
  const Library library("libplayed_inner_unplayed.so");
  EXPECT_EQ(library.call("calls_what_is_not_played"), 7);
  ASSERT_TRUE(redirect_runtime(library.handle()).has_value());
  EXPECT_EQ(library.call("calls_what_is_not_played"), kNotSupported);
  EXPECT_THAT(Gpu::one().last_refusal(), HasSubstr("cudaNobodyPlaysThis"));
}

TEST(PlayedRuntime, ALibraryWithoutASymbolTableIsRefused) {
  const Library library("libplayed_inner_stripped.so");
  const Result<std::size_t> redirected = redirect_runtime(library.handle());
  ASSERT_FALSE(redirected.has_value());
  EXPECT_THAT(redirected.error().to_string(), HasSubstr("it has no symbol table (.symtab)"));
  EXPECT_EQ(library.call("devices"), 77);
}

TEST(PlayedRuntime, ALibraryWithNeitherRuntimeIsRefused) {
  const Library library("libplayed_no_runtime.so");
  const Result<std::size_t> redirected = redirect_runtime(library.handle());
  ASSERT_FALSE(redirected.has_value());
  EXPECT_THAT(redirected.error().to_string(), HasSubstr("neither holds a CUDA runtime nor"));
}

// The loader finds the played libcudart.so.12 by its name, and through it the functions.
TEST(PlayedRuntime, ALinkedLibraryGetsThePlayedOne) {
  const Library runtime("libcudart.so.12");
  const Library library("libplayed_linked.so");
  EXPECT_EQ(library.call("allocates"), 0xff);
}

std::string refusal_of(const std::string& library) {
  const Status status = load(in_folder(library), LOCKSTEP_PLAYED_FOLDER);
  return status.ok() ? "none" : status.failure().detail;
}

TEST(PlayedNccl, WhatIsNoNcclThatIsKnownIsRefusedInOneLine) {
  EXPECT_THAT(refusal_of("libnone.so"), HasSubstr("cannot load"));
  EXPECT_THAT(refusal_of("libplayed_inner.so"), HasSubstr("is not NCCL: it has no ncclGetVersion"));
  EXPECT_THAT(refusal_of("libplayed_old.so"),
              HasSubstr("NCCL 2.18.3 cannot be played: its structures are known of 2.22.3, 2.23.4, "
                        "2.26.2, 2.27.7, 2.28.9, 2.29.7, 2.30.7, 2.32.3"));
  EXPECT_THAT(refusal_of("libplayed_newer.so"), HasSubstr("NCCL 2.99.0 cannot be played"));
  EXPECT_THAT(refusal_of("libplayed_other_build.so"),
              HasSubstr("it has no table of its kernels' functions"));
}

TEST(Symbols, AFileThatIsNoLibraryIsRefused) {
  EXPECT_THAT(Symbols::read("/no/such/file").error().to_string(), HasSubstr("No such file"));
  EXPECT_THAT(Symbols::read("/proc/self/cmdline").error().to_string(),
              HasSubstr("cannot be played"));
  EXPECT_THAT(Symbols::read("/bin/sh").error().to_string(), HasSubstr("no symbol table"));
}

}  // namespace
}  // namespace lockstep::played
