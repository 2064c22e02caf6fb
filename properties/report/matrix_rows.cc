#include "properties/report/matrix_rows.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "properties/generate/features.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

using faults::Kind;

// A case belongs to the row if it has one of the features (generate/features.h), or a fault of one
// of the kinds. Without either, every case does.
struct Row {
  const char* label;
  std::vector<const char*> features;
  std::vector<Kind> faults = {};
};

std::vector<Row> mode_rows() {
  return {
      {"all generated cases", {}},
      {"plain mode", {"mode plain"}},
      {"dynamic mode", {"mode dynamic"}},
      {"static mode", {"mode static"}},
      {"gradients as bucket views", {"gradients as views"}},
      {"several buckets", {"a bucket for each parameter", "several buckets of several parameters"}},
      {"3 ranks or more", {"ranks 3", "ranks 4", "5 to 8 ranks", "9 to 16 ranks"}},
      {"values whose sums are exact", {"values exact"}},
      {"values whose sums are rounded", {"values general", "values special", "values largest"}},
      {"float16 or bfloat16", {"dtype float16", "dtype bfloat16"}},
      {"complex numbers", {"dtype complex64"}},
      {"column-major, or gradients with gaps",
       {"column-major parameter", "permuted dimensions", "a gradient with gaps"}},
  };
}

std::vector<Row> feature_rows() {
  return {
      {"local passes (no_sync)", {"step no_sync"}},
      {"forwards without gradients", {"step no_grad"}},
      {"several forwards or backwards in a pass",
       {"several forwards of one synced pass", "several backwards of one synced pass"}},
      {"interleaved forwards and backwards",
       {"a forward under no_sync in a synced step", "a backward between two forwards"}},
      {"outputs that are dropped",
       {"synced outputs dropped on all ranks", "one more forward, dropped, on some ranks",
        "no_sync outputs dropped on some ranks"}},
      {"checkpoints (nested backward)", {"node checkpoint"}},
      {"parameters that a rank does not use",
       {"a parameter unused on some ranks", "a parameter unused on all ranks"}},
      {"shared, frozen or ignored parameters",
       {"shared parameter", "frozen parameter", "ignored parameter"}},
      {"communication hooks",
       {"hook allreduce", "hook fp16", "hook bf16", "hook elsewhere", "hook power_sgd"}},
      {"sparse gradients", {"sparse parameter"}},
      {"uneven inputs (join)", {"uneven inputs"}},
      {"buffers", {"buffers"}},
      {"manual sync, or reduction after backward", {"manual sync", "after backward"}},
      {"several replicas or reducers", {"replicas", "two reducers"}},
      {"two groups of ranks", {"two groups of ranks"}},
      {"parameters on a GPU", {"on a GPU"}},
      {"programs that must end in an error", {"an error of its own"}},
      {"constructions or resets to be refused",
       {"a disagreement at the construction", "a disagreement at a reset"}},
  };
}

std::vector<Row> fault_rows() {
  return {
      {"no fault", {"no fault"}},
      {"fault: a rank exits", {}, {Kind::kRankExit}},
      {"fault: something stops for good", {}, {Kind::kOperationStall, Kind::kMessageStall}},
      {"fault: something is late",
       {},
       {Kind::kOperationDelay, Kind::kMessageDelay, Kind::kRankPause, Kind::kSlowThread}},
      {"fault: a call or a link fails",
       {},
       {Kind::kOperationError, Kind::kCallError, Kind::kConnectError, Kind::kLinkReset}},
      {"fault: a node throws", {}, {Kind::kNodeThrows}},
      {"fault: a hook fails", {}, {Kind::kHookFails}},
      {"fault: a payload is changed",
       {},
       {Kind::kPayloadFlip, Kind::kPayloadTruncate, Kind::kPayloadSwap, Kind::kPayloadStale,
        Kind::kPayloadShift}},
      {"fault: memory is refused", {}, {Kind::kMemoryRefused}},
      {"fault: a user gives up", {}, {Kind::kUserAbort}},
      {"fault: the store fails", {}, {Kind::kStoreDelay, Kind::kStoreError, Kind::kStoreTorn}},
  };
}

// The rows, with their features as one set.
struct KnownRow {
  std::string label;
  bool has_all = false;
  FeatureSet features;
  std::vector<Kind> faults;
};

std::vector<KnownRow> make_rows() {
  std::map<std::string, std::size_t> index_of;
  for (std::size_t i = 0; i < feature_count(); ++i) index_of[feature_name(i)] = i;
  std::vector<KnownRow> out;
  for (const std::vector<Row>& rows : {mode_rows(), feature_rows(), fault_rows()}) {
    for (const Row& row : rows) {
      KnownRow& known = out.emplace_back();
      known.label = row.label;
      known.has_all = row.features.empty() && row.faults.empty();
      known.faults = row.faults;
      for (const char* feature : row.features) {
        const auto found = index_of.find(feature);
        LOCKSTEP_CHECK(found != index_of.end());
        known.features.set(found->second);
      }
    }
  }
  return out;
}

const std::vector<KnownRow>& known_rows() {
  static const std::vector<KnownRow> rows = make_rows();
  return rows;
}

}  // namespace

std::vector<std::string> generated_rows() {
  std::vector<std::string> out;
  for (const KnownRow& row : known_rows()) out.push_back(row.label);
  return out;
}

std::vector<std::size_t> generated_rows_of(const Case& value) {
  const FeatureSet features = features_of(value);
  const auto has_fault = [&value](Kind kind) {
    return std::any_of(value.faults.faults.begin(), value.faults.faults.end(),
                       [kind](const faults::Fault& fault) { return fault.kind == kind; });
  };
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < known_rows().size(); ++i) {
    const KnownRow& row = known_rows()[i];
    if (row.has_all || (row.features & features).any() ||
        std::any_of(row.faults.begin(), row.faults.end(), has_fault))
      out.push_back(i);
  }
  return out;
}

}  // namespace lockstep::properties
