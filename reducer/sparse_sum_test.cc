// Claim: SparseSum adds the rows of all ranks, each row once and in ascending order (S1), and takes
// no list of rows that no rank can have sent (F3). The test is the group: it writes into the memory
// of each collective what the ranks send. The component `rows` draws the lists.
#include "reducer/sparse_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>

#include "reducer/device/host/host_device.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Rows = std::vector<std::int64_t>;
using Values = std::vector<float>;

class OneRank final : public ProcessGroup {
 public:
  explicit OneRank(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool can_reduce(DType) const override { return true; }
  Status start(const Collective&, Work&) override { return Status(Code::kInternal, "not here"); }
  void abort(const Status&) override {}
  platform::Duration timeout() const override { return platform::Duration::max(); }

 private:
  const int rank_;
  const int size_;
};

// A parameter of five rows with two elements each, on rank 1 of three.
class SparseSumOfThree : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 5;
  static constexpr std::size_t kWidth = 2;

  Tensor gradient(const Rows& rows, const Values& values) {
    Result<Tensor> made = empty_sparse(device_, DType::kFloat32, parameter_->shape(), rows);
    EXPECT_TRUE(made.has_value());
    if (!values.empty()) std::memcpy(made->data(), values.data(), values.size() * sizeof(float));
    return std::move(*made);
  }

  template <class T>
  static void put(const Collective& gather, std::size_t rank, const std::vector<T>& from) {
    const std::size_t bytes = gather.count * size_of(gather.dtype);
    ASSERT_EQ(from.size() * sizeof(T), bytes);
    if (bytes > 0) std::memcpy(gather.gathered + rank * bytes, from.data(), bytes);
  }

  void tell_counts(const Rows& counts) {
    const Collective count = sum_.count(group_);
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const std::size_t bytes = count.count * size_of(count.dtype);
      ASSERT_EQ(bytes, sizeof(std::int64_t));
      std::memcpy(count.gathered + rank * bytes, &counts[rank], bytes);
    }
  }

  HostDevice device_;
  Ref<Parameter> parameter_ = make_ref<Parameter>(
      "p", device_, DType::kFloat32, Shape::row_major({kRows, static_cast<std::int64_t>(kWidth)}),
      true, std::uint64_t{0}, Parameter::Gradients::kSparse);
  SparseSum sum_{*parameter_};
  OneRank group_{1, 3};
};

TEST_F(SparseSumOfThree, S1RowsOfAllRanksAreAddedOnceEachAndAscending) {
  ASSERT_TRUE(sum_.take(gradient({3, 0}, {1, 2, 3, 4}), 1.0).ok());
  tell_counts({1, 2, 0});
  const auto collectives = sum_.prepare();
  ASSERT_TRUE(collectives.has_value());
  ASSERT_EQ(collectives->size(), 2U);
  const Collective& numbers = (*collectives)[0];
  const Collective& values = (*collectives)[1];
  put(numbers, 0, Rows{3, -1});
  put(numbers, 1, Rows{0, 3});
  put(numbers, 2, Rows{-1, -1});
  put(values, 0, Values{10, 20, 0, 0});
  put(values, 1, Values{3, 4, 1, 2});
  put(values, 2, Values{0, 0, 0, 0});
  const Result<Tensor> made = sum_.sum();
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  EXPECT_EQ(Rows(made->rows().begin(), made->rows().end()), (Rows{0, 3}));
  const auto* data = reinterpret_cast<const float*>(made->data());
  EXPECT_EQ(Values(data, data + 4), (Values{3, 4, 11, 22}));
}

TEST_F(SparseSumOfThree, G2ItsOwnRowsAreMultipliedByTheFactor) {
  ASSERT_TRUE(sum_.take(gradient({2}, {8, 4}), 0.25).ok());
  tell_counts({0, 1, 0});
  const auto collectives = sum_.prepare();
  ASSERT_TRUE(collectives.has_value());
  const auto* sent = reinterpret_cast<const float*>((*collectives)[1].data);
  EXPECT_EQ(Values(sent, sent + 2), (Values{2, 1}));
}

TEST_F(SparseSumOfThree, S1WithoutRowsOnAnyRankNothingIsSent) {
  ASSERT_TRUE(sum_.take(Tensor(), 1.0).ok());
  tell_counts({0, 0, 0});
  const auto collectives = sum_.prepare();
  ASSERT_TRUE(collectives.has_value());
  EXPECT_TRUE(collectives->empty());
  const Result<Tensor> made = sum_.sum();
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(made->rows().empty());
}

void expect_corrupted(const Status& status, int suspect) {
  ASSERT_EQ(status.code(), Code::kCorrupted);
  EXPECT_EQ(status.failure().rank, 1);
  EXPECT_EQ(status.failure().suspect, suspect);
  EXPECT_TRUE(status.failure().definite);
  EXPECT_THAT(status.failure().detail,
              HasSubstr("rank 1 received from rank " + std::to_string(suspect)));
}

TEST_F(SparseSumOfThree, F3AnImpossibleCountNamesItsSender) {
  for (const std::int64_t count : {std::int64_t{-1}, kRows + 1}) {
    ASSERT_TRUE(sum_.take(Tensor(), 1.0).ok());
    tell_counts({0, 0, count});
    const auto collectives = sum_.prepare();
    ASSERT_FALSE(collectives.has_value()) << count;
    expect_corrupted(collectives.error(), 2);
  }
}

TEST_F(SparseSumOfThree, F3AListThatNoRankCanSendNamesItsSender) {
  for (const Rows& wrong : {Rows{3, 3}, Rows{3, 1}, Rows{0, kRows}, Rows{-1, 2}}) {
    ASSERT_TRUE(sum_.take(Tensor(), 1.0).ok());
    tell_counts({2, 0, 0});
    const auto collectives = sum_.prepare();
    ASSERT_TRUE(collectives.has_value());
    put((*collectives)[0], 0, wrong);
    put((*collectives)[0], 1, Rows{-1, -1});
    put((*collectives)[0], 2, Rows{-1, -1});
    const Result<Tensor> made = sum_.sum();
    ASSERT_FALSE(made.has_value()) << wrong[0] << " " << wrong[1];
    expect_corrupted(made.error(), 0);
  }
}

}  // namespace
}  // namespace lockstep
