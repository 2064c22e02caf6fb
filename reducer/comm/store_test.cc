// The stores that need no operating system: HashStore and PrefixStore.
#include "reducer/comm/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "reducer/comm/checked_store.h"

namespace lockstep {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;

TEST(HashStore, FirstValueStays) {
  HashStore store;
  EXPECT_TRUE(store.set("k", "first").value());
  EXPECT_FALSE(store.set("k", "second").value());
  EXPECT_EQ(store.get("k", Deadline::in(milliseconds(0))).value(), "first");
}

TEST(HashStore, KeysAndValuesAreBytes) {
  HashStore store;
  const std::string key("a\0b", 3);
  const std::string value("\0\xff", 2);
  EXPECT_TRUE(store.set(key, value).value());
  EXPECT_FALSE(store.contains("a").value());
  EXPECT_EQ(store.get(key, Deadline::never()).value(), value);
  EXPECT_TRUE(store.set("empty", "").value());
  EXPECT_EQ(store.get("empty", Deadline::never()).value(), "");
}

TEST(HashStore, GetWaitsForTheKey) {
  HashStore store;
  std::atomic<bool> is_set{false};
  platform::Thread setter("setter", [&] {
    platform::Mutex mutex("test");
    platform::CondVar never_notified("test");
    platform::MutexLock lock(mutex);
    never_notified.wait(mutex, Deadline::in(milliseconds(20)), [] { return false; });
    is_set = true;
    store.set("late", "value").value();
  });
  EXPECT_EQ(store.get("late", Deadline::in(std::chrono::seconds(30))).value(), "value");
  EXPECT_TRUE(is_set);
  setter.join();
}

TEST(HashStore, MissingKeyTimesOutNamingTheKey) {
  HashStore store;
  store.set("other", "x").value();
  const auto missing = store.get("rank/7", Deadline::in(milliseconds(5)));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), Code::kTimeout);
  EXPECT_NE(missing.error().to_string().find("'rank/7'"), std::string::npos);
}

TEST(PrefixStore, PrefixesSeparateTheSameKey) {
  auto inner = std::make_shared<HashStore>();
  PrefixStore one("1", inner);
  PrefixStore two("2", inner);
  EXPECT_TRUE(one.set("k", "a").value());
  EXPECT_FALSE(two.contains("k").value());
  EXPECT_TRUE(two.set("k", "b").value());
  EXPECT_EQ(one.get("k", Deadline::never()).value(), "a");
  EXPECT_EQ(inner->get("2/k", Deadline::never()).value(), "b");
}

TEST(PrefixStore, KeepsTheInnerStoreAlive) {
  auto inner = std::make_shared<HashStore>();
  PrefixStore store("p", inner);
  inner.reset();
  EXPECT_TRUE(store.set("k", "v").value());
  EXPECT_TRUE(store.contains("k").value());
}

TEST(PrefixStore, TimeoutNamesTheWholeKey) {
  PrefixStore store("group/3", std::make_shared<HashStore>());
  const auto missing = store.get("k", Deadline::in(milliseconds(1)));
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().to_string().find("'group/3/k'"), std::string::npos);
}

class ThrowingStore final : public Store {
 public:
  Result<bool> set(std::string_view, std::string_view) override {
    throw std::runtime_error("no shelf");
  }
  Result<std::string> get(std::string_view, Deadline) override { throw 7; }
  Result<bool> contains(std::string_view) override { throw std::bad_alloc(); }
};

TEST(CheckedStore, AnExceptionBecomesAStatusWithItsText) {
  CheckedStore store(std::make_shared<ThrowingStore>());
  const Result<bool> set = store.set("k", "v");
  ASSERT_FALSE(set.has_value());
  EXPECT_EQ(set.error().code(), Code::kTransport);
  EXPECT_EQ(set.error().failure().detail, "the store threw an exception: no shelf");
  const Result<std::string> value = store.get("k", Deadline::never());
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().code(), Code::kTransport);
  EXPECT_THROW(static_cast<void>(store.contains("k")), std::bad_alloc);
}

TEST(CheckedStore, ReturnsWhatTheInnerStoreReturns) {
  HashStore inner;
  CheckedStore store(inner);
  EXPECT_TRUE(store.set("k", "v").value());
  EXPECT_FALSE(store.set("k", "w").value());
  EXPECT_EQ(inner.get("k", Deadline::never()).value(), "v");
  EXPECT_TRUE(store.contains("k").value());
  EXPECT_EQ(store.get("none", Deadline::in(milliseconds(0))).error().code(), Code::kTimeout);
}

TEST(CheckedStore, ANullStoreIsAnInvalidArgumentAlsoBehindAPrefix) {
  for (const auto& store : {std::shared_ptr<Store>(std::make_shared<CheckedStore>(nullptr)),
                            std::shared_ptr<Store>(std::make_shared<PrefixStore>("p", nullptr))}) {
    EXPECT_EQ(store->set("k", "v").error().code(), Code::kInvalidArgument);
    EXPECT_EQ(store->get("k", Deadline::never()).error().code(), Code::kInvalidArgument);
    EXPECT_EQ(store->contains("k").error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep
