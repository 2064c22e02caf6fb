#include "properties/generate/feature_table.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <type_traits>

#include "properties/case/fields.h"
#include "properties/generate/features.h"
#include "reducer/base/check.h"
#include "reference/exclusions.h"

namespace lockstep::properties {
namespace {

namespace with = fields::with;

// Features that FeatureCollector finds, beside those of rows.
constexpr const char* kFound[] = {
    "4 steps or more",
    "1 to 3 steps",
    "ranks 1",
    "ranks 2",
    "ranks 3",
    "ranks 4",
    "5 to 8 ranks",
    "buckets rebuilt",
    "buckets rebuilt, gradients as views that are kept",
    "buckets rebuilt in a step whose outputs are dropped",
    "hook allreduce",
    "hook fp16",
    "hook bf16",
    "hook elsewhere",
    "hook power_sgd",
    "power_sgd: a matrix, 2 synced steps or more",
    "power_sgd: a bucket of matrices and others",
    "power_sgd: a matrix, buckets rebuilt",
    "hook: compresses a dtype",
    "hook: leaves a dtype as it is",
    "hook: buckets rebuilt",
    "hook: a result elsewhere, gradients as views, 3 synced steps or more",
    "hook: futures of several buckets complete in reversed order",
    "hook: it fails when it is started",
    "hook: its future fails",
    "hook: it fails when it finishes",
    "after backward, on the first group",
    "dtype complex64, a sparse parameter",
    "dtype complex64, column-major",
    "mixed dtypes",
    "frozen parameter before one that trains",
    "last parameter frozen, with a dtype of its own",
    "zero-size parameter",
    "one-element parameter",
    "W elements",
    "2W-1 or 2W+1 elements",
    "one element more or less than 64 bytes",
    "more than 100 elements",
    "column-major parameter",
    "row-major gradient of a column-major parameter",
    "a bucket for each parameter",
    "one bucket for several parameters",
    "several buckets of several parameters",
    "three bucket limits, and as many buckets",
    "no_grad forward on one rank alone",
    "an absent rank that does nothing",
    "an absent rank that drops all outputs",
    "an absent rank under no_sync",
    "a parameter unused on some ranks",
    "a parameter unused on all ranks",
    "nothing used on any rank",
    "all parameters unused on one rank",
    "synced outputs dropped on all ranks",
    "one more forward, dropped, on some ranks",
    "no_sync outputs dropped on some ranks",
    "zero_grad to none after no_sync",
    "zero_grad to zeros after no_sync",
    "window kept up to its synced step",
    "gradients replaced after no_sync",
    "gradients swapped after no_sync",
    "accumulation over 3 steps or more",
    "a parameter used in no_sync alone",
    "rank-asymmetric graph",
    "zero scale",
    "nested backward in a synced pass",
    "nested backward in a no_sync pass",
    "nested backward in a nested one",
    "several forwards of one synced pass",
    "several backwards of one synced pass",
    "several uses of a parameter in one pass",
    "an output that the loss does not reach",
    "an output without a graph",
    "outputs held past the next step",
    "legal disjoint losses",
    "error: incomplete (P5)",
    "error: incomplete (P5), though outputs are left",
    "error: ready twice (P6)",
    "error: second backward (P7)",
    "error: not the graph of the first pass (P11)",
    "error: usage changed (P11)",
    "error: gradient requires grad (P16)",
    "sparse parameter",
    "sparse parameter, 2 ranks or more",
    "sparse parameters alone",
    "sparse parameters and others",
    "sparse: a pass with rows",
    "sparse: a pass without rows",
    "sparse: a rank without rows in a pass that has some",
    "sparse: a shared parameter",
    "sparse: an ignored parameter",
    "static: several hooks of a parameter in one pass",
    "static: other parameters used on other ranks",
    "static: the first pass leaves outputs",
    "static: a later pass of several backwards",
    "legal static program, 2 synced steps or more",
    "views: gradients kept until the next synced step",
    "views: gradients filled with zeros until the next synced step",
    "views: gradients replaced before a synced step",
    "views: gradients swapped before a synced step",
    "views: no_sync adds to a view",
    "views: a stale gradient that no rank uses",
    "ignored parameter",
    "ignored parameter, and another that is reduced",
    "buffers in several chunks",
    "several buffers in one chunk",
    "buffers on two devices",
    "buffers broadcast at construction alone",
    "buffers broadcast before a local pass",
    "buffers not broadcast inside of a window",
    "uneven inputs",
    "uneven inputs, the mean over all ranks",
    "uneven inputs, the mean over those that train",
    "a rank without any input",
    "uneven inputs, rank 0 out first",
    "uneven inputs, buffers broadcast when rank 0 is out",
    "uneven inputs, early termination",
    "an error of its own",
    "ranks leave at once, no elements in the last bucket",
    "legal program",
    "verified, a payload is changed",
    "verified, a payload is changed, and nothing else goes wrong",
    "verified, a payload is changed twice",
    "verified, buffers that are changed on their way",
    "replicas",
    "replicas on two devices",
    "three replicas",
    "replicas, and a parameter that one has alone",
    "replicas, buffers of each",
    "two reducers",
    "two reducers on one group, after backward",
    "two reducers on one group, overlapped",
    "two groups of ranks, of 2 ranks or more each",
    "two groups of ranks, of different sizes",
    "a reducer after another, gradients kept",
    "a second join",
    "uneven inputs, a fault of a rank that has none",
    "replicas, a shared parameter",
    "replicas, a column-major parameter",
    "a disagreement at the construction",
    "a disagreement at a reset",
    "a disagreement: two ranks differ",
    "a disagreement: a rank refuses",
    "a pause of a second or more",
    "no fault",
    "benign faults alone",
    "a fault that ends a step",
    "several faults",
    "fault in the first bucket",
    "fault in the last bucket",
    "9 to 16 ranks",
    "13 parameters or more",
    "33 parameters or more",
    "257 parameters or more",
    "13 buckets or more",
    "257 buckets or more",
    "values largest, up to the largest finite one",
    "values largest, some doublings below",
    "permuted dimensions, a row-major gradient",
    "a gradient with gaps",
    "a forward under no_sync in a synced step",
    "a backward between two forwards",
    "a local backward before the pass",
    "a local backward after one of the pass",
    "a backward of outputs of the pass and of others",
    "zero_grad between a forward and its backward",
    "a forward without gradients between a forward and its backward",
    "a forward without gradients between two backwards",
    "an optimizer step before a backward",
    "outputs dropped between two backwards",
    "a backward of outputs of the step before",
    "a backward of outputs of the step before, amid those of a pass",
    "a second backward in the step after that of its pass",
};

using reference::Program;

// The features that rows and the table below are paired with.
struct Partner {
  fields::Pairs bit;
  const char* feature;
  const char* text;  // it follows the name of the other feature
  // Makes a program have the feature, if that is an option: what the program excludes then is not
  // counted in pairs with the feature.
  void (*choose)(Program&) = [](Program&) {};
};
constexpr Partner kPartners[] = {
    {with::kLocalPasses, "window kept up to its synced step", ": local passes before"},
    {with::kDynamic, "mode dynamic", " in dynamic mode"},
    {with::kStatic, "mode static", " in static mode"},
    {with::kViews, "gradients as views", ", gradients as views"},
    {with::kRebuilt, "buckets rebuilt", ", buckets rebuilt"},
    {with::kHook, "a hook", ", a hook"},
    {with::kAfterBackward, "after backward", ", after backward"},
    {with::kManualSync, "manual sync", ", manual sync"},
    {with::kUneven, "uneven inputs", ", uneven inputs",
     [](Program& p) { p.options.join = reference::Join::kByAll; }},
    {with::kNested, "nested backward in a synced pass", ", a nested backward"},
    {with::kError, "an error of its own", ", an error of its own"},
    {with::kFault, "a fault that ends a step", ", a fault that ends a step"},
    {with::kPinned, "pinned layout", ", a pinned layout"},
    {with::kSparse, "sparse parameter", ", a sparse parameter"},
    {with::kBuffers, "buffers", ", buffers"},
    {with::kReplicas, "replicas", ", replicas"},
    {with::kVerified, "verified", ", verified"},
    {with::kValues, "values of parameters", ", values of parameters"},
    {with::kSeveralBuckets, "several buckets", ", several buckets"},
    {with::kForwards, "several forwards of one synced pass", ", several forwards of one pass"},
    {with::kBackwards, "several backwards of one synced pass", ", several backwards of one pass"},
    {with::kAskedRebuild, "a rebuild asked for", ", a rebuild asked for"},
};

// Features that are no single values of options, and what they are paired with.
struct Way {
  const char* feature;
  fields::Pairs pairs;
  bool (*excluded)(const Program&) = [](const Program&) { return false; };
};
constexpr Way kWays[] = {
    {"buckets rebuilt", with::kModes},
    {"hook", with::kModes},
    {"dtype complex64", with::kHook | with::kViews},
    {"sparse", with::kEveryWay | with::kPinned},
    {"ignored parameter", with::kModes | with::kPinned | with::kSeveralBuckets},
    {"uneven inputs", with::kModes | with::kViews | with::kRebuilt | with::kBuffers |
                          with::kValues | with::kHook | with::kAfterBackward | with::kManualSync |
                          with::kError | with::kFault},
    {"a forward under no_sync in a synced step",
     with::kModes | with::kViews | with::kRebuilt | with::kHook | with::kUneven | with::kError},
    {"a second join", with::kStatic | with::kBuffers},
    {"replicas", with::kEveryWay | with::kSparse | with::kValues},
    {"two reducers",
     with::kEveryWay | with::kSparse | with::kPinned | with::kBuffers | with::kReplicas |
         with::kVerified,
     [](const Program& p) { return is_excluded(&reference::Parameter::reducer, p); }},
};

// Further pairs, with names of their own.
constexpr const char* kFurtherPairs[][3] = {
    {"manual sync after local passes", "manual sync", "window kept up to its synced step"},
    {"manual sync, a forward dropped", "manual sync", "one more forward, dropped, on some ranks"},
    {"manual sync, and a step whose outputs are dropped", "manual sync",
     "synced outputs dropped on all ranks"},
    {"pinned layout, several buckets of several parameters", "pinned layout",
     "several buckets of several parameters"},
    {"pinned layout, mixed dtypes", "pinned layout", "mixed dtypes"},
    {"pinned layout, a shared parameter", "pinned layout", "shared parameter"},
    {"pinned layout, a frozen parameter", "pinned layout", "frozen parameter"},
    {"after backward, local passes before", "after backward", "window kept up to its synced step"},
    {"buffers, a forward without gradients", "buffers", "step no_grad"},
    {"uneven inputs, local passes", "uneven inputs", "step no_sync"},
    {"on a GPU, sparse gradients", "on a GPU", "sparse parameter"},
    {"on a GPU, in the order of ranks", "on a GPU", "order rank"},
    {"two reducers, two groups of ranks", "two reducers", "two groups of ranks"},
    {"two reducers, 3 ranks or more", "two reducers", "3 ranks or more"},
    {"verified, 3 ranks or more", "verified", "3 ranks or more"},
    {"hook: gradients as views", "hook", "gradients as views"},
    {"legal nested backward, synced", "legal program", "nested backward in a synced pass"},
    {"a gradient with gaps, permuted dimensions", "a gradient with gaps", "permuted dimensions"},
};

class TableMaker {
 public:
  FeatureTable make() {
    std::apply([this](const auto&... record) { (add_record(record), ...); }, fields::Records());
    for (const char* name : kFound) table_.names.emplace_back(name);
    for (const Way& way : kWays) add_pairs(way.feature, way.pairs, way.excluded);
    for (const auto& [name, first, second] : kFurtherPairs) add_pair(name, first, second);
    LOCKSTEP_CHECK_LE(table_.names.size(), kMaxFeatures);
    return std::move(table_);
  }

 private:
  void add_pair(const std::string& name, const char* first, const char* second) {
    table_.pairs.push_back({table_.names.size(), first, second});
    table_.names.push_back(name);
  }
  template <typename Excluded>
  void add_pairs(const char* way, fields::Pairs pairs, const Excluded& excluded) {
    for (const Partner& partner : kPartners) {
      Program program;
      partner.choose(program);
      if ((pairs & partner.bit) != 0 && !excluded(program))
        add_pair(std::string(way) + partner.text, way, partner.feature);
    }
  }
  template <typename Record>
  void add_record(const Record& record) {
    fields::for_each<Record>([&](const auto& field) {
      const fields::Row& row = field.row;
      if (row.feature != nullptr) {
        table_.names.emplace_back(row.feature);
        add_pairs(row.feature, row.pairs, [&](const Program& program) {
          if constexpr (requires { field.member; }) return is_excluded(field.member, program);
          return false;
        });
      }
      using T = std::remove_cvref_t<decltype(field.get(record))>;
      if constexpr (std::is_enum_v<T>) {
        for (const fields::Value& each : fields::Values<T>::list) {
          if (each.feature != nullptr) table_.names.emplace_back(each.feature);
          if (row.each != nullptr) table_.names.push_back(std::string(row.each) + each.name);
        }
      }
    });
  }

  FeatureTable table_;
};

}  // namespace

const FeatureTable& feature_table() {
  static const FeatureTable table = TableMaker().make();
  return table;
}

std::size_t feature_count() { return feature_table().names.size(); }

const char* feature_name(std::size_t index) { return feature_table().names[index].c_str(); }

bool is_pair_of_features(std::size_t index) {
  const std::vector<FeatureTable::Pair>& pairs = feature_table().pairs;
  return std::any_of(pairs.begin(), pairs.end(),
                     [index](const FeatureTable::Pair& pair) { return pair.index == index; });
}

}  // namespace lockstep::properties
