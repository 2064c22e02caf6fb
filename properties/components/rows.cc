// This component checks how a rank adds the rows of a sparse gradient that its peers send
// (reducer/sparse_sum.h). Most of the lists that it is sent are ones that no peer may send, and
// the rank has to refuse them (F3).
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "reducer/autograd/parameter.h"
#include "reducer/base/check.h"
#include "reducer/device/host/host_device.h"
#include "reducer/sparse_sum.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::int64_t kNoRow = -1;

// A group that has a size, and sends nothing.
class SilentGroup final : public ProcessGroup {
 public:
  SilentGroup(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool can_reduce(DType) const override { return true; }
  Status start(const Collective&, Work&) override {
    return Status(Code::kInternal, "this group sends nothing");
  }
  void abort(const Status&) override {}
  platform::Duration timeout() const override { return platform::Duration::max(); }

 private:
  const int rank_;
  const int size_;
};

// What one rank sends: the number of its rows, their numbers up to the longest list of all ranks,
// and the values, which are small, so that no sum is rounded.
struct Sent {
  std::int64_t count = 0;
  std::vector<std::int64_t> numbers;
  std::vector<float> values;
};

class RowsCase {
 public:
  explicit RowsCase(Choices& choices) : chance_(choices) { draw(); }

  // Returns what is wrong with the rank's answers, or an empty text.
  std::string judge() {
    const Ref<Parameter> parameter =
        make_ref<Parameter>("p", device_, DType::kFloat32, Shape::row_major({rows_, width_}), true,
                            std::uint64_t{0}, Parameter::Gradients::kSparse);
    SparseSum sum(*parameter);
    LOCKSTEP_CHECK(sum.take(gradient(), 1.0).ok());
    const SilentGroup group(own_, static_cast<int>(sent_.size()));
    const Collective counts = sum.count(group);
    if (counts.count * sent_.size() != sizeof(std::int64_t) * sent_.size())
      return "it sends something else than the number of its rows";
    for (std::size_t rank = 0; rank < sent_.size(); ++rank) put(counts, rank, &sent_[rank].count);
    if (suspect_ == own_) {  // Its own number does not come back as it was sent.
      const std::int64_t other = (sent_[static_cast<std::size_t>(own_)].count + 1) % (rows_ + 1);
      put(counts, static_cast<std::size_t>(own_), &other);
    }
    const auto collectives = sum.prepare();
    if (!collectives) return judge_error(collectives.error());
    if (is_count_wrong_) return "it takes the number of rows of a rank for a possible one";
    if (longest() == 0)
      return collectives->empty() ? judge_sum(sum) : "it sends rows although no rank has any";
    if (collectives->size() != 2) return "it sends no row numbers, or no values";
    for (std::size_t rank = 0; rank < sent_.size(); ++rank) {
      put((*collectives)[0], rank, sent_[rank].numbers.data());
      put((*collectives)[1], rank, sent_[rank].values.data());
    }
    return judge_sum(sum);
  }

  std::string describe() const {
    std::string text = "; a parameter of " + std::to_string(rows_) + " rows";
    for (std::size_t rank = 0; rank < sent_.size(); ++rank) {
      text += "\n  rank " + std::to_string(rank) +
              (static_cast<int>(rank) == own_ ? " (itself)" : "") + " sends " +
              std::to_string(sent_[rank].count) + " rows:";
      for (const std::int64_t number : sent_[rank].numbers) text += " " + std::to_string(number);
    }
    return text;
  }

 private:
  std::uint32_t below(std::int64_t limit) {
    return chance_.below(static_cast<std::uint32_t>(limit));
  }
  std::int64_t longest() const {
    const auto found =
        std::max_element(sent_.begin(), sent_.end(), [](const Sent& one, const Sent& other) {
          return one.numbers.size() < other.numbers.size();
        });
    return static_cast<std::int64_t>(found->numbers.size());
  }

  void draw() {
    rows_ = 1 + below(5);
    width_ = 1 + below(2);
    sent_.resize(2 + below(3));
    own_ = static_cast<int>(below(static_cast<std::int64_t>(sent_.size())));
    for (Sent& each : sent_) {
      for (std::int64_t row = 0; row < rows_; ++row)
        if (below(2) == 0) each.numbers.push_back(row);
      each.count = static_cast<std::int64_t>(each.numbers.size());
    }
    const auto length = static_cast<std::size_t>(longest());
    for (Sent& each : sent_) {
      each.numbers.resize(length, kNoRow);
      for (std::size_t i = 0; i < length * static_cast<std::size_t>(width_); ++i)
        each.values.push_back(static_cast<float>(below(100)));
    }
    if (below(4) != 0) spoil();
  }

  // Makes the list of a peer one that no rank may send.
  void spoil() {
    const auto size = static_cast<std::int64_t>(sent_.size());
    if (below(8) == 0) {
      is_count_wrong_ = true;
      suspect_ = own_;
      return;
    }
    suspect_ = static_cast<int>((own_ + 1 + std::int64_t{below(size - 1)}) % size);
    Sent& peer = sent_[static_cast<std::size_t>(suspect_)];
    const auto length = static_cast<std::int64_t>(peer.numbers.size());
    if (length == 0 || below(4) == 0) {
      is_count_wrong_ = true;
      peer.count = below(2) == 0 ? rows_ + 1 : -1;
      return;
    }
    const auto place = static_cast<std::size_t>(below(length));
    std::int64_t& number = peer.numbers[place];
    if (static_cast<std::int64_t>(place) >= peer.count)
      number = below(2) == 0 ? 0 : kNoRow - 1;  // This is not the padding.
    else if (place > 0 && below(2) == 0)
      number = peer.numbers[place - 1] - below(2);  // This row was there before, or comes too late.
    else
      number = below(2) == 0 ? rows_ : kNoRow;
  }

  Tensor gradient() {
    const Sent& own = sent_[static_cast<std::size_t>(own_)];
    const std::vector<std::int64_t> rows(own.numbers.begin(), own.numbers.begin() + own.count);
    Result<Tensor> tensor =
        empty_sparse(device_, DType::kFloat32, Shape::row_major({rows_, width_}), rows);
    LOCKSTEP_CHECK(tensor.has_value());
    if (!rows.empty())
      std::memcpy(tensor->data(), own.values.data(),
                  sizeof(float) * rows.size() * static_cast<std::size_t>(width_));
    return std::move(*tensor);
  }

  static void put(const Collective& gather, std::size_t rank, const void* from) {
    const std::size_t bytes = gather.count * size_of(gather.dtype);
    if (bytes > 0) std::memcpy(gather.gathered + rank * bytes, from, bytes);
  }

  std::string judge_error(const Status& status) const {
    const Failure& failure = status.failure();
    if (suspect_ == kNone) return "it refuses rows that are right: " + status.to_string();
    if (failure.code != Code::kCorrupted || !failure.definite)
      return "it does not say that what it received was changed: " + status.to_string();
    if (failure.rank != own_ || failure.suspect != suspect_)
      return "it had to name rank " + std::to_string(own_) + ", and to suspect rank " +
             std::to_string(suspect_) + ": " + status.to_string();
    const bool names_both =
        failure.detail.find("rank " + std::to_string(own_) + " received from rank " +
                            std::to_string(suspect_)) != std::string::npos;
    return names_both ? ""
                      : "its text does not say who received what from whom: " + status.to_string();
  }

  std::string judge_sum(SparseSum& sum) const {
    const Result<Tensor> made = sum.sum();
    if (!made) return judge_error(made.error());
    if (suspect_ != kNone) return "it adds rows that no rank may send";
    std::map<std::int64_t, std::vector<float>> expected;
    const auto width = static_cast<std::size_t>(width_);
    for (const Sent& each : sent_)
      for (std::size_t i = 0; i < static_cast<std::size_t>(each.count); ++i) {
        std::vector<float>& row = expected[each.numbers[i]];
        row.resize(width);
        for (std::size_t w = 0; w < width; ++w) row[w] += each.values[i * width + w];
      }
    if (made->rows().size() != expected.size()) return "its sum has other rows";
    std::size_t at = 0;
    for (const auto& [row, values] : expected) {
      const std::size_t bytes = width * sizeof(float);
      if (made->rows()[at] != row) return "its sum has other rows";
      if (std::memcmp(made->data() + at * bytes, values.data(), bytes) != 0)
        return "its sum of row " + std::to_string(row) + " is wrong";
      ++at;
    }
    return {};
  }

  Choices& chance_;
  HostDevice device_;
  std::int64_t rows_ = 0;
  std::int64_t width_ = 0;
  int own_ = 0;
  int suspect_ = kNone;  // the rank with the wrong list, if there is one
  bool is_count_wrong_ = false;
  std::vector<Sent> sent_;  // by rank
};

}  // namespace

std::string check_rows(Choices& choices) {
  RowsCase rows(choices);
  const std::string flaw = rows.judge();
  return flaw.empty() ? flaw : flaw + rows.describe();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
