/* Compiled as C99 with the tests: lockstep_subject.h must stay a C header. Never linked. */
#include "lockstep_subject.h"

static void* create(const lockstep_setup* setup, const lockstep_host* host, lockstep_error* error) {
  lockstep_collective sum = {0};
  uint64_t ticket = 0;
  sum.op = LOCKSTEP_ALL_REDUCE_SUM;
  sum.bucket = LOCKSTEP_OTHER;
  if (setup->world > 1 && host->start(host, &sum, &ticket, error) != LOCKSTEP_OK) return 0;
  return error;
}

static const lockstep_subject table = {
    .size = sizeof(lockstep_subject),
    .abi = LOCKSTEP_ABI,
    .name = "check",
    .capabilities = LOCKSTEP_CAN_NO_SYNC | LOCKSTEP_CAN_RECOVER,
    .create = create,
};

const lockstep_subject* lockstep_subject_entry(uint32_t host_abi) {
  return host_abi == LOCKSTEP_ABI ? &table : 0;
}
