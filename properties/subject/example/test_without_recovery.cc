// The full reducer as one that raises errors and cannot go on after them: LOCKSTEP_CAN_ERRORS
// without LOCKSTEP_CAN_RECOVER, and without the functions of the latter. With
// LOCKSTEP_EXAMPLE_FAULT=2 it has a bug: a backward that leaves parameters without a gradient (P5)
// ends in an error that says so of no parameter.
#define lockstep_subject_entry full_reducer_entry
#include "full_reducer.cc"
#undef lockstep_subject_entry

namespace {

int32_t end_without_names(void* self, int64_t pass, uint32_t outputs_left, lockstep_error* error) {
  const int32_t code = backward_end(self, pass, outputs_left, error);
  if (code == LOCKSTEP_INCOMPLETE) error->parameter_count = 0;
  return code;
}

lockstep_subject make_table_without_recovery() {
  lockstep_subject table = *full_reducer_entry(LOCKSTEP_ABI);
  table.capabilities &= ~LOCKSTEP_CAN_RECOVER;
  table.abort = nullptr;
  table.reset = nullptr;
  table.poisoned = nullptr;
  if (LOCKSTEP_EXAMPLE_FAULT == 2) table.backward_end = end_without_names;
  return table;
}

}  // namespace

extern "C" LOCKSTEP_EXPORT const lockstep_subject* lockstep_subject_entry(uint32_t host_abi) {
  static const lockstep_subject table = make_table_without_recovery();
  return host_abi == LOCKSTEP_ABI ? &table : nullptr;
}
