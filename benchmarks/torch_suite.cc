#include "benchmarks/torch_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "benchmarks/origin.h"
#include "benchmarks/reduced.h"
#include "benchmarks/torch_side.h"

namespace lockstep::benchmarks {
namespace {

// A row: how both are driven, and with which options torch's reducer is made.
struct Mode {
  std::string name;
  Backward backward;
  TorchOptions options;
};

constexpr const char* kChain = "chain";  // the last row

// Behind the contenders of the modes, two for each, come these.
enum Further : std::size_t { kOurChain, kTorchChain, kSumsWithCopies, kSums, kFurther };

std::vector<Mode> modes_of(const TorchSide& torch) {
  std::vector<Mode> modes;
  for (const Backward backward : {Backward::kHooks, Backward::kChain})
    for (const bool batched : {false, true})
      for (const bool views : {false, true}) {
        if (batched && !torch.has_batched) continue;
        const std::string name = views ? "view" : "copying";
        const std::string end = backward == Backward::kChain ? "_chain" : "";
        modes.push_back({name + (batched ? "_batched" : "") + end, backward, {views, batched}});
      }
  return modes;
}

// A reducer that is measured with two kinds of backward is one reducer and two contenders.
template <class Reducing>
class Driven final : public Contender {
 public:
  Driven(std::shared_ptr<Reducing> reducing, Backward backward)
      : reducing_(std::move(reducing)), backward_(backward) {}
  Status prepare(const Values& values) override {
    reducing_->set_backward(backward_);
    return reducing_->prepare(values);
  }
  Status step() override { return reducing_->step(); }
  std::uint64_t wrong(const Values& values) const override { return reducing_->wrong(values); }
  float* first_result() override { return reducing_->first_result(); }

 private:
  const std::shared_ptr<Reducing> reducing_;
  const Backward backward_;
};

Status add(Contenders& contenders, const Place& place, std::unique_ptr<Contender> contender) {
  LOCKSTEP_RETURN_IF_ERROR(warm_up(place, *contender));
  contenders.push_back(std::move(contender));
  return {};
}

// The reducers of one place, each made when the first mode needs it.
class Reducers {
 public:
  Reducers(const TorchSide& torch, const Place& place, const Workload& workload)
      : torch_(torch), place_(place), workload_(workload) {}

  Status add_pair(Contenders& made, const Mode& mode) {
    LOCKSTEP_RETURN_IF_ERROR(make(mode.options));
    const bool views = mode.options.views;
    LOCKSTEP_RETURN_IF_ERROR(
        add(made, place_, std::make_unique<Driven<Reduced>>(ours_[views], mode.backward)));
    return add(made, place_,
               std::make_unique<Driven<TorchReducing>>(theirs_[views][mode.options.batched],
                                                       mode.backward));
  }

  // The all-reduces of the final buckets of a reducer, and nothing else.
  Status add_sums(Contenders& made, GroupSums::Copies copies) {
    LOCKSTEP_RETURN_IF_ERROR(make({}));
    return add(
        made, place_,
        std::make_unique<GroupSums>(place_, ours_[false]->buckets(), Reduction::kNative, copies));
  }

 private:
  Status make(TorchOptions options) {
    const std::string name = options.views ? "view" : "copying";
    std::shared_ptr<Reduced>& ours = ours_[options.views];
    if (!ours) {
      ReducerOptions own;
      own.gradient_as_bucket_view = options.views;
      auto created = Reduced::create(place_, name, workload_, std::move(own));
      if (!created) return created.error();
      ours = std::move(*created);
    }
    std::shared_ptr<TorchReducing>& theirs = theirs_[options.views][options.batched];
    if (theirs) return {};
    const std::string prefix = options.batched ? "torch_batched_" : "torch_";
    auto created = torch_.create(place_, prefix + name, workload_, options);
    if (!created) return created.error();
    theirs = std::move(*created);
    return {};
  }

  const TorchSide& torch_;
  const Place& place_;
  const Workload& workload_;
  std::shared_ptr<Reduced> ours_[2];             // with views or not
  std::shared_ptr<TorchReducing> theirs_[2][2];  // and with batched_grad_copy or not
};

Result<Contenders> make_pairs(const TorchSide& torch, const Place& place,
                              const Workload& workload) {
  torch.prepare();
  Contenders made;
  Reducers reducers(torch, place, workload);
  for (const Mode& mode : modes_of(torch))
    if (const Status status = reducers.add_pair(made, mode); !status.ok()) return failed(status);
  Status status = add(made, place, std::make_unique<BareChain>(workload));
  if (status.ok()) status = add(made, place, torch.bare_chain(workload));
  if (status.ok()) status = reducers.add_sums(made, GroupSums::Copies::kInAndOut);
  if (status.ok()) status = reducers.add_sums(made, GroupSums::Copies::kNone);
  if (!status.ok()) return failed(status);
  return made;
}

double median_ratio(const Summary& ours, const Summary& theirs) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.each_ms.size(); ++i)
    ratios.push_back(ours.each_ms[i] / theirs.each_ms[i]);
  return median(std::move(ratios));
}

// More digits than the clock and the machine can measure would only look exact.
double rounded(double value) { return std::round(value * 1e4) / 1e4; }

void print(const TorchRow& row) {
  std::printf("%-12s %5d  %-21s %9.3f %9.3f %11.3f %9.3f %9s %10.3f %12.3f %6llu\n",
              row.workload.c_str(), row.ranks, row.mode.c_str(), row.ms, row.torch_ms,
              row.times_torch, row.times_torch_net,
              row.floor == 0 ? "-" : fmt::format("{:.3f}", row.floor).c_str(), row.cpu_ms,
              row.torch_cpu_ms, static_cast<unsigned long long>(row.wrong));
}

}  // namespace

std::vector<std::string> torch_suite_parts() {
  std::vector<std::string> parts;
  for (const Workload& workload : workloads()) parts.push_back(workload.name);
  return parts;
}

int TorchSuite::run() {
  const Result<const TorchSide*> loaded = load_torch_side(choice_.library);
  if (!loaded) return complain(loaded.error().failure().detail);
  torch_ = *loaded;
  std::printf("PyTorch %s\n", torch_->version);
  for (const Workload& workload : workloads()) {
    const auto& only = choice_.only;
    const bool is_on = only.empty()
                           ? workload.name != kTiny
                           : std::find(only.begin(), only.end(), workload.name) != only.end();
    for (const int ranks : choice_.ranks)
      if (const int code = is_on ? compare(workload, ranks) : 0; code != 0) return code;
  }
  return 0;
}

int TorchSuite::compare(const Workload& workload, int ranks) {
  std::vector<Summary> found;
  const int repetitions = choice_.repetitions > 0 ? choice_.repetitions : workload.repetitions;
  const int code = measure(
      {ranks, repetitions, 2 * modes_of(*torch_).size() + kFurther, choice_.spoil},
      [&](const Place& place) { return make_pairs(*torch_, place, workload); }, found);
  if (code == 0) add_rows(workload.name, ranks, found);
  return code;
}

void TorchSuite::add_rows(const std::string& workload, int ranks,
                          const std::vector<Summary>& found) {
  if (rows_.empty())
    std::printf("%-12s %5s  %-21s %9s %9s %11s %9s %9s %10s %12s %6s\n", "workload", "ranks",
                "mode", "ms", "torch_ms", "times_torch", "net", "floor", "cpu_ms", "torch_cpu_ms",
                "wrong");
  const std::vector<Mode> modes = modes_of(*torch_);
  const Summary* const further = &found[2 * modes.size()];
  const Summary& chain = further[kOurChain];
  const Summary& torch_chain = further[kTorchChain];
  for (std::size_t i = 0; i <= modes.size(); ++i) {
    const Summary& ours = found[2 * i];
    const Summary& theirs = found[2 * i + 1];
    TorchRow row{workload,
                 ranks,
                 i < modes.size() ? modes[i].name : kChain,
                 ours.ms,
                 theirs.ms,
                 0,
                 0,
                 0,
                 ours.cpu_ms,
                 theirs.cpu_ms,
                 ours.wrong + theirs.wrong,
                 ours.each_ms,
                 theirs.each_ms};
    row.times_torch = row.times_torch_net = median_ratio(ours, theirs);
    const bool has_chain = i < modes.size() && modes[i].backward == Backward::kChain;
    if (has_chain) row.times_torch_net = (ours.ms - chain.ms) / (theirs.ms - torch_chain.ms);
    if (i < modes.size() && !has_chain) {
      const Summary& sums = further[modes[i].options.views ? kSums : kSumsWithCopies];
      row.floor = median_ratio(sums, theirs);
      if (!modes[i].options.batched) row.wrong += sums.wrong;
    }
    print(row);
    rows_.push_back(std::move(row));
  }
  std::fflush(stdout);
}

std::uint64_t TorchSuite::wrong() const {
  std::uint64_t wrong = 0;
  for (const TorchRow& row : rows_) wrong += row.wrong;
  return wrong;
}

std::string TorchSuite::to_json() const {
  using nlohmann::ordered_json;
  ordered_json rows = ordered_json::array();
  for (const TorchRow& row : rows_)
    rows.push_back({{"workload", row.workload},
                    {"ranks", row.ranks},
                    {"mode", row.mode},
                    {"ms", rounded(row.ms)},
                    {"torch_ms", rounded(row.torch_ms)},
                    {"times_torch", rounded(row.times_torch)},
                    {"times_torch_net", rounded(row.times_torch_net)},
                    {"floor", row.floor == 0 ? ordered_json() : ordered_json(rounded(row.floor))},
                    {"cpu_ms", rounded(row.cpu_ms)},
                    {"torch_cpu_ms", rounded(row.torch_cpu_ms)},
                    {"each_ms", row.each_ms},
                    {"torch_each_ms", row.torch_each_ms},
                    {"wrong", row.wrong}});
  ordered_json out = origin_json("torch", choice_.commit);
  out["torch"] = torch_ == nullptr ? "" : torch_->version;
  out["rows"] = rows;
  return out.dump(1) + "\n";
}

}  // namespace lockstep::benchmarks
