// `lockstep gate record|check DIR`: the bits of a reducer's averages, kept from one change to the
// next. DIR has a folder `cases` with kept cases, and a record for each label, which names a
// version and a platform: DIR/LABEL.json, one line for each parameter and step. A check runs the
// cases, and fails where a gradient has other bits than the record has, which it explains by
// explain_bits(). A record takes only what is right: bits that the model expects, or, for a subject
// that does not say in which order it adds, that are as near as another order can be.
//
// Returns the program's exit code.
#pragma once

#include <cstdint>
#include <string>

#include "properties/lane/lane.h"

namespace lockstep::properties {

struct GateOptions {
  std::string folder;
  std::string label;  // empty: that of this machine, such as linux-x86_64
  std::string why;    // of `record`: the reason for other bits than before
  std::uint64_t cases = 24;
  std::uint64_t seed = 1;
  LaneKind lane = LaneKind::kSim;
  Subject subject;
};

// 0; 1 if the bits have changed and no reason is given; 69 if they change from run to run; that of
// a case which fails. Nothing is written then.
int run_gate_record(const GateOptions& options);
// 0; 65 if bits have changed; 2 if there is no such record; that of a case which fails.
int run_gate_check(const GateOptions& options);

}  // namespace lockstep::properties
