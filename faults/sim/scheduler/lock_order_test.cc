#include "faults/sim/scheduler/lock_order.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::simulation {
namespace {

TEST(LockOrder, NamesAreTheSameIfTheirTextsAre) {
  const std::string copy = "lock_order_test.a";
  EXPECT_EQ(intern_name("lock_order_test.a"), intern_name(copy.c_str()));
  EXPECT_NE(intern_name("lock_order_test.a"), intern_name("lock_order_test.b"));
  EXPECT_STREQ(name_of(intern_name(copy.c_str())), "lock_order_test.a");
}

TEST(LockOrder, AnAddressWithANewTextIsANewName) {
  char text[] = "lock_order_test.x1";
  const NameId first = intern_name(text);
  text[sizeof text - 2] = '2';
  EXPECT_NE(intern_name(text), first);
  EXPECT_STREQ(name_of(intern_name(text)), "lock_order_test.x2");
}

TEST(LockOrder, AgreeingOrdersAreNoViolation) {
  const NameId a = intern_name("a");
  const NameId b = intern_name("b");
  const NameId c = intern_name("c");
  LockOrder order;
  order.acquire(a, b, 1);
  order.acquire(b, c, 2);
  order.acquire(a, c, 3);
  order.acquire(a, b, 4);
  EXPECT_TRUE(order.violations().empty());
}

TEST(LockOrder, AnInversionIsToldOnceWithBothSides) {
  LockOrder order;
  order.acquire(intern_name("a"), intern_name("b"), 1);
  order.acquire(intern_name("b"), intern_name("a"), 2);
  order.acquire(intern_name("b"), intern_name("a"), 3);
  ASSERT_EQ(order.violations().size(), 1U);
  EXPECT_EQ(order.violations()[0], "a -> b (fiber 1) -> a (fiber 2)");
}

TEST(LockOrder, LongerCirclesAreFound) {
  LockOrder order;
  order.acquire(intern_name("a"), intern_name("b"), 1);
  order.acquire(intern_name("b"), intern_name("c"), 2);
  order.acquire(intern_name("c"), intern_name("a"), 3);
  ASSERT_EQ(order.violations().size(), 1U);
  EXPECT_EQ(order.violations()[0], "a -> b (fiber 1) -> c (fiber 2) -> a (fiber 3)");
}

TEST(LockOrder, TwoMutexesOfOneNameAtATimeAreAViolation) {
  LockOrder order;
  order.acquire(intern_name("a"), intern_name("a"), 1);
  ASSERT_EQ(order.violations().size(), 1U);
}

TEST(LockOrder, ResetForgets) {
  LockOrder order;
  order.acquire(intern_name("a"), intern_name("b"), 1);
  order.reset();
  order.acquire(intern_name("b"), intern_name("a"), 2);
  EXPECT_TRUE(order.violations().empty());
}

}  // namespace
}  // namespace lockstep::simulation
