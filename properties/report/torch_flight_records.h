// The flight records that PyTorch's own recorder dumps after a hang (a file for each rank, as JSON
// or as a pickle, which is read without executing anything: pickle.h), joined for `diagnose`.
//
// For each process group of which records are there, the text says where the collectives of the
// ranks first differ, by operation, sizes and dtypes; where a rank has started fewer than others;
// and which ranks are in a collective that has not ended. Each sentence follows from the records:
// where these do not overlap, or a rank has none, the text says that nobody can tell.
//
// Pure functions, but for the reader's limits. Failure: one sentence with the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties {

struct TorchCollective {
  std::int64_t sequence = 0;  // collective_seq_id
  std::string what;           // "all_reduce of [25] Float"
  std::string state;          // "completed", "started", "scheduled"
};

// What one rank recorded of one process group, ascending by sequence.
struct TorchGroupRecord {
  int rank = 0;
  std::string group;         // such as "0 (default_pg)"
  std::vector<int> members;  // empty: not said
  std::vector<TorchCollective> collectives;
};

// Whether the text may be a dump of PyTorch's recorder, and no record of Lockstep's.
bool is_torch_flight_record(std::string_view text);

// `file` names the rank by the last number in its name, as in nccl_trace_rank_3.
Result<std::vector<TorchGroupRecord>> read_torch_flight_record(std::string_view text,
                                                               const std::string& file);

struct TorchDiagnosis {
  std::string text;
  bool is_clean = true;  // nothing differs, and every collective has ended
};
TorchDiagnosis join_torch_flight_records(std::vector<TorchGroupRecord> records);

}  // namespace lockstep::properties
