// This component checks that ranks name the rank that really stopped them (F2;
// reducer/failure_board.h). Chance draws the truth: which rank of a ring fails, and how. The
// reports follow from it, as each rank reports what it saw: it lost the connection to the rank
// before it, or waited for that rank, or heard from it that the group ends. The answer is judged
// by the truth alone.
#include <map>
#include <memory>
#include <string>

#include "properties/components/checks.h"
#include "reducer/comm/process_group.h"
#include "reducer/comm/store.h"
#include "reducer/failure_board.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

class FailureCause {
 public:
  explicit FailureCause(Choices& choices) : chance_(choices) {
    how_ = static_cast<How>(chance_.below(kHows));
    size_ = static_cast<int>(chance_.between(2, 6));
    culprit_ = static_cast<int>(chance_.below(static_cast<std::uint32_t>(size_)));
    draw_reports();
  }

  // Returns what is wrong, or an empty text.
  std::string judge() const {
    const auto store = std::make_shared<HashStore>();
    for (const auto& [rank, report] : reports_) FailureBoard(store, rank, size_).publish(report);
    const Failure* first = nullptr;
    std::map<int, Failure> raised;
    for (const auto& [rank, report] : reports_) {
      raised[rank] = FailureBoard(store, rank, size_).settle(report, platform::Duration(0));
      const Failure& each = raised[rank];
      if (!is_named(each)) return wrong("does not name it", rank, each);
      if (first != nullptr && (first->rank != each.rank || first->suspect != each.suspect))
        return wrong("names another rank than those before it", rank, each);
      first = &each;
    }
    return {};
  }

 private:
  enum class How : std::uint8_t {
    kErrs,     // it has an error of its own
    kGone,     // its connections close
    kHangs,    // it says nothing any more
    kStalls,   // it comes back when the others have given up
    kUnlinked  // its link to the next rank breaks
  };
  static constexpr std::uint32_t kHows = 5;

  int after(int rank) const { return (rank + 1) % size_; }
  int before(int rank) const { return (rank + size_ - 1) % size_; }

  static Failure report(Code code, int rank, int suspect) {
    Failure failure;
    failure.code = code;
    failure.rank = rank;
    failure.suspect = suspect;
    failure.pass = 3;
    failure.sequence = 8;
    failure.collective = "all_reduce";
    failure.detail = "what it saw";
    return failure;
  }

  // What a rank tells that got nothing more from the one before it.
  Failure seen_by(int rank) {
    const int from = before(rank);
    switch (chance_.below(3)) {
      case 0:
        return report(Code::kPeerLost, from, from);
      case 1:
        return report(Code::kTimeout, rank, from);
      default:
        return report(Code::kAborted, from, from);
    }
  }

  // The rank behind the culprit knows it best; it closes its own connections, and so on.
  void draw_reports() {
    const int next = after(culprit_);
    for (int rank = after(next); rank != culprit_ && rank != next; rank = after(rank))
      reports_[rank] = seen_by(rank);
    switch (how_) {
      case How::kErrs:
        reports_[culprit_] = report(Code::kUserFailure, culprit_, kNone);
        reports_[culprit_].definite = true;
        reports_[next] = seen_by(next);
        break;
      case How::kGone:
        reports_[next] = report(Code::kPeerLost, culprit_, culprit_);
        if (chance_.percent(50))
          reports_[before(culprit_)] = report(Code::kPeerLost, culprit_, culprit_);
        break;
      case How::kHangs:
        reports_[next] = report(Code::kTimeout, next, culprit_);
        break;
      case How::kStalls:
        reports_[next] = report(Code::kTimeout, next, culprit_);
        reports_[culprit_] = chance_.percent(50) ? report(Code::kAborted, next, next)
                                                 : report(Code::kTimeout, kNone, kNone);
        break;
      case How::kUnlinked:
        reports_[culprit_] = report(Code::kTransport, kNone, next);
        reports_[next] = report(Code::kTransport, kNone, culprit_);
        break;
    }
  }

  bool is_named(const Failure& raised) const {
    if (how_ == How::kErrs) return raised.rank == culprit_ && raised.suspect == kNone;
    const bool is_end = how_ == How::kUnlinked && raised.suspect == after(culprit_);
    return raised.suspect == culprit_ || is_end;
  }

  std::string wrong(const std::string& what, int rank, const Failure& raised) const {
    constexpr const char* kWords[] = {"has an error of its own", "is gone", "hangs", "stalls",
                                      "has lost its link to the next one"};
    std::string text = "rank " + std::to_string(culprit_) + " of " + std::to_string(size_) + " " +
                       kWords[static_cast<std::size_t>(how_)] + ", and rank " +
                       std::to_string(rank) + " " + what + ": " + raised.to_string();
    for (const auto& [each, its] : reports_)
      text += "\n  rank " + std::to_string(each) + " reported: " + its.to_string();
    return text;
  }

  Choices& chance_;
  How how_ = How::kErrs;
  int size_ = 2;
  int culprit_ = 0;
  std::map<int, Failure> reports_;
};

}  // namespace

std::string check_failure_cause(Choices& choices) { return FailureCause(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
