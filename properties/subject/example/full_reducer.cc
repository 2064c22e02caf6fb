// A reducer that uses the whole interface: it starts each bucket as soon as its members are ready,
// detects unused parameters, reports errors to peers, and continues after reset(). Only 16-bit
// floats are missing. Read flat_reducer.cc first. This file shows how to meet the contract's
// clauses on failure, and names each clause where it meets it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep_subject.h"

namespace {

struct Bucket {
  std::vector<double> memory;  // double for alignment
  uint32_t pending;            // members that are not ready
  uint64_t ticket;
};

struct FullReducer {
  const lockstep_setup* setup;
  const lockstep_host* host;
  std::vector<Bucket> buckets;
  std::vector<uint32_t> trained;    // parameters that require a gradient
  std::vector<uint32_t> bucket_of;  // by parameter
  std::vector<int32_t> usage;       // by position in `trained`

  bool is_open;  // a pass has begun and is not complete
  int64_t pass;
  bool unused_marked;                     // in this pass
  bool has_launched;                      // in this pass
  uint32_t next_bucket;                   // the next bucket to start
  std::vector<unsigned char> is_ready;    // by parameter
  std::vector<unsigned char> is_used;     // by parameter, from when it became ready
  std::vector<unsigned char> is_reached;  // by parameter
  lockstep_error poison;                  // code LOCKSTEP_OK: it is not poisoned

  bool is_dynamic() const { return setup->mode == LOCKSTEP_DYNAMIC; }
  int32_t rank() const { return static_cast<int32_t>(setup->rank); }
};

FullReducer& of(void* self) { return *static_cast<FullReducer*>(self); }

// --- Failure.

int32_t own_error(const FullReducer& reducer, int32_t code, const char* detail,
                  lockstep_error* error) {
  error->code = code;
  error->rank = reducer.rank();
  error->pass = reducer.pass;
  error->definite = 1;
  std::snprintf(error->detail, sizeof error->detail, "%s", detail);
  return code;
}

bool concerns_group(int32_t code) {
  return (code >= LOCKSTEP_MISMATCH && code <= LOCKSTEP_ABORTED) || code == LOCKSTEP_CORRUPTED;
}

std::string key_of(uint32_t rank) { return "failure/" + std::to_string(rank); }

// Returns the others' flight records, by rank; code LOCKSTEP_OK if a rank has none. All of them
// write at about the same time, so this waits only once for the grace period.
std::vector<lockstep_error> read_flight_records(const FullReducer& reducer,
                                                const lockstep_error& own) {
  std::vector<lockstep_error> records(reducer.setup->world);
  uint32_t patience_ms = reducer.setup->grace_ms;
  for (uint32_t r = 0; r < reducer.setup->world; ++r) {
    records[r].code = LOCKSTEP_OK;
    if (r == reducer.setup->rank) {
      records[r] = own;
      continue;
    }
    lockstep_error unheard;
    uint64_t bytes = 0;
    if (reducer.host->store_get(reducer.host, key_of(r).c_str(), &records[r], sizeof records[r],
                                &bytes, patience_ms, &unheard) == LOCKSTEP_OK &&
        bytes == sizeof records[r])
      continue;  // A record that is torn counts as none.
    records[r].code = LOCKSTEP_OK;
    patience_ms = 1;
  }
  return records;
}

// Each rank suspects the one that it waited for, which may have waited itself. Returns the record
// at which the chain of suspicions ends, or `first` if it runs in a circle or to a silent rank.
const lockstep_error* end_of_suspicions(const std::vector<lockstep_error>& records,
                                        const lockstep_error* first) {
  const lockstep_error* record = first;
  for (std::size_t steps = 0; steps < records.size(); ++steps) {
    if (record->suspect < 0) return record;
    const auto next = static_cast<std::size_t>(record->suspect);
    if (next >= records.size() || records[next].code == LOCKSTEP_OK) return first;
    record = &records[next];
  }
  return first;
}

// Whether some rank waited for this one. A rank that is silent and that nobody waited for may have
// ended its program.
bool is_suspected(const std::vector<lockstep_error>& records, uint32_t rank) {
  return std::any_of(records.begin(), records.end(), [rank](const lockstep_error& each) {
    return each.code != LOCKSTEP_OK && each.suspect == static_cast<int32_t>(rank);
  });
}

// Every survivor must name the same first cause (F2). A definite error comes first, the one of the
// lowest pass and rank; then a suspected rank that reported nothing; then the rank at which the
// suspicions end, beginning with the rank that has made the least progress.
lockstep_error settle(const FullReducer& reducer, const lockstep_error& own) {
  if (own.definite) return own;
  const std::vector<lockstep_error> records = read_flight_records(reducer, own);
  const lockstep_error* definite = nullptr;
  const lockstep_error* least = nullptr;
  int32_t silent = -1;
  for (uint32_t r = 0; r < records.size(); ++r) {
    const lockstep_error& each = records[r];
    if (each.code == LOCKSTEP_OK) {
      const bool is_own = own.suspect == static_cast<int32_t>(r);
      if (is_own || (silent < 0 && is_suspected(records, r))) silent = static_cast<int32_t>(r);
      continue;
    }
    if (each.definite && (definite == nullptr || each.pass < definite->pass)) definite = &each;
    if (least == nullptr || each.sequence < least->sequence) least = &each;
  }
  if (definite == nullptr && silent < 0) least = end_of_suspicions(records, least);
  lockstep_error settled = definite != nullptr ? *definite : silent >= 0 ? own : *least;
  if (definite == nullptr && silent >= 0) settled.rank = settled.suspect = silent;
  if (settled.pass < 0) settled.pass = own.pass;  // a peer may have failed between two passes
  return settled;
}

// Reports the error to the peers, wakes them by closing the group, finds the first cause, and
// refuses further work.
int32_t fail(FullReducer& reducer, lockstep_error* error) {
  if (error->rank < 0) error->rank = error->suspect;
  lockstep_error ignored;
  reducer.host->store_set(reducer.host, key_of(reducer.setup->rank).c_str(), error, sizeof *error,
                          &ignored);
  reducer.host->abort_group(reducer.host, error);
  reducer.poison = *error = settle(reducer, *error);
  reducer.is_open = false;
  return error->code;
}

// If nothing was launched, no peer waits in a collective, and the reducer remains usable (P12).
int32_t give_up(FullReducer& reducer, lockstep_error* error) {
  if (reducer.has_launched || concerns_group(error->code)) return fail(reducer, error);
  reducer.is_open = false;
  return error->code;
}

int32_t incomplete(FullReducer& reducer, lockstep_error* error) {
  for (const uint32_t p : reducer.trained)
    if (!reducer.is_ready[p]) error->parameters[error->parameter_count++] = p;
  error->bucket = static_cast<int32_t>(reducer.bucket_of[error->parameters[0]]);
  return own_error(reducer, LOCKSTEP_INCOMPLETE, "backward ended with parameters missing", error);
}

// --- From gradient to result.

template <class T>
void gather(T* slot, const void* gradient, uint64_t count, uint32_t world) {
  const T factor = T(1) / static_cast<T>(world);
  for (uint64_t i = 0; i < count; ++i)
    slot[i] = gradient != nullptr ? static_cast<const T*>(gradient)[i] * factor : T(0);
}

void fill(FullReducer& reducer, uint32_t parameter) {
  Bucket& bucket = reducer.buckets[reducer.bucket_of[parameter]];
  const lockstep_bucket& layout = reducer.setup->buckets[reducer.bucket_of[parameter]];
  const lockstep_member* member =
      std::find_if(layout.members, layout.members + layout.member_count,
                   [&](const lockstep_member& m) { return m.parameter == parameter; });
  uint32_t used = 0;
  const void* gradient = reducer.host->gradient(reducer.host, parameter, &used);
  reducer.is_used[parameter] = used != 0;  // G6; a stale gradient contributes all the same (G7)
  void* memory = bucket.memory.data();
  if (layout.dtype == LOCKSTEP_FLOAT64)
    gather(static_cast<double*>(memory) + member->offset, gradient, member->count,
           reducer.setup->world);
  else
    gather(static_cast<float*>(memory) + member->offset, gradient, member->count,
           reducer.setup->world);
  reducer.is_ready[parameter] = 1;
  --bucket.pending;
}

int32_t start(FullReducer& reducer, void* data, uint64_t count, uint32_t dtype, int32_t bucket,
              uint64_t* ticket, lockstep_error* error) {
  lockstep_collective sum = {};
  sum.data = data;
  sum.count = count;
  sum.op = LOCKSTEP_ALL_REDUCE_SUM;
  sum.dtype = dtype;
  sum.bucket = bucket;
  const int32_t code = reducer.host->start(reducer.host, &sum, ticket, error);
  if (code == LOCKSTEP_OK) reducer.has_launched = true;
  return code;
}

// Starts buckets in index order, whatever the order in which they become ready (P3).
int32_t start_ready_buckets(FullReducer& reducer, lockstep_error* error) {
  for (uint32_t& b = reducer.next_bucket; b < reducer.buckets.size(); ++b) {
    Bucket& bucket = reducer.buckets[b];
    if (bucket.pending != 0) return LOCKSTEP_OK;
    const lockstep_bucket& layout = reducer.setup->buckets[b];
    const int32_t code = start(reducer, bucket.memory.data(), layout.count, layout.dtype,
                               static_cast<int32_t>(b), &bucket.ticket, error);
    if (code != LOCKSTEP_OK) return code;
  }
  return LOCKSTEP_OK;
}

int32_t hook(FullReducer& reducer, uint32_t parameter, lockstep_error* error) {
  if (reducer.is_dynamic() && !reducer.unused_marked) {  // P2: not before the first hook
    reducer.unused_marked = true;
    for (const uint32_t p : reducer.trained)
      if (!reducer.is_reached[p] && !reducer.is_ready[p]) fill(reducer, p);
  }
  if (reducer.is_ready[parameter]) {
    error->parameters[error->parameter_count++] = parameter;
    error->bucket = static_cast<int32_t>(reducer.bucket_of[parameter]);
    return own_error(reducer, LOCKSTEP_READY_TWICE, "its hook ran twice in one pass", error);
  }
  fill(reducer, parameter);
  return start_ready_buckets(reducer, error);
}

void scatter(FullReducer& reducer, uint32_t b, const lockstep_member& member, void* gradient) {
  const size_t width = reducer.setup->buckets[b].dtype == LOCKSTEP_FLOAT64 ? 8 : 4;
  const auto* memory = reinterpret_cast<const unsigned char*>(reducer.buckets[b].memory.data());
  if (member.count > 0) std::memcpy(gradient, memory + member.offset * width, member.count * width);
}

// Waits for all collectives, and then writes the results. Gradients that nobody used stay untouched
// (G5).
int32_t finish(FullReducer& reducer, lockstep_error* error) {
  uint64_t usage_ticket = 0;
  const bool has_usage = reducer.is_dynamic() && !reducer.trained.empty();
  for (size_t i = 0; i < reducer.trained.size(); ++i)
    reducer.usage[i] = reducer.is_used[reducer.trained[i]];
  int32_t code = LOCKSTEP_OK;
  if (has_usage)
    code = start(reducer, reducer.usage.data(), reducer.usage.size(), LOCKSTEP_INT32,
                 LOCKSTEP_USAGE_MAP, &usage_ticket, error);
  for (uint32_t b = 0; b < reducer.buckets.size() && code == LOCKSTEP_OK; ++b)
    code = reducer.host->wait(reducer.host, reducer.buckets[b].ticket, error);
  if (has_usage && code == LOCKSTEP_OK)
    code = reducer.host->wait(reducer.host, usage_ticket, error);
  if (code != LOCKSTEP_OK) return code;
  for (uint32_t b = 0; b < reducer.buckets.size(); ++b) {
    const lockstep_bucket& layout = reducer.setup->buckets[b];
    for (uint32_t m = 0; m < layout.member_count; ++m) {
      const lockstep_member& member = layout.members[m];
      const auto at =
          std::lower_bound(reducer.trained.begin(), reducer.trained.end(), member.parameter);
      if (has_usage && reducer.usage[static_cast<size_t>(at - reducer.trained.begin())] == 0)
        continue;
      void* gradient = reducer.host->result(reducer.host, member.parameter, error);
      if (gradient == nullptr) return error->code;
      scatter(reducer, b, member, gradient);
    }
  }
  return LOCKSTEP_OK;
}

// --- The interface.

void start_over(FullReducer& reducer, const lockstep_setup* setup) {
  reducer.setup = setup;
  reducer.is_open = false;
  reducer.has_launched = false;
  reducer.pass = -1;
  reducer.poison.code = LOCKSTEP_OK;
}

void* create(const lockstep_setup* setup, const lockstep_host* host, lockstep_error*) {
  auto* reducer = new FullReducer{};
  reducer->host = host;
  start_over(*reducer, setup);
  reducer->bucket_of.resize(setup->parameter_count);
  reducer->is_ready.resize(setup->parameter_count);
  reducer->is_used.resize(setup->parameter_count);
  reducer->is_reached.resize(setup->parameter_count);
  for (uint32_t p = 0; p < setup->parameter_count; ++p)
    if (setup->parameters[p].requires_grad) reducer->trained.push_back(p);
  reducer->usage.resize(reducer->trained.size());
  for (uint32_t b = 0; b < setup->bucket_count; ++b) {  // padding stays zero for ever
    reducer->buckets.push_back({std::vector<double>(setup->buckets[b].count), 0, 0});
    for (uint32_t m = 0; m < setup->buckets[b].member_count; ++m)
      reducer->bucket_of[setup->buckets[b].members[m].parameter] = b;
  }
  return reducer;
}

void destroy(void* self) { delete &of(self); }

int32_t check_complete(void* self, lockstep_error* error) {
  FullReducer& reducer = of(self);
  if (!reducer.is_open) return LOCKSTEP_OK;
  incomplete(reducer, error);
  return give_up(reducer, error);
}

int32_t forward_begin(void* self, uint32_t kind, lockstep_error* error) {
  FullReducer& reducer = of(self);
  if (kind == LOCKSTEP_NO_GRAD) return LOCKSTEP_OK;
  if (reducer.poison.code == LOCKSTEP_OK) return check_complete(self, error);
  *error = reducer.poison;
  return LOCKSTEP_POISONED;
}

int32_t backward_begin(void* self, int64_t pass, uint32_t is_first, const uint8_t* reachable,
                       lockstep_error* error) {
  FullReducer& reducer = of(self);
  if (reducer.poison.code != LOCKSTEP_OK) {
    *error = reducer.poison;
    return error->code;
  }
  if (is_first) {
    reducer.is_open = true;
    reducer.pass = pass;
    reducer.unused_marked = false;
    reducer.has_launched = false;
    reducer.next_bucket = 0;
    reducer.is_ready.assign(reducer.is_ready.size(), 0);
    for (uint32_t b = 0; b < reducer.buckets.size(); ++b)
      reducer.buckets[b].pending = reducer.setup->buckets[b].member_count;
    if (reachable != nullptr)
      reducer.is_reached.assign(reachable, reachable + reducer.is_reached.size());
  }
  if (reducer.is_open && pass == reducer.pass) return LOCKSTEP_OK;
  own_error(reducer, LOCKSTEP_SECOND_BACKWARD, "this pass was reduced already", error);  // see P7
  error->pass = pass;
  return error->code;
}

int32_t gradient_ready(void* self, uint32_t parameter, int64_t pass, lockstep_error* error) {
  FullReducer& reducer = of(self);
  if (pass == LOCKSTEP_LOCAL) return LOCKSTEP_OK;  // see P9
  reducer.host->lock(reducer.host);                // hooks of two devices may run at once
  const int32_t code = hook(reducer, parameter, error);
  reducer.host->unlock(reducer.host);
  return code;  // the engine then calls backward_failed()
}

int32_t backward_end(void* self, int64_t, uint32_t outputs_left, lockstep_error* error) {
  FullReducer& reducer = of(self);
  if (reducer.is_dynamic())  // outputs that the loss does not reach, or no hook at all (P5, P8)
    for (const uint32_t p : reducer.trained)
      if (!reducer.is_ready[p]) fill(reducer, p);
  const bool is_complete = std::all_of(reducer.trained.begin(), reducer.trained.end(),
                                       [&](uint32_t p) { return reducer.is_ready[p] != 0; });
  if (!is_complete) {
    if (outputs_left > 0) return LOCKSTEP_OK;
    incomplete(reducer, error);
    return give_up(reducer, error);
  }
  int32_t code = start_ready_buckets(reducer, error);
  if (code == LOCKSTEP_OK) code = finish(reducer, error);
  if (code != LOCKSTEP_OK) return fail(reducer, error);
  reducer.is_open = false;
  return LOCKSTEP_OK;
}

int32_t backward_failed(void* self, int64_t, lockstep_error* error) {
  FullReducer& reducer = of(self);
  if (error->rank < 0 && error->suspect < 0) error->rank = reducer.rank();
  return give_up(reducer, error);
}

void abort(void* self, const lockstep_error* cause) {
  FullReducer& reducer = of(self);
  if (reducer.poison.code != LOCKSTEP_OK) return;
  lockstep_error error = *cause;
  error.rank = reducer.rank();
  error.definite = 1;
  fail(reducer, &error);
}

int32_t reset(void* self, const lockstep_setup* setup, lockstep_error*) {
  start_over(of(self), setup);
  return LOCKSTEP_OK;
}

int32_t poisoned(void* self) { return of(self).poison.code != LOCKSTEP_OK; }

lockstep_subject make_table() {
  lockstep_subject table = {};
  table.size = sizeof table;
  table.abi = LOCKSTEP_ABI;
  table.name = "full";
  table.capabilities = LOCKSTEP_CAN_DYNAMIC | LOCKSTEP_CAN_NO_SYNC | LOCKSTEP_CAN_NO_GRAD |
                       LOCKSTEP_CAN_CHECKPOINT | LOCKSTEP_CAN_FORWARDS | LOCKSTEP_CAN_BACKWARDS |
                       LOCKSTEP_CAN_DISCARD | LOCKSTEP_CAN_KEEP_OUTPUTS | LOCKSTEP_CAN_SHARED |
                       LOCKSTEP_CAN_FROZEN | LOCKSTEP_CAN_FLOAT64 | LOCKSTEP_CAN_STRIDES |
                       LOCKSTEP_CAN_ZERO_SIZE | LOCKSTEP_CAN_TWO_DEVICES | LOCKSTEP_CAN_BCUBE |
                       LOCKSTEP_CAN_SPECIAL | LOCKSTEP_CAN_ERRORS | LOCKSTEP_CAN_RECOVER |
                       LOCKSTEP_CAN_ABSENT;
  table.create = create;
  table.destroy = destroy;
  table.forward_begin = forward_begin;
  table.backward_begin = backward_begin;
  table.gradient_ready = gradient_ready;
  table.backward_end = backward_end;
  table.backward_failed = backward_failed;
  table.check_complete = check_complete;
  table.abort = abort;
  table.reset = reset;
  table.poisoned = poisoned;
  return table;
}

}  // namespace

const lockstep_subject* lockstep_subject_entry(uint32_t host_abi) {
  static const lockstep_subject table = make_table();
  return host_abi == LOCKSTEP_ABI ? &table : nullptr;
}
