#include "benchmarks/torch_suite.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "benchmarks/origin.h"
#include "benchmarks/reduced.h"
#include "benchmarks/torch_reduced.h"

namespace lockstep::benchmarks {
namespace {

// The modes are in the order in which add_pairs() adds them: first ours, then torch's. The last one
// is the chain alone.
constexpr const char* kModes[] = {"copying", "view", "copying_chain", "view_chain", "chain"};
constexpr std::size_t kPairs = std::size(kModes);

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

Result<Contenders> make_pairs(const Place& place, const Workload& workload) {
  prepare_torch();
  std::shared_ptr<Reduced> ours[2];
  std::shared_ptr<TorchReduced> theirs[2];
  for (const int views : {0, 1}) {
    ReducerOptions options;
    options.gradient_as_bucket_view = views == 1;
    auto made = Reduced::create(place, kModes[views], workload, std::move(options));
    if (!made) return failed(made.error());
    ours[views] = std::move(*made);
    auto torch =
        TorchReduced::create(place, std::string("torch_") + kModes[views], workload, views == 1);
    if (!torch) return failed(torch.error());
    theirs[views] = std::move(*torch);
  }
  Contenders made;
  const auto add_pair = [&](auto ours_of, auto theirs_of) {
    const Status status = add(made, place, std::move(ours_of));
    return status.ok() ? add(made, place, std::move(theirs_of)) : status;
  };
  for (const Backward backward : {Backward::kHooks, Backward::kChain})
    for (const int views : {0, 1})
      if (const Status status =
              add_pair(std::make_unique<Driven<Reduced>>(ours[views], backward),
                       std::make_unique<Driven<TorchReduced>>(theirs[views], backward));
          !status.ok())
        return failed(status);
  if (const Status status = add_pair(std::make_unique<BareChain>(workload),
                                     std::make_unique<TorchBareChain>(workload));
      !status.ok())
    return failed(status);
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
  std::printf("%-12s %5d  %-13s %9.3f %9.3f %11.3f %9.3f %10.3f %12.3f %6llu\n",
              row.workload.c_str(), row.ranks, row.mode.c_str(), row.ms, row.torch_ms,
              row.times_torch, row.times_torch_net, row.cpu_ms, row.torch_cpu_ms,
              static_cast<unsigned long long>(row.wrong));
}

}  // namespace

std::vector<std::string> torch_suite_parts() {
  std::vector<std::string> parts;
  for (const Workload& workload : workloads()) parts.push_back(workload.name);
  return parts;
}

int TorchSuite::run() {
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
      {ranks, repetitions, 2 * kPairs, choice_.spoil},
      [&workload](const Place& place) { return make_pairs(place, workload); }, found);
  if (code == 0) add_rows(workload.name, ranks, found);
  return code;
}

void TorchSuite::add_rows(const std::string& workload, int ranks,
                          const std::vector<Summary>& found) {
  if (rows_.empty())
    std::printf("%-12s %5s  %-13s %9s %9s %11s %9s %10s %12s %6s\n", "workload", "ranks", "mode",
                "ms", "torch_ms", "times_torch", "net", "cpu_ms", "torch_cpu_ms", "wrong");
  const Summary& chain = found[2 * kPairs - 2];
  const Summary& torch_chain = found[2 * kPairs - 1];
  for (std::size_t i = 0; i < kPairs; ++i) {
    const Summary& ours = found[2 * i];
    const Summary& theirs = found[2 * i + 1];
    TorchRow row{workload,
                 ranks,
                 kModes[i],
                 ours.ms,
                 theirs.ms,
                 0,
                 0,
                 ours.cpu_ms,
                 theirs.cpu_ms,
                 ours.wrong + theirs.wrong,
                 ours.each_ms,
                 theirs.each_ms};
    row.times_torch = row.times_torch_net = median_ratio(ours, theirs);
    const bool has_chain = i >= 2 && i + 1 < kPairs;
    if (has_chain) row.times_torch_net = (ours.ms - chain.ms) / (theirs.ms - torch_chain.ms);
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
                    {"cpu_ms", rounded(row.cpu_ms)},
                    {"torch_cpu_ms", rounded(row.torch_cpu_ms)},
                    {"each_ms", row.each_ms},
                    {"torch_each_ms", row.torch_each_ms},
                    {"wrong", row.wrong}});
  ordered_json out = origin_json("torch", choice_.commit);
  out["rows"] = rows;
  return out.dump(1) + "\n";
}

}  // namespace lockstep::benchmarks
