// A small reducer, as a template for your own. After backward has ended it copies all gradients
// into their buckets, scaled by 1/N, all-reduces the buckets, and copies the sums back. It supports
// plain mode, no_sync, float32 and float64, and hooks that run again. It is correct, and slow:
// nothing overlaps with backward.
//
//  c++ -shared -fPIC -O2 -o libflat.so flat_reducer.cc && lockstep fuzz --subject ./libflat.so
//
// It claims only what it supports. It raises its own errors (P5 to P7), but does not report them to
// the other ranks, as the contract requires; so it claims neither errors nor recovery.
#include <cstdio>
#include <vector>

#include "lockstep_subject.h"

namespace {

struct FlatReducer {
  const lockstep_setup* setup;
  const lockstep_host* host;
  std::vector<std::vector<double>> buckets;  // the memory; double for alignment
  std::vector<uint64_t> tickets;             // by bucket
  std::vector<unsigned char> is_ready;       // by parameter: its hook ran in this pass
  bool is_open;                              // a pass has begun and is not complete
};

FlatReducer& of(void* self) { return *static_cast<FlatReducer*>(self); }

int32_t fail(const FlatReducer& reducer, int32_t code, const char* detail, lockstep_error* error) {
  error->rank = static_cast<int32_t>(reducer.setup->rank);
  error->definite = 1;  // our own error, not inferred from a peer's behaviour
  std::snprintf(error->detail, sizeof error->detail, "%s", detail);
  return code;
}

#ifndef LOCKSTEP_EXAMPLE_SCALE  // test_scaling_reducers.cc has other ways
// Gradients are scaled before the sum, by a multiplication with the rounded 1/N (G1, G2).
template <class T>
T scaled_before(T gradient, uint32_t world) {
  return gradient * (T(1) / static_cast<T>(world));
}

template <class T>
T scaled_after(T sum, uint32_t) {
  return sum;
}

constexpr const char* kScale = nullptr;  // lockstep_subject::scale
#endif

// An undefined gradient counts as zeros.
template <class T>
void gather(const FlatReducer& reducer, const lockstep_member& member, T* bucket) {
  const void* memory = reducer.host->gradient(reducer.host, member.parameter, nullptr);
  const T* gradient = static_cast<const T*>(memory);
  for (uint64_t i = 0; i < member.count; ++i)
    bucket[member.offset + i] =
        gradient != nullptr ? scaled_before(gradient[i], reducer.setup->world) : T(0);
}

template <class T>
void scatter(const FlatReducer& reducer, const lockstep_member& member, const T* bucket,
             T* gradient) {
  for (uint64_t i = 0; i < member.count; ++i)
    gradient[i] = scaled_after(bucket[member.offset + i], reducer.setup->world);
}

int32_t start_bucket(FlatReducer& reducer, uint32_t index, lockstep_error* error) {
  const lockstep_bucket& bucket = reducer.setup->buckets[index];
  void* memory = reducer.buckets[index].data();
  for (uint32_t m = 0; m < bucket.member_count; ++m) {
    if (bucket.dtype == LOCKSTEP_FLOAT64)
      gather(reducer, bucket.members[m], static_cast<double*>(memory));
    else
      gather(reducer, bucket.members[m], static_cast<float*>(memory));
  }
  lockstep_collective sum = {};
  sum.data = memory;
  sum.count = bucket.count;
  sum.op = LOCKSTEP_ALL_REDUCE_SUM;
  sum.dtype = bucket.dtype;
  sum.bucket = static_cast<int32_t>(index);
  return reducer.host->start(reducer.host, &sum, &reducer.tickets[index], error);
}

int32_t finish_bucket(FlatReducer& reducer, uint32_t index, lockstep_error* error) {
  const lockstep_bucket& bucket = reducer.setup->buckets[index];
  const void* memory = reducer.buckets[index].data();
  const int32_t code = reducer.host->wait(reducer.host, reducer.tickets[index], error);
  if (code != LOCKSTEP_OK) return code;
  for (uint32_t m = 0; m < bucket.member_count; ++m) {
    const lockstep_member& member = bucket.members[m];
    void* gradient = reducer.host->result(reducer.host, member.parameter, error);
    if (gradient == nullptr) return error->code;
    if (bucket.dtype == LOCKSTEP_FLOAT64)
      scatter(reducer, member, static_cast<const double*>(memory), static_cast<double*>(gradient));
    else
      scatter(reducer, member, static_cast<const float*>(memory), static_cast<float*>(gradient));
  }
  return LOCKSTEP_OK;
}

// Reports all parameters that the pass still lacks (P5).
int32_t incomplete(FlatReducer& reducer, lockstep_error* error) {
  for (uint32_t p = 0; p < reducer.setup->parameter_count; ++p) {
    const bool is_expected = reducer.setup->parameters[p].requires_grad != 0;
    if (is_expected && !reducer.is_ready[p]) error->parameters[error->parameter_count++] = p;
  }
  if (error->parameter_count == 0) return LOCKSTEP_OK;
  return fail(reducer, LOCKSTEP_INCOMPLETE, "backward ended with parameters missing", error);
}

void* create(const lockstep_setup* setup, const lockstep_host* host, lockstep_error*) {
  auto* reducer = new FlatReducer{setup, host, {}, {}, {}, false};
  for (uint32_t b = 0; b < setup->bucket_count; ++b)  // padding stays zero for ever
    reducer->buckets.emplace_back(setup->buckets[b].count, 0.0);
  reducer->tickets.resize(setup->bucket_count);
  reducer->is_ready.resize(setup->parameter_count);
  return reducer;
}

void destroy(void* self) { delete &of(self); }

// The next forward detects a pass that was left incomplete.
int32_t check_complete(void* self, lockstep_error* error) {
  FlatReducer& reducer = of(self);
  if (!reducer.is_open) return LOCKSTEP_OK;
  reducer.is_open = false;
  return incomplete(reducer, error);
}

int32_t forward_begin(void* self, uint32_t kind, lockstep_error* error) {
  return kind == LOCKSTEP_NO_GRAD ? int32_t{LOCKSTEP_OK} : check_complete(self, error);
}

int32_t backward_begin(void* self, int64_t, uint32_t is_first, const uint8_t*,
                       lockstep_error* error) {
  FlatReducer& reducer = of(self);
  if (is_first) {
    reducer.is_open = true;
    reducer.is_ready.assign(reducer.is_ready.size(), 0);
  }
  if (reducer.is_open) return LOCKSTEP_OK;
  return fail(reducer, LOCKSTEP_SECOND_BACKWARD, "this pass was reduced already", error);
}

// With two devices, two threads may call this at once; each accesses its own parameters only.
int32_t gradient_ready(void* self, uint32_t parameter, int64_t pass, lockstep_error* error) {
  FlatReducer& reducer = of(self);
  if (pass == LOCKSTEP_LOCAL)
    return LOCKSTEP_OK;  // no_sync: the gradient accumulates the sum for us
  if (reducer.is_ready[parameter] && !reducer.setup->repeated_hooks) {
    error->parameters[error->parameter_count++] = parameter;
    return fail(reducer, LOCKSTEP_READY_TWICE, "its hook ran twice in one pass", error);
  }
  reducer.is_ready[parameter] = 1;
  return LOCKSTEP_OK;
}

int32_t backward_end(void* self, int64_t, uint32_t outputs_left, lockstep_error* error) {
  FlatReducer& reducer = of(self);
  if (const int32_t code = incomplete(reducer, error); code != LOCKSTEP_OK) {
    if (outputs_left == 0) return code;
    *error = {};
    return LOCKSTEP_OK;  // a further backward of the pass may produce them
  }
  reducer.is_open = false;
  for (uint32_t b = 0; b < reducer.setup->bucket_count; ++b)
    if (const int32_t code = start_bucket(reducer, b, error); code != LOCKSTEP_OK) return code;
  for (uint32_t b = 0; b < reducer.setup->bucket_count; ++b)
    if (const int32_t code = finish_bucket(reducer, b, error); code != LOCKSTEP_OK) return code;
  return LOCKSTEP_OK;
}

int32_t backward_failed(void* self, int64_t, lockstep_error*) {
  of(self).is_open = false;
  return LOCKSTEP_OK;  // nothing was launched, and the engine's error says everything
}

lockstep_subject make_table() {
  lockstep_subject table = {};
  table.size = sizeof table;
  table.abi = LOCKSTEP_ABI;
  table.name = "flat";
  table.capabilities = LOCKSTEP_CAN_NO_SYNC | LOCKSTEP_CAN_NO_GRAD | LOCKSTEP_CAN_CHECKPOINT |
                       LOCKSTEP_CAN_FORWARDS | LOCKSTEP_CAN_BACKWARDS | LOCKSTEP_CAN_DISCARD |
                       LOCKSTEP_CAN_KEEP_OUTPUTS | LOCKSTEP_CAN_SHARED | LOCKSTEP_CAN_FROZEN |
                       LOCKSTEP_CAN_FLOAT64 | LOCKSTEP_CAN_STRIDES | LOCKSTEP_CAN_ZERO_SIZE |
                       LOCKSTEP_CAN_TWO_DEVICES | LOCKSTEP_CAN_BCUBE | LOCKSTEP_CAN_SPECIAL |
                       LOCKSTEP_CAN_REPEATED_HOOKS | LOCKSTEP_CAN_ABSENT;
  table.create = create;
  table.destroy = destroy;
  table.forward_begin = forward_begin;
  table.backward_begin = backward_begin;
  table.gradient_ready = gradient_ready;
  table.backward_end = backward_end;
  table.backward_failed = backward_failed;
  table.check_complete = check_complete;
  table.scale = kScale;
  return table;
}

}  // namespace

const lockstep_subject* lockstep_subject_entry(uint32_t host_abi) {
  static const lockstep_subject table = make_table();
  return host_abi == LOCKSTEP_ABI ? &table : nullptr;
}
