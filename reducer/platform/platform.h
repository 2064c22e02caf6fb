// The platform provides mutex, condition variable, thread, clock and atomics: everything that
// `reducer/` may use to wait.
//
// There are two platforms with one interface, chosen by include path and never by #ifdef: `os` maps
// to the standard library (reducer/platform/os), and `sim` to fibers of the simulator
// (faults/sim/platform). Everything in `reducer/` lives in `namespace lockstep::inline
// LOCKSTEP_NS`, so that both builds, and a third one with planted bugs, fit into one program.
//
// Each `lockstep_platform/types.h` defines, in `lockstep::inline LOCKSTEP_NS::platform`
// (base/build_namespace.h):
//
//   using Duration = std::chrono::nanoseconds;
//   Duration now();    since an arbitrary start; never goes back; virtual in `sim`
//   class Deadline { never(); in(Duration); at(Duration); is_never(); passed(); remaining(); };
//   class Mutex { explicit Mutex(const char* name); };    lock order is checked by name in `sim`
//   class MutexLock { explicit MutexLock(Mutex&); unlock(); lock(); };    scoped
//   class MutexUnlock { explicit MutexUnlock(Mutex&); };    releases a held mutex for a scope
//   class CondVar { explicit CondVar(const char* name); notify_one(); notify_all();
//     template <class P> bool wait(Mutex&, Deadline, P predicate); };    the caller holds the
//     mutex;
//                      false: the deadline passed, and the predicate does not hold
//   class Thread { Thread(std::string name, std::function<void()> body); join(); joinable(); };
//   ThreadId this_thread();    equal for the same thread alone, as long as it has not been joined
//   void yield();      a point where the scheduler may switch; nothing in `os`
//   template <class T> using Atomic = std::atomic<T>;
//
// The classes have the attributes of clang's thread-safety analysis (base/thread_safety.h); a
// member that several threads use says LOCKSTEP_GUARDED_BY(mutex_).
//
// Every wait has a predicate and a deadline; callers write Deadline::never() out where they mean
// it. They call `notify_*` with the mutex held. No user callback and no foreign destructor runs
// under a lock. A Thread must be joined before it is destroyed, and its body must not throw.
#pragma once

#include "lockstep_platform/types.h"
