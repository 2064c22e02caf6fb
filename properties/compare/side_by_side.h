// Measures NCCL libraries beside each other, in one run.
//
// Each round starts the ranks of every library, as processes of their own, and lets the libraries
// take turns operation by operation, in an order that rotates from round to round; other load on
// the machine so affects all of them alike. The result of every operation is compared with the
// exact bits. After the rounds, ranks of each library are killed, stopped, or lose a connection,
// and the survivors say what they are told.
//
// Threads: one caller, in a process without other threads (it forks). Failure: a library that
// cannot be loaded, or make a communicator, ends the run with one line; what fails later is a
// problem in its result, and the other libraries go on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "properties/compare/library.h"
#include "properties/compare/operation.h"
#include "properties/compare/results.h"
#include "properties/compare/way.h"
#include "properties/lane/nccl_setup.h"

namespace lockstep::properties {

struct SideBySideSetup {
  std::vector<Library> libraries;
  Way way;
  NcclSetup network;  // its library is each of the above in turn
  int ranks = 3;
  int rounds = 12;
  int repetitions = 10;  // of an operation in a round
  int fault_rounds = 3;
  int timeout_ms = 2000;  // of a group whose ranks have a fault
  bool is_pinned = true;
  std::vector<Operation> operations;
  bool has_lifecycle = true;  // measures shrink and abort, too
  std::vector<std::string> faults = {"killed", "stalled", "reset"};
  std::string commit;
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

Result<ComparisonResults> run_side_by_side(const SideBySideSetup& setup);

}  // namespace lockstep::properties
