// Reducers with deliberate faults. They show that a subject's fault is found, and that a subject
// which ends or hangs its process harms nothing else. Each is flat_reducer.cc with a function or
// two replaced. LOCKSTEP_EXAMPLE_FAULT selects the fault:
//  1  stale: a hook under no_sync copies the gradient into the bucket, and the hook of the synced
//     pass leaves the bucket unchanged; the gradient of the synced pass is lost
//  2  crashes in the second synced pass
//  3  hangs there: never returns
//  4  omits the second synced pass on rank 0; the others wait for it
//  5  exits there, with status 0
//  6  closes the descriptors of its process there
//  7  writes to them there
//  8  stops its process there (SIGSTOP)
//  9  sends SIGTERM to the parent of its process there
// 10  two bugs, which both end in wrong bits: the first one, and that rank 2 loses the first
//     element of each gradient
// 11  measures the timeout of a reduction on the wall clock, which jumps (the fault node_clock)
// 12  raises an error of its own where there is nothing wrong: with more than three buckets
// 13  frees nothing when it is destroyed
// 14  takes a gradient at the first hook of a pass: what a second hook adds is lost
// 15  swallows the timeout of a collective, as where a rank is absent
// 16  prints 8 MB to standard output there
// A real reducer could have the faults 1 and 10 to 16; the others are for the harness.
#define lockstep_subject_entry flat_reducer_entry
#include "flat_reducer.cc"
#undef lockstep_subject_entry

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace {

// The flat reducer with further members. The flat reducer is the first member, so that its
// functions still work.
struct FaultyReducer {
  FlatReducer flat;
  std::vector<std::vector<double>> early;  // by parameter: its bits at the first hook
  int passes;
};

FaultyReducer& faulty(void* self) { return *static_cast<FaultyReducer*>(self); }

void* create_faulty(const lockstep_setup* setup, const lockstep_host* host, lockstep_error* error) {
  void* flat = create(setup, host, error);
  auto* reducer = new FaultyReducer{std::move(of(flat)), {}, 0};
  destroy(flat);
  reducer->early.resize(setup->parameter_count);
  return reducer;
}

void destroy_faulty(void* self) {
  if (LOCKSTEP_EXAMPLE_FAULT != 13) delete &faulty(self);
}

#if LOCKSTEP_EXAMPLE_FAULT == 1 || LOCKSTEP_EXAMPLE_FAULT == 10 || LOCKSTEP_EXAMPLE_FAULT == 14

uint64_t bytes_of(const lockstep_parameter& parameter) {
  return parameter.count * (parameter.dtype == LOCKSTEP_FLOAT64 ? 8 : 4);
}

int32_t gradient_ready_faulty(void* self, uint32_t parameter, int64_t pass, lockstep_error* error) {
  FaultyReducer& reducer = faulty(self);
  const lockstep_parameter& record = reducer.flat.setup->parameters[parameter];
  std::vector<double>& early = reducer.early[parameter];
  const void* gradient = reducer.flat.host->gradient(reducer.flat.host, parameter, nullptr);
  const bool is_copied = (pass == LOCKSTEP_LOCAL) == (LOCKSTEP_EXAMPLE_FAULT != 14);
  if (is_copied && gradient != nullptr && early.empty() && record.count > 0) {
    early.resize(record.count);
    std::memcpy(early.data(), gradient, bytes_of(record));
  }
  return gradient_ready(self, parameter, pass, error);
}

#if LOCKSTEP_EXAMPLE_FAULT == 10
void lose_first_elements(FaultyReducer& reducer, lockstep_error* error) {
  const lockstep_setup& setup = *reducer.flat.setup;
  const lockstep_host* host = reducer.flat.host;
  for (uint32_t p = 0; setup.rank == 2 && p < setup.parameter_count; ++p) {
    const lockstep_parameter& record = setup.parameters[p];
    if (record.count == 0 || host->gradient(host, p, nullptr) == nullptr) continue;
    void* gradient = host->result(host, p, error);
    if (gradient != nullptr) std::memset(gradient, 0, record.dtype == LOCKSTEP_FLOAT64 ? 8 : 4);
  }
}
#endif

// Puts the early copies where the flat reducer packs its buckets from.
int32_t backward_end_faulty(void* self, int64_t pass, uint32_t outputs_left,
                            lockstep_error* error) {
  FaultyReducer& reducer = faulty(self);
  for (uint32_t p = 0; p < reducer.flat.setup->parameter_count; ++p) {
    if (reducer.early[p].empty()) continue;
    void* gradient = reducer.flat.host->result(reducer.flat.host, p, error);
    std::memcpy(gradient, reducer.early[p].data(), bytes_of(reducer.flat.setup->parameters[p]));
    reducer.early[p].clear();
  }
#if LOCKSTEP_EXAMPLE_FAULT == 10
  lose_first_elements(reducer, error);
#endif
  return backward_end(self, pass, outputs_left, error);
}

#elif LOCKSTEP_EXAMPLE_FAULT == 11

int32_t backward_end_faulty(void* self, int64_t pass, uint32_t outputs_left,
                            lockstep_error* error) {
  using Clock = std::chrono::system_clock;  // steady_clock would be right
  const FlatReducer& flat = faulty(self).flat;
  const Clock::time_point begin = Clock::now();
  const int32_t code = backward_end(self, pass, outputs_left, error);
  const bool is_late = Clock::now() - begin > std::chrono::milliseconds(flat.setup->timeout_ms);
  if (code != LOCKSTEP_OK || !is_late) return code;
  return fail(flat, LOCKSTEP_TIMEOUT, "the reduction has taken longer than the timeout", error);
}

#elif LOCKSTEP_EXAMPLE_FAULT == 12

int32_t backward_end_faulty(void* self, int64_t pass, uint32_t outputs_left,
                            lockstep_error* error) {
  const FlatReducer& flat = faulty(self).flat;
  if (flat.setup->bucket_count > 3)
    return fail(flat, LOCKSTEP_INTERNAL, "the stream cannot be captured", error);
  return backward_end(self, pass, outputs_left, error);
}

#elif LOCKSTEP_EXAMPLE_FAULT == 15

int32_t backward_end_faulty(void* self, int64_t pass, uint32_t outputs_left,
                            lockstep_error* error) {
  const int32_t code = backward_end(self, pass, outputs_left, error);
  return code == LOCKSTEP_TIMEOUT ? int32_t{LOCKSTEP_OK} : code;
}

#else

int32_t backward_end_faulty(void* self, int64_t pass, uint32_t outputs_left,
                            lockstep_error* error) {
  FaultyReducer& reducer = faulty(self);
  [[maybe_unused]] const bool is_second = ++reducer.passes == 2;
#if LOCKSTEP_EXAMPLE_FAULT == 2
  if (is_second) std::abort();
#elif LOCKSTEP_EXAMPLE_FAULT == 3
  // It sleeps meanwhile, as the tests beside it need the processor that it would keep busy.
  while (is_second) ::usleep(1000);
#elif LOCKSTEP_EXAMPLE_FAULT == 5
  if (is_second) std::exit(0);
#elif LOCKSTEP_EXAMPLE_FAULT == 6
  for (int fd = 3; is_second && fd < 256; ++fd) ::close(fd);
#elif LOCKSTEP_EXAMPLE_FAULT == 7
  static constexpr char kText[] = "a line for a log that is not open";
  for (int fd = 3; is_second && fd < 256; ++fd)
    if (::write(fd, kText, sizeof kText) < 0) continue;
#elif LOCKSTEP_EXAMPLE_FAULT == 8
  if (is_second) ::raise(SIGSTOP);
#elif LOCKSTEP_EXAMPLE_FAULT == 9
  if (is_second) ::kill(::getppid(), SIGTERM);
#elif LOCKSTEP_EXAMPLE_FAULT == 16
  for (int line = 0; is_second && line < 1'000'000; ++line) std::puts("noise..");
#elif LOCKSTEP_EXAMPLE_FAULT == 4
  if (is_second && reducer.flat.setup->rank == 0) {
    reducer.flat.is_open = false;
    return LOCKSTEP_OK;
  }
#endif
  return backward_end(self, pass, outputs_left, error);
}

#endif

lockstep_subject make_faulty_table() {
  static constexpr const char* kNames[] = {
      "",         "stale",      "crashing",   "hanging",    "skipping", "exiting",
      "closing",  "scribbling", "stopping",   "signalling", "two_bugs", "wall_clock",
      "refusing", "leaking",    "first_hook", "swallowing", "printing"};
  lockstep_subject table = *flat_reducer_entry(LOCKSTEP_ABI);
  table.name = kNames[LOCKSTEP_EXAMPLE_FAULT];
  table.create = create_faulty;
  table.destroy = destroy_faulty;
  table.backward_end = backward_end_faulty;
#if LOCKSTEP_EXAMPLE_FAULT == 1 || LOCKSTEP_EXAMPLE_FAULT == 10 || LOCKSTEP_EXAMPLE_FAULT == 14
  table.gradient_ready = gradient_ready_faulty;
#endif
  return table;
}

}  // namespace

extern "C" LOCKSTEP_EXPORT const lockstep_subject* lockstep_subject_entry(uint32_t host_abi) {
  static const lockstep_subject table = make_faulty_table();
  return host_abi == LOCKSTEP_ABI ? &table : nullptr;
}
