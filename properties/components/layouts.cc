// This component checks that the reducer refuses invalid layouts (B3, B5;
// reducer/bucket/layout.h): lists of buckets, a layout that belongs to other parameters, and the
// damaged text of a saved layout. In a program of a case all layouts are valid, or differ
// between ranks in one way.
#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "reducer/bucket/layout.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::uint32_t kDamages = 4;  // of each text
constexpr std::int64_t kAlignment = 64;

class LayoutCase {
 public:
  explicit LayoutCase(Choices& choices) : chance_(choices) {
    for (std::uint32_t i = 1 + chance_.below(5); i > 0; --i) infos_.push_back(draw_info());
    draw_lists();
    if (chance_.percent(50)) spoil_lists();
  }

  // Returns what is wrong, or an empty text.
  std::string judge() {
    const Result<Layout> made = layout_from_buckets(infos_, lists_);
    const bool is_valid = are_lists_valid(infos_);
    if (made.has_value() != is_valid)
      return is_valid ? "buckets that may be are refused: " + made.error().to_string()
                      : "buckets that may not be are taken";
    if (!is_valid)
      return made.error().code() == Code::kInvalidArgument ? "" : "buckets are refused otherwise";
    if (std::string flaw = flaw_of_places(*made); !flaw.empty()) return flaw;
    if (Status status = check_layout(*made, infos_); !status.ok())
      return "a layout is refused beside its own parameters: " + status.to_string();
    if (std::string flaw = flaw_beside_others(*made); !flaw.empty()) return flaw;
    if (std::string flaw = flaw_when_changed(*made); !flaw.empty()) return flaw;
    for (std::uint32_t i = 0; i < kDamages; ++i)
      if (std::string flaw = flaw_when_damaged(*made); !flaw.empty()) return flaw;
    return {};
  }

 private:
  std::uint32_t below(std::size_t limit) {
    return chance_.below(static_cast<std::uint32_t>(limit));
  }

  ParameterInfo draw_info() {
    constexpr std::array kDTypes{DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kFloat64,
                                 DType::kComplex64};
    ParameterInfo info;
    info.name = "p" + std::to_string(infos_.size());
    info.dtype = kDTypes[below(kDTypes.size())];
    info.device = chance_.percent(20) ? 1 : 0;
    info.elements = below(40);
    info.requires_grad = chance_.percent(85);
    info.sparse = chance_.percent(15);
    return info;
  }

  // Each parameter joins the last bucket that it fits into, or begins another one.
  void draw_lists() {
    for (std::size_t i = 0; i < infos_.size(); ++i) {
      if (!infos_[i].requires_grad) continue;
      const auto fits = [&](const std::vector<std::size_t>& list) {
        const ParameterInfo& first = infos_[list.front()];
        return !infos_[i].sparse && !first.sparse && first.dtype == infos_[i].dtype &&
               first.device == infos_[i].device;
      };
      const auto found = std::find_if(lists_.begin(), lists_.end(), fits);
      if (found != lists_.end() && chance_.percent(70))
        found->push_back(i);
      else
        lists_.push_back({i});
    }
  }

  void spoil_lists() {
    switch (below(4)) {
      case 0:
        return lists_.emplace_back().clear();
      case 1:
        return lists_.push_back({below(infos_.size() + 1)});
      case 2:
        if (!lists_.empty()) lists_[below(lists_.size())].push_back(below(infos_.size() + 1));
        return;
      default:
        if (!lists_.empty()) lists_[below(lists_.size())].pop_back();
    }
  }

  bool are_lists_valid(const std::vector<ParameterInfo>& infos) const {
    std::set<std::size_t> placed;
    for (const std::vector<std::size_t>& list : lists_) {
      if (list.empty()) return false;
      for (const std::size_t index : list) {
        if (index >= infos.size() || !infos[index].requires_grad || !placed.insert(index).second)
          return false;
        const ParameterInfo& first = infos[list.front()];
        if (infos[index].dtype != first.dtype || infos[index].device != first.device) return false;
        if (list.size() > 1 && infos[index].sparse) return false;
      }
    }
    const auto wanted = std::count_if(infos.begin(), infos.end(),
                                      [](const auto& info) { return info.requires_grad; });
    return placed.size() == static_cast<std::size_t>(wanted);
  }

  // A member begins where the one before it ends, rounded up to the alignment (B3).
  std::string flaw_of_places(const Layout& layout) const {
    for (std::size_t b = 0; b < lists_.size(); ++b) {
      const BucketLayout& bucket = layout.buckets[b];
      const auto size = static_cast<std::int64_t>(size_of(bucket.dtype));
      std::int64_t end = 0;
      for (std::size_t m = 0; m < lists_[b].size(); ++m) {
        const BucketMember& member = bucket.members[m];
        const ParameterInfo& info = infos_[lists_[b][m]];
        const std::int64_t begin = (end * size + kAlignment - 1) / kAlignment * kAlignment / size;
        if (member.parameter != lists_[b][m] || member.offset != begin ||
            member.elements != info.elements || bucket.dtype != info.dtype ||
            bucket.device != info.device || bucket.sparse != info.sparse)
          return "a parameter is in the wrong place of its bucket";
        end = begin + info.elements;
      }
      if (bucket.elements != end) return "a bucket does not end where its last member ends";
    }
    return {};
  }

  // Another parameter takes the place of one, which may make no difference to the layout.
  std::string flaw_beside_others(const Layout& layout) {
    std::vector<ParameterInfo> others = infos_;
    const std::uint32_t which = below(others.size());
    const std::string name = others[which].name;
    others[which] = draw_info();
    others[which].name = name;
    if (chance_.percent(15)) others.push_back(draw_info());
    const Result<Layout> theirs = layout_from_buckets(others, lists_);
    const bool is_theirs = theirs.has_value() && save(*theirs) == save(layout);
    const Status status = check_layout(layout, others);
    if (status.ok() == is_theirs) return {};
    return is_theirs ? "a layout is refused beside parameters like its own: " + status.to_string()
                     : "a layout of other parameters is taken";
  }

  std::string flaw_when_changed(Layout layout) {
    if (layout.buckets.empty()) return {};
    BucketLayout& bucket = layout.buckets[below(layout.buckets.size())];
    BucketMember& member = bucket.members[below(bucket.members.size())];
    switch (below(7)) {
      case 0:
        ++bucket.elements;
        break;
      case 1:
        ++bucket.device;
        break;
      case 2:
        bucket.dtype = bucket.dtype == DType::kFloat32 ? DType::kFloat16 : DType::kFloat32;
        break;
      case 3:
        bucket.sparse = !bucket.sparse;
        break;
      case 4:
        ++member.offset;
        break;
      case 5:
        ++member.elements;
        break;
      default:
        ++layout.hash;
    }
    return check_layout(layout, infos_).code() == Code::kInvalidArgument
               ? ""
               : "a layout that was changed is taken";
  }

  // A text that was damaged is refused, or says the same.
  std::string flaw_when_damaged(const Layout& layout) {
    const std::string saved = save(layout);
    std::string text = saved;
    const std::size_t at = below(saved.size() - 1);  // The end of the last line may be missing.
    switch (below(4)) {
      case 0:
        text[at] = "xz -:\n"[below(6)];
        break;
      case 1:
        text.insert(at, 1, "xz-:"[below(4)]);
        break;
      case 2:
        text.resize(at);
        break;
      default: {
        const std::size_t begin = saved.rfind('\n', at) + 1;  // 0 in the first line
        const std::size_t end = saved.find('\n', at) + 1;
        const std::string line = saved.substr(begin, end - begin);
        text = chance_.percent(50) ? saved.substr(0, begin) + saved.substr(end)
                                   : saved.substr(0, end) + line + saved.substr(end);
      }
    }
    // Whatever is loaded has the buckets that were saved; the limits are for the record.
    const Result<Layout> loaded = load_layout(text);
    if (loaded && without_limits(save(*loaded)) != without_limits(saved))
      return "a layout that was damaged is loaded: " + text;
    std::string other_alignment = saved;
    other_alignment[saved.find("alignment ") + std::string("alignment ").size()] = '3';
    return load_layout(other_alignment) ? "a layout of another alignment is loaded" : "";
  }

  static std::string without_limits(const std::string& text) {
    const std::size_t begin = text.find("\nlimits");
    return text.substr(0, begin) + text.substr(text.find('\n', begin + 1));
  }

  Choices& chance_;
  std::vector<ParameterInfo> infos_;
  std::vector<std::vector<std::size_t>> lists_;
};

}  // namespace

std::string check_layouts(Choices& choices) { return LayoutCase(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
