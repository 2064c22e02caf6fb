// Attributes of clang's thread-safety analysis. They say which mutex guards a member, and which
// mutex a function needs; ci/checks/thread_safety compiles the sources with -Wthread-safety
// -Werror. Other compilers see nothing. The names are those of clang's documentation with LOCKSTEP_
// before them, because other libraries define the plain ones.
//
//   class Counter {
//    public:
//     void add(int n) {
//       platform::MutexLock lock(mutex_);
//       add_locked(n);
//     }
//     void await(int n) {
//       platform::MutexLock lock(mutex_);
//       changed_.wait(mutex_, platform::Deadline::never(),
//                     [&]() LOCKSTEP_REQUIRES(mutex_) { return sum_ >= n; });
//     }
//
//    private:
//     void add_locked(int n) LOCKSTEP_REQUIRES(mutex_) { sum_ += n; }
//     platform::Mutex mutex_{"counter"};
//     platform::CondVar changed_{"counter"};
//     int sum_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
//   };
#pragma once

#if defined(__clang__)
#define LOCKSTEP_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define LOCKSTEP_THREAD_ANNOTATION(x)
#endif

// A class whose objects are locks, and a class whose objects hold a lock while they live.
#define LOCKSTEP_CAPABILITY(name) LOCKSTEP_THREAD_ANNOTATION(capability(name))
#define LOCKSTEP_SCOPED_CAPABILITY LOCKSTEP_THREAD_ANNOTATION(scoped_lockable)

// Who reads or writes the member (or what the pointer points to) holds the mutex.
#define LOCKSTEP_GUARDED_BY(mutex) LOCKSTEP_THREAD_ANNOTATION(guarded_by(mutex))
#define LOCKSTEP_PT_GUARDED_BY(mutex) LOCKSTEP_THREAD_ANNOTATION(pt_guarded_by(mutex))

// Who calls the function holds the mutex, or does not hold it.
#define LOCKSTEP_REQUIRES(...) LOCKSTEP_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define LOCKSTEP_EXCLUDES(...) LOCKSTEP_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

// The function acquires or releases the mutex; without an argument, the object's own.
#define LOCKSTEP_ACQUIRE(...) LOCKSTEP_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define LOCKSTEP_RELEASE(...) LOCKSTEP_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

// The function returns this mutex.
#define LOCKSTEP_RETURN_CAPABILITY(mutex) LOCKSTEP_THREAD_ANNOTATION(lock_returned(mutex))

// The body is not analysed. A comment says why it is right.
#define LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS LOCKSTEP_THREAD_ANNOTATION(no_thread_safety_analysis)
