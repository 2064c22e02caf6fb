#include "benchmarks/suite.h"

#include <algorithm>
#include <utility>

#include "benchmarks/reduced.h"

namespace lockstep::benchmarks {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr const char* kFirstPass = "first_pass";
constexpr const char* kOrders = "orders";
constexpr const char* kOverlap = "overlap";

struct Order {
  const char* name;
  std::int64_t bytes;
  int repetitions;
};
constexpr Order kSizes[] = {
    {"all_reduce_4KiB", 4096, 501},
    {"all_reduce_1MiB", kMiB, 101},
    {"all_reduce_25MiB", 25 * kMiB, 25},
};

struct Buckets {
  const char* name;
  std::uint64_t bytes;  // 0: reduced after backward
};
constexpr Buckets kBuckets[] = {
    {"1 MiB", kMiB},         {"5 MiB", 5 * kMiB},   {"25 MiB", 25 * kMiB},
    {"100 MiB", 100 * kMiB}, {"after backward", 0},
};

Status add(Contenders& contenders, const Place& place, std::unique_ptr<Contender> contender) {
  LOCKSTEP_RETURN_IF_ERROR(warm_up(place, *contender));
  contenders.push_back(std::move(contender));
  return {};
}

Status add_reduced(Contenders& contenders, const Place& place, const std::string& mode,
                   const Workload& workload, ReducerOptions options, platform::Duration pace = {}) {
  auto reduced = Reduced::create(place, mode, workload, std::move(options), pace);
  if (!reduced) return reduced.error();
  return add(contenders, place, std::move(*reduced));
}

// The modes come first and the lower bounds follow, because some of these need the final buckets of
// a reducer.
const std::vector<std::string> kStepModes = {
    "copying",     "view",   "rank_ordered",   "verified", "view_tcp",
    "copying_tcp", "memory", "buckets_copied", "buckets",  "flat"};
Status add_steps(Contenders& contenders, const Place& place, const Workload& workload) {
  ReducerOptions options;
  LOCKSTEP_RETURN_IF_ERROR(add_reduced(contenders, place, "copying", workload, options));
  const auto buckets = static_cast<const Reduced&>(*contenders[0]).buckets();
  options.gradient_as_bucket_view = true;
  LOCKSTEP_RETURN_IF_ERROR(add_reduced(contenders, place, "view", workload, options));
  options.gradient_as_bucket_view = false;
  options.reduction = Reduction::kRankOrdered;
  LOCKSTEP_RETURN_IF_ERROR(add_reduced(contenders, place, "rank_ordered", workload, options));
  options.verify_payload = true;
  LOCKSTEP_RETURN_IF_ERROR(add_reduced(contenders, place, "verified", workload, options));
  const auto tcp = over_tcp(place);
  if (!tcp) return tcp.error();
  options = {};
  options.gradient_as_bucket_view = true;
  LOCKSTEP_RETURN_IF_ERROR(add_reduced(contenders, *tcp, "view_tcp", workload, options));
  options.gradient_as_bucket_view = false;
  LOCKSTEP_RETURN_IF_ERROR(add_reduced(contenders, *tcp, "copying_tcp", workload, options));
  LOCKSTEP_RETURN_IF_ERROR(
      add(contenders, place, std::make_unique<MemoryPass>(workload.elements())));
  using Copies = GroupSums::Copies;
  for (const Copies copies : {Copies::kInAndOut, Copies::kNone})
    LOCKSTEP_RETURN_IF_ERROR(
        add(contenders, place,
            std::make_unique<GroupSums>(place, buckets, Reduction::kNative, copies)));
  return add(contenders, place, std::make_unique<FlatSum>(place, workload.elements()));
}

const std::vector<std::string> kOrderModes = {"verified", "rank_ordered", "native", "flat"};
Status add_orders(Contenders& contenders, const Place& place, std::int64_t elements) {
  using enum Reduction;
  constexpr std::pair<Reduction, bool> kWays[] = {
      {kRankOrdered, true}, {kRankOrdered, false}, {kNative, false}};
  for (const auto& [reduction, verify] : kWays)
    LOCKSTEP_RETURN_IF_ERROR(
        add(contenders, place,
            std::make_unique<GroupSums>(place, std::vector<std::int64_t>{elements}, reduction,
                                        GroupSums::Copies::kNone, verify)));
  return add(contenders, place, std::make_unique<FlatSum>(place, elements));
}

// A reducer that is constructed before each step and ready for it, so that each step is its first
// one.
class FirstStep final : public Contender {
 public:
  FirstStep(const Place& place, std::string mode, const Workload& workload, ReducerOptions options)
      : place_(place), mode_(std::move(mode)), workload_(workload), options_(std::move(options)) {}
  Status prepare(const Values& values) override {
    reduced_.reset();
    const std::string prefix = mode_ + "/" + std::to_string(made_++);
    auto reduced = Reduced::create(place_, prefix, workload_, options_, {});
    if (!reduced) return reduced.error();
    reduced_ = std::move(*reduced);
    reduced_->set_backward(Backward::kArriving);
    return reduced_->prepare(values);
  }
  Status step() override { return reduced_->step(); }
  std::uint64_t wrong(const Values& values) const override { return reduced_->wrong(values); }
  float* first_result() override { return reduced_->first_result(); }

 private:
  const Place place_;
  const std::string mode_;
  const Workload workload_;
  const ReducerOptions options_;
  std::unique_ptr<Reduced> reduced_;
  int made_ = 0;
};

Status add_first_pass(Contenders& contenders, const Place& place, const Workload& workload,
                      bool views) {
  ReducerOptions options;
  options.gradient_as_bucket_view = views;
  contenders.push_back(std::make_unique<FirstStep>(place, "first", workload, options));
  auto later = Reduced::create(place, "later", workload, std::move(options));
  if (!later) return later.error();
  (*later)->set_backward(Backward::kArriving);
  return add(contenders, place, std::move(*later));
}

Status add_overlap(Contenders& contenders, const Place& place, const Workload& workload,
                   platform::Duration pace) {
  for (const Buckets& buckets : kBuckets) {
    ReducerOptions options;
    options.gradient_as_bucket_view = true;
    options.bucket_limits = {buckets.bytes};
    if (buckets.bytes == 0) options.schedule = Schedule::kAfterBackward;
    LOCKSTEP_RETURN_IF_ERROR(add_reduced(contenders, place, buckets.name, workload, options, pace));
  }
  return {};
}

// Wraps a function that adds contenders to a list as a maker for measure().
template <class Add>
MakeContenders maker(Add add_all) {
  return [add_all](const Place& place) -> Result<Contenders> {
    Contenders made;
    if (Status status = add_all(made, place); !status.ok()) return failed(std::move(status));
    return made;
  };
}

}  // namespace

std::vector<std::string> suite_parts() {
  std::vector<std::string> parts;
  for (const Workload& workload : workloads()) parts.push_back(workload.name);
  parts.insert(parts.end(), {kFirstPass, kOrders, kOverlap});
  return parts;
}

bool Suite::is_on(const std::string& part) const {
  if (choice_.only.empty()) return part != kTiny;
  return std::find(choice_.only.begin(), choice_.only.end(), part) != choice_.only.end();
}

Plan Suite::plan(int ranks, int repetitions, std::size_t contenders) const {
  return {ranks, choice_.repetitions > 0 ? choice_.repetitions : repetitions, contenders,
          choice_.spoil};
}

int Suite::run() {
  const std::vector<Workload> all = workloads();
  for (const Workload& workload : all)
    for (const int ranks : choice_.ranks)
      if (const int code = is_on(workload.name) ? steps(workload, ranks) : 0; code != 0)
        return code;
  // The workload that is closest to a real model.
  const Workload& closest = is_on(kTiny) ? all.back() : all.front();
  for (const int ranks : choice_.ranks)
    if (const int code = is_on(kFirstPass) ? first_pass(closest, ranks) : 0; code != 0) return code;
  for (const int ranks : choice_.ranks)
    if (const int code = is_on(kOrders) ? orders(ranks) : 0; code != 0) return code;
  for (const int ranks : choice_.ranks)
    if (const int code = is_on(kOverlap) ? overlap(closest, ranks) : 0; code != 0) return code;
  return 0;
}

int Suite::steps(const Workload& workload, int ranks) {
  std::vector<Summary> found;
  const int code = measure(plan(ranks, workload.repetitions, kStepModes.size()),
                           maker([&workload](Contenders& made, const Place& place) {
                             return add_steps(made, place, workload);
                           }),
                           found);
  if (code == 0) add_rows(workload.name, ranks, kStepModes, found);
  return code;
}

// These rows are compared with each other: their lower bounds are later steps.
int Suite::first_pass(const Workload& workload, int ranks) {
  for (const bool views : {false, true}) {
    std::vector<Summary> found;
    const int code = measure(plan(ranks, workload.repetitions, 2),
                             maker([&workload, views](Contenders& made, const Place& place) {
                               return add_first_pass(made, place, workload, views);
                             }),
                             found);
    if (code != 0) return code;
    const char* const mode = views ? "view" : "copying";
    add_rows(workload.name, ranks, {std::string("first_") + mode, std::string("later_") + mode},
             found);
  }
  return 0;
}

int Suite::orders(int ranks) {
  for (const Order& size : kSizes) {
    std::vector<Summary> found;
    const std::int64_t elements = size.bytes / 4;
    const int code = measure(plan(ranks, size.repetitions, kOrderModes.size()),
                             maker([elements](Contenders& made, const Place& place) {
                               return add_orders(made, place, elements);
                             }),
                             found);
    if (code != 0) return code;
    add_rows(size.name, ranks, kOrderModes, found);
  }
  return 0;
}

int Suite::overlap(const Workload& workload, int ranks) {
  std::vector<Summary> found;
  int code =
      measure(plan(ranks, 5, 1), maker([&workload](Contenders& made, const Place& place) {
                return add(made, place, std::make_unique<FlatSum>(place, workload.elements()));
              }),
              found);
  if (code != 0) return code;
  const double backward_ms = found[0].ms;
  const auto pace = std::chrono::duration_cast<platform::Duration>(
      std::chrono::duration<double, std::milli>(backward_ms));
  code = measure(plan(ranks, 9, std::size(kBuckets)),
                 maker([&workload, pace](Contenders& made, const Place& place) {
                   return add_overlap(made, place, workload, pace);
                 }),
                 found);
  if (code != 0) return code;
  std::vector<OverlapRow> rows;
  for (std::size_t i = 0; i < found.size(); ++i)
    rows.push_back({workload.name, ranks, kBuckets[i].name,
                    static_cast<std::int64_t>(kBuckets[i].bytes), backward_ms,
                    found[i].launch_delay_us, found[i].exposed_ms, found[i].wrong});
  report_.add(rows);
  return 0;
}

// `times_flat` compares with the last contender, `times_floor` with the faster of the last two.
void Suite::add_rows(const std::string& workload, int ranks, const std::vector<std::string>& modes,
                     const std::vector<Summary>& found) {
  const double flat = found.back().ms;
  const double floor = std::min(flat, found[found.size() - 2].ms);
  std::vector<Row> rows;
  for (std::size_t i = found.size(); i-- > 0;)
    rows.push_back({workload, ranks, modes[i], found[i].ms, found[i].ms / flat, found[i].ms / floor,
                    found[i].cpu_ms, found[i].wrong, modes.back(), found[i].each_ms});
  report_.add(rows);
}

}  // namespace lockstep::benchmarks
