// HostedCalls: the functions of the host for a subject from a shared library (lockstep_host):
// collectives on the rank's process group, gradients, a lock, the group's store.
//
// Threads: any thread of the rank may call the functions of get(); only the training thread calls
// set_pass(), take_trace() and enter_group(). Ownership: the subject owns the data of a collective.
// This object owns the handles of collectives in flight, and quiesce() ends those.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "properties/observe/observation.h"
#include "properties/subject/hosted_error.h"
#include "properties/subject/hosted_setup.h"
#include "reducer/flight_recorder.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class HostedCalls {
 public:
  HostedCalls(const HostedParameters& parameters, const properties::HostedErrors& errors);
  HostedCalls(const HostedCalls&) = delete;
  HostedCalls& operator=(const HostedCalls&) = delete;

  const lockstep_host* get() const { return &host_; }

  // Sends later collectives to this group. No collective may be in flight.
  void enter_group(Membership membership);
  ProcessGroup& group() { return *membership_.group; }

  // Ends the collectives in flight: afterwards nobody accesses the subject's memory. Aborts the
  // group if there were any.
  void quiesce();

  // Later collectives belong to pass `number`; with kNone, to no pass.
  void set_pass(std::int64_t number);
  std::int64_t pass() const;
  // Counts the collectives of passes since the last forget_launched().
  std::int64_t launched() const;
  void forget_launched();

  // Appends the collectives of passes since the last call.
  void take_trace(std::vector<properties::ObservedCollective>& out);
  // The last collectives of passes in this group, as a rank's flight record (T1).
  FlightRecord flight_record(const ProgressSnapshot& progress) const;

 private:
  // The slot of a collective.
  struct Slot {
    Work work;
    std::uint32_t uses = 0;  // the upper half of its tickets
    bool is_taken = false;
    std::int32_t bucket = LOCKSTEP_OTHER;
    std::int64_t recorded = kNone;  // in the trace
  };

  std::int32_t start(const lockstep_collective& collective, std::uint64_t& ticket,
                     lockstep_error* error);
  std::int32_t wait(std::uint64_t ticket, lockstep_error* error);
  const void* gradient(std::uint32_t parameter, std::uint32_t* used);
  void* result(std::uint32_t parameter, lockstep_error* error);
  void lock();
  void unlock();
  std::int32_t store_set(const char* key, std::string_view value, lockstep_error* error);
  std::int32_t store_get(const char* key, std::span<char> value, std::uint64_t* bytes,
                         std::uint32_t timeout_ms, lockstep_error* error);

  Status check(const lockstep_collective& collective, Collective& out);
  Slot* slot_of(std::uint64_t ticket);
  void record(const Collective& collective, platform::Duration launched, Slot& slot);
  void release(std::uint32_t index);
  std::int32_t tell(Status status, std::int32_t bucket, lockstep_error* error);

  const HostedParameters& parameters_;
  const properties::HostedErrors& errors_;
  lockstep_host host_{};
  Membership membership_;

  mutable platform::Mutex mutex_{"hosted.calls"};  // guards the next six; never held over a call
  std::deque<Slot> slots_;                         // slots never move
  std::vector<std::uint32_t> free_slots_;
  std::int64_t pass_ = kNone;
  std::int64_t launched_ = 0;
  Trace trace_;             // of passes, in this group
  std::int64_t taken_ = 0;  // the first entry that take_trace() has not given

  platform::Mutex subject_mutex_{"subject"};           // lock() acquires it
  std::unique_ptr<platform::MutexLock> subject_lock_;  // its holder's
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
