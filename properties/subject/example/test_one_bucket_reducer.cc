// A reducer that is right, and does not follow the contract's layout or arithmetic: it has one
// bucket for all parameters, adds the gradients as they are, and divides the sums afterwards. Every
// gradient is the mean, and `lockstep fuzz --values exact` says so; without that option the first
// case fails, as other collectives run and other bits come out.
//
// With LOCKSTEP_EXAMPLE_FAULT it is wrong in one way, which --values exact must find:
//  1  the last elements of a parameter with more than 32 elements are left out (an unrolled loop)
//  2  rank 1 keeps its own first element, so that the ranks end with other gradients
//  3  it divides by two, however many ranks there are
#include <cstdio>
#include <vector>

#include "lockstep_subject.h"

#ifndef LOCKSTEP_EXAMPLE_FAULT
#define LOCKSTEP_EXAMPLE_FAULT 0
#endif

namespace {

struct OneBucketReducer {
  const lockstep_setup* setup;
  const lockstep_host* host;
  std::vector<float> bucket;
  std::vector<uint64_t> offsets;  // by parameter
};

OneBucketReducer& of(void* self) { return *static_cast<OneBucketReducer*>(self); }

void* create(const lockstep_setup* setup, const lockstep_host* host, lockstep_error*) {
  auto* reducer = new OneBucketReducer{setup, host, {}, {}};
  uint64_t count = 0;
  for (uint32_t p = 0; p < setup->parameter_count; ++p) {
    reducer->offsets.push_back(count);
    count += setup->parameters[p].count;
  }
  reducer->bucket.resize(count);
  return reducer;
}

void destroy(void* self) { delete &of(self); }

int32_t forward_begin(void*, uint32_t, lockstep_error*) { return LOCKSTEP_OK; }

int32_t backward_begin(void*, int64_t, uint32_t, const uint8_t*, lockstep_error*) {
  return LOCKSTEP_OK;
}

int32_t gradient_ready(void*, uint32_t, int64_t, lockstep_error*) { return LOCKSTEP_OK; }

uint64_t summed(uint64_t count) {
  return LOCKSTEP_EXAMPLE_FAULT == 1 && count > 32 ? count & ~uint64_t{3} : count;
}

void gather(OneBucketReducer& reducer) {
  for (uint32_t p = 0; p < reducer.setup->parameter_count; ++p) {
    const void* memory = reducer.host->gradient(reducer.host, p, nullptr);
    const float* gradient = static_cast<const float*>(memory);
    const uint64_t count = reducer.setup->parameters[p].count;
    for (uint64_t i = 0; i < count; ++i)
      reducer.bucket[reducer.offsets[p] + i] =
          gradient != nullptr && i < summed(count) ? gradient[i] : 0.0f;
  }
}

int32_t scatter(OneBucketReducer& reducer, lockstep_error* error) {
  const lockstep_setup& setup = *reducer.setup;
  const float divisor = LOCKSTEP_EXAMPLE_FAULT == 3 ? 2.0f : static_cast<float>(setup.world);
  for (uint32_t p = 0; p < setup.parameter_count; ++p) {
    float* gradient = static_cast<float*>(reducer.host->result(reducer.host, p, error));
    if (gradient == nullptr) return error->code;
    const uint64_t kept = LOCKSTEP_EXAMPLE_FAULT == 2 && setup.rank == 1 ? 1 : 0;
    for (uint64_t i = kept; i < setup.parameters[p].count; ++i)
      gradient[i] = reducer.bucket[reducer.offsets[p] + i] / divisor;
  }
  return LOCKSTEP_OK;
}

// In plain mode every parameter has a gradient when the backward ends.
int32_t backward_end(void* self, int64_t, uint32_t, lockstep_error* error) {
  OneBucketReducer& reducer = of(self);
  gather(reducer);
  lockstep_collective sum = {};
  sum.data = reducer.bucket.data();
  sum.count = reducer.bucket.size();
  sum.op = LOCKSTEP_ALL_REDUCE_SUM;
  sum.dtype = LOCKSTEP_FLOAT32;
  sum.bucket = LOCKSTEP_OTHER;
  uint64_t ticket = 0;
  int32_t code = reducer.host->start(reducer.host, &sum, &ticket, error);
  if (code == LOCKSTEP_OK) code = reducer.host->wait(reducer.host, ticket, error);
  return code == LOCKSTEP_OK ? scatter(reducer, error) : code;
}

int32_t backward_failed(void*, int64_t, lockstep_error*) { return LOCKSTEP_OK; }

lockstep_subject make_table() {
  lockstep_subject table = {};
  table.size = sizeof table;
  table.abi = LOCKSTEP_ABI;
  table.name = "one bucket";
  table.capabilities = LOCKSTEP_CAN_NO_SYNC;
  table.create = create;
  table.destroy = destroy;
  table.forward_begin = forward_begin;
  table.backward_begin = backward_begin;
  table.gradient_ready = gradient_ready;
  table.backward_end = backward_end;
  table.backward_failed = backward_failed;
  return table;
}

}  // namespace

const lockstep_subject* lockstep_subject_entry(uint32_t host_abi) {
  static const lockstep_subject table = make_table();
  return host_abi == LOCKSTEP_ABI ? &table : nullptr;
}
