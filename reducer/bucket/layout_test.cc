#include "reducer/bucket/layout.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

using Lists = std::vector<std::vector<std::size_t>>;

ParameterInfo info(std::string name, std::int64_t elements, DType dtype = DType::kFloat32,
                   int device = 0, bool requires_grad = true) {
  return {std::move(name), dtype, device, elements, requires_grad};
}

Lists members_of(const Layout& layout) {
  Lists lists;
  for (const BucketLayout& bucket : layout.buckets) {
    lists.emplace_back();
    for (const BucketMember& member : bucket.members) lists.back().push_back(member.parameter);
  }
  return lists;
}

Lists assign(const std::vector<ParameterInfo>& parameters, std::vector<std::uint64_t> limits) {
  return members_of(*assign_buckets(parameters, limits));
}

TEST(Layout, ABucketClosesWhenItReachesItsLimit) {
  const std::vector<ParameterInfo> p = {info("a", 10), info("b", 10), info("c", 10), info("d", 10)};
  // Each has 40 bytes: the first bucket closes at 40, the second at 80.
  EXPECT_EQ(assign(p, {40, 80}), (Lists{{3}, {1, 2}, {0}}));
  EXPECT_EQ(assign(p, {41, 81}), (Lists{{2, 3}, {0, 1}}));
  EXPECT_EQ(assign(p, {0}), (Lists{{3}, {2}, {1}, {0}}));
}

TEST(Layout, EveryBucketHasItsLimitAndTheLastOneIsThatOfAllOthers) {
  std::vector<ParameterInfo> p;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i"})
    p.push_back(info(name, 10));
  EXPECT_EQ(assign(p, {40, 80, 120}), (Lists{{6, 7, 8}, {3, 4, 5}, {1, 2}, {0}}));
  EXPECT_EQ(assign(p, {80, 120, 40}), (Lists{{8}, {7}, {6}, {5}, {2, 3, 4}, {0, 1}}));
}

TEST(Layout, EveryDtypeAndDeviceHasItsOwnGroupWithItsOwnFirstLimit) {
  const std::vector<ParameterInfo> p = {info("a", 1), info("b", 1, DType::kFloat16), info("c", 1),
                                        info("d", 1, DType::kFloat16),
                                        info("e", 1, DType::kFloat32, 1)};
  EXPECT_EQ(assign(p, {1u << 20}), (Lists{{4}, {1, 3}, {0, 2}}));
  EXPECT_EQ(assign(p, {2, 1u << 20}), (Lists{{4}, {3}, {2}, {1}, {0}}));
}

ParameterInfo table(std::string name, std::int64_t elements) {
  ParameterInfo made = info(std::move(name), elements);
  made.sparse = true;
  return made;
}

TEST(Layout, B1SparseGradientsHaveABucketEachAndCloseNoOther) {
  const std::vector<ParameterInfo> p = {info("a", 1), table("t", 100), info("b", 1),
                                        table("u", 100)};
  const Layout layout = *assign_buckets(p, std::vector<std::uint64_t>{1u << 20});
  EXPECT_EQ(members_of(layout), (Lists{{3}, {1}, {0, 2}}));
  EXPECT_TRUE(layout.buckets[0].sparse);
  EXPECT_FALSE(layout.buckets[2].sparse);
  const std::vector<std::size_t> order = {2, 3, 0, 1};
  EXPECT_EQ(members_of(*assign_buckets_in_order(p, std::vector<std::uint64_t>{1u << 20}, order)),
            (Lists{{2, 0}, {3}, {1}}));
}

TEST(Layout, B5SparseGradientsBesideOthersAreRefused) {
  const std::vector<ParameterInfo> p = {info("a", 1), table("t", 100)};
  const auto layout = layout_from_buckets(p, Lists{{0, 1}});
  ASSERT_FALSE(layout);
  EXPECT_NE(layout.error().to_string().find("parameter t beside others"), std::string::npos);
}

TEST(Layout, B3ASavedLayoutTellsWhichBucketsAreSparse) {
  const std::vector<ParameterInfo> p = {info("a", 1), table("t", 100)};
  const std::vector<ParameterInfo> dense = {info("a", 1), info("t", 100)};
  const Layout layout = *layout_from_buckets(p, Lists{{0}, {1}});
  const Result<Layout> loaded = load_layout(save(layout));
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_TRUE(*loaded == layout);
  EXPECT_TRUE(loaded->buckets[1].sparse);
  EXPECT_TRUE(check_layout(*loaded, p).ok());
  const Status status = check_layout(*loaded, dense);
  EXPECT_NE(status.to_string().find("is of sparse gradients"), std::string::npos)
      << status.to_string();
  const Layout other = *layout_from_buckets(dense, Lists{{0}, {1}});
  EXPECT_FALSE(other == layout);
  EXPECT_FALSE(check_layout(other, p).ok());
}

TEST(Layout, FrozenParametersAreInNoBucket) {
  const std::vector<ParameterInfo> p = {info("a", 4, DType::kFloat32, 0, false), info("b", 4),
                                        info("c", 4, DType::kFloat64, 0, false)};
  EXPECT_EQ(assign(p, {1u << 20}), (Lists{{1}}));
}

TEST(Layout, MembersStartAt64BytesAndTheBucketEndsWithItsLast) {
  const std::vector<ParameterInfo> p = {info("a", 3), info("b", 0), info("c", 17), info("d", 1)};
  const Layout layout = *assign_buckets(p, std::vector<std::uint64_t>{1u << 20});
  ASSERT_EQ(layout.buckets.size(), 1u);
  const auto& members = layout.buckets[0].members;
  EXPECT_EQ(members[0].offset, 0);
  EXPECT_EQ(members[1].offset, 16);
  EXPECT_EQ(members[2].offset, 16);
  EXPECT_EQ(members[3].offset, 48);
  EXPECT_EQ(layout.buckets[0].elements, 49);
}

TEST(Layout, TheHashTellsLayoutsApart) {
  const std::vector<ParameterInfo> p = {info("a", 3), info("b", 3)};
  const Layout one = *assign_buckets(p, std::vector<std::uint64_t>{1});
  const Layout same = *assign_buckets(p, std::vector<std::uint64_t>{2});
  const Layout other = *assign_buckets(p, std::vector<std::uint64_t>{1000});
  EXPECT_EQ(one.hash, same.hash);
  EXPECT_NE(one.hash, other.hash);
}

TEST(Layout, WrongBucketListsAreRefusedByName) {
  const std::vector<ParameterInfo> p = {info("a", 3), info("b", 3), info("h", 3, DType::kFloat16),
                                        info("far", 3, DType::kFloat32, 1),
                                        info("ice", 3, DType::kFloat32, 0, false)};
  const auto error = [&p](const Lists& lists) {
    const auto layout = layout_from_buckets(p, lists);
    return layout ? std::string("accepted") : layout.error().to_string();
  };
  EXPECT_NE(error({{0, 1}, {2}, {3}, {0}}).find("a for the second time"), std::string::npos);
  EXPECT_NE(error({{0, 1}, {3}}).find("h is in no bucket"), std::string::npos);
  EXPECT_NE(error({{9}}).find("parameter 9, but there are 5"), std::string::npos);
  EXPECT_NE(error({{0, 2}}).find("mixes dtypes"), std::string::npos);
  EXPECT_NE(error({{0, 3}}).find("mixes devices"), std::string::npos);
  EXPECT_NE(error({{0, 1}, {}}).find("bucket 1 is empty"), std::string::npos);
  EXPECT_NE(error({{4}}).find("ice, which requires no gradient"), std::string::npos);
  EXPECT_EQ(error({{0, 1}, {2}, {3}}), "accepted");
  EXPECT_FALSE(assign_buckets(p, {}).has_value());
}

TEST(SavedLayout, B3ComesBackAsItWas) {
  const std::vector<ParameterInfo> p = {info("a", 3), info("b", 17, DType::kFloat16), info("c", 0),
                                        info("d", 5, DType::kFloat32, 1)};
  const Layout made = *assign_buckets_in_order(p, std::vector<std::uint64_t>{64, 100},
                                               std::vector<std::size_t>{2, 1, 3, 0});
  const std::string text = save(made);
  const Result<Layout> back = load_layout(text);
  ASSERT_TRUE(back.has_value()) << back.error().to_string();
  EXPECT_EQ(back->hash, made.hash);
  EXPECT_EQ(back->limits, (std::vector<std::uint64_t>{64, 100}));
  EXPECT_EQ(members_of(*back), members_of(made));
  EXPECT_EQ(save(*back), text);
  EXPECT_TRUE(check_layout(*back, p).ok());
  EXPECT_EQ(text.substr(0, text.find("\nhash")),
            "lockstep layout 1\nalignment 64\nlimits 64 100\n"
            "bucket float32 0 3\nmember 2 0 0\nmember 0 0 3\n"
            "bucket float16 0 17\nmember 1 0 17\nbucket float32 1 5\nmember 3 0 5");
  EXPECT_TRUE(load_layout(save(Layout(*layout_from_buckets({}, {})))).has_value());
}

TEST(SavedLayout, WhatIsNotOneIsRefusedWithItsLine) {
  const std::vector<ParameterInfo> p = {info("a", 3), info("b", 3)};
  const std::string good = save(*assign_buckets(p, std::vector<std::uint64_t>{1}));
  const auto error_with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const Result<Layout> layout = load_layout(text);
    return layout ? std::string("accepted") : layout.error().to_string();
  };
  EXPECT_EQ(error_with("a", "a"), "accepted");
  EXPECT_NE(error_with("layout 1", "layout 2").find("line 1 "), std::string::npos);
  EXPECT_NE(error_with("alignment 64", "alignment 32").find("line 2 "), std::string::npos);
  EXPECT_NE(error_with("limits 1", "limits x").find("line 3 "), std::string::npos);
  EXPECT_NE(error_with("float32", "float33").find("line 4 "), std::string::npos);
  EXPECT_NE(error_with("member 1", "member").find("line 5 "), std::string::npos);
  EXPECT_NE(error_with("member 1", "member 0").find("was changed"), std::string::npos);
  EXPECT_NE(error_with("hash", "mash").find("is wrong"), std::string::npos);
  for (std::size_t length = 0; length + 2 < good.size(); ++length)
    EXPECT_FALSE(load_layout(good.substr(0, length)).has_value()) << length;
}

TEST(SavedLayout, B5OneOfOtherParametersIsRefusedWithWhatDiffers) {
  const std::vector<ParameterInfo> p = {info("a", 3), info("b", 3)};
  const Layout layout = *assign_buckets(p, std::vector<std::uint64_t>{100});
  const auto error = [&](std::vector<ParameterInfo> parameters, const Layout& checked) {
    const Status status = check_layout(checked, parameters);
    return status.ok() ? std::string("fits") : status.failure().detail;
  };
  EXPECT_EQ(error(p, layout), "fits");
  EXPECT_NE(error({info("a", 3)}, layout).find("names parameter 1, but there are 1"),
            std::string::npos);
  EXPECT_NE(error({p[0], p[1], info("c", 3)}, layout).find("c is in no bucket"), std::string::npos);
  EXPECT_NE(error({p[0], info("b", 4)}, layout).find("3 elements for parameter b, which has 4"),
            std::string::npos);
  EXPECT_NE(error({info("a", 3, DType::kFloat16), info("b", 3, DType::kFloat16)}, layout)
                .find("is of float32, its parameters are of float16"),
            std::string::npos);
  EXPECT_NE(error({info("a", 3, DType::kFloat32, 1), info("b", 3, DType::kFloat32, 1)}, layout)
                .find("on device 0"),
            std::string::npos);
  Layout moved = layout;
  moved.buckets[0].members[1].offset = 3;
  EXPECT_NE(error(p, moved).find("parameter b at element 3, and not at 16"), std::string::npos);
  moved = layout;
  ++moved.buckets[0].elements;
  EXPECT_NE(error(p, moved).find("20 elements, its parameters need 19"), std::string::npos);
  moved = layout;
  ++moved.hash;
  EXPECT_NE(error(p, moved).find("hash"), std::string::npos);
}

TEST(Layout, B5BytesThatDoNotFitAnyMemoryAreRefused) {
  constexpr std::int64_t kHalf = std::int64_t{1} << 60;  // As float32 these are 2^62 bytes.
  const std::vector<std::uint64_t> limits = {~std::uint64_t{0}};
  const auto error = [&](const std::vector<ParameterInfo>& parameters) {
    const Result<Layout> layout = assign_buckets(parameters, limits);
    return layout ? std::string("laid out") : layout.error().to_string();
  };
  EXPECT_EQ(error({info("a", kHalf)}), "laid out");
  EXPECT_NE(error({info("a", kHalf), info("b", kHalf)}).find("parameter a"), std::string::npos);
  EXPECT_NE(error({info("a", kHalf * 4)}).find("more bytes than any memory"), std::string::npos);
  EXPECT_NE(error({info("a", 3), info("b", std::numeric_limits<std::int64_t>::max() - 1)})
                .find("more bytes"),
            std::string::npos);
  // Each of them reaches this limit by itself.
  const std::vector<ParameterInfo> four(4, info("a", kHalf));
  EXPECT_EQ(assign(four, {std::uint64_t{1} << 62}), (Lists{{3}, {2}, {1}, {0}}));
}

TEST(Layout, B3SizesThatNoLayoutHasAreNotLoaded) {
  const std::vector<ParameterInfo> p = {info("a", 3), info("b", 3)};
  const std::string text = save(*assign_buckets(p, std::vector<std::uint64_t>{100}));
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    const Result<Layout> layout = load_layout(changed);
    return layout ? std::string("loaded") : layout.error().to_string();
  };
  ASSERT_TRUE(load_layout(text).has_value());
  EXPECT_NE(error("member 1 16 3", "member 1 -16 3").find("line 6"), std::string::npos);
  EXPECT_NE(error("member 1 16 3", "member 1 16 -3").find("line 6"), std::string::npos);
  EXPECT_NE(error("member 1 16 3", "member 1 16 9223372036854775807").find("line 6"),
            std::string::npos);
  EXPECT_NE(error("bucket float32 0 19", "bucket float32 0 -1").find("line 4"), std::string::npos);
  EXPECT_NE(error("member 1 16 3", "member 1 16 4").find("hash"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
