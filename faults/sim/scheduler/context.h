// Context: a stack of its own and the registers saved on it; switch_context() goes from one to
// another in a few nanoseconds.
//
// It stands on Boost.Context's fcontext. The class boost::context::fiber above it is not used for
// two reasons: a fiber that will never run again (a deadlock) must be forgotten and not unwound,
// and the sanitizers must hear of a stack before the first jump to it, while that class jumps to a
// new stack when it is built.
//
// Threads: one OS thread; all contexts of a program belong to it.
// Ownership: a Context owns its stack (mapped memory, a guard page below it) until it is destroyed.
// rewind() starts over at the top of the stack, whatever frames were there: their destructors do
// not run, what they owned on the heap is lost. Under AddressSanitizer rewind() takes a new stack
// and keeps the old one mapped and known to the leak checker. Exceptions: the state that the C++
// runtime keeps per OS thread is saved and restored, so a switch inside a handler is fine. An
// exception must not leave the entry function.
#pragma once

#include <cxxabi.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define LOCKSTEP_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCKSTEP_FIBER_TSAN 1
#endif
#endif

#ifdef LOCKSTEP_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef LOCKSTEP_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace lockstep::simulation {

// Where an execution stopped: what switch_context() needs to go on there. The program's own stack
// has one too.
struct SwitchPoint {
  void* registers = nullptr;  // an fcontext_t
  void* caught_exceptions = nullptr;
  unsigned int uncaught_exceptions = 0;
  const void* stack_bottom = nullptr;  // the lowest address
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* tsan_fiber = nullptr;  // ThreadSanitizer's
};

// The layout that the C++ ABI gives to __cxa_eh_globals.
struct ExceptionState {
  void* caught_exceptions;
  unsigned int uncaught_exceptions;
};

void before_switch(SwitchPoint& from,
                   SwitchPoint& to);  // tell the sanitizers; nothing without them
void after_switch(SwitchPoint& here, SwitchPoint& from);

// The first thing that an entry function calls, with what it was given.
inline void arrive(boost::context::detail::transfer_t transfer,
                   [[maybe_unused]] SwitchPoint& here) {
  auto& from = *static_cast<SwitchPoint*>(transfer.data);
  from.registers = transfer.fctx;
#ifdef LOCKSTEP_FIBER_ASAN
  // The bounds of the program's own stack are learned here, when it is left for the first time.
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(here.fake_stack, &bottom, &bytes);
  here.fake_stack = nullptr;
  if (from.stack_bottom == nullptr) {
    from.stack_bottom = bottom;
    from.stack_bytes = bytes;
  }
#endif
}

// The sanitizers are told in this very function, and not in one that it calls: ThreadSanitizer
// keeps a call stack for each fiber, and a function that is entered on one and left on the other
// would unbalance both.
inline void switch_context(SwitchPoint& from, SwitchPoint& to, ExceptionState& exceptions) {
  from.caught_exceptions = exceptions.caught_exceptions;
  from.uncaught_exceptions = exceptions.uncaught_exceptions;
  exceptions.caught_exceptions = to.caught_exceptions;
  exceptions.uncaught_exceptions = to.uncaught_exceptions;
#ifdef LOCKSTEP_FIBER_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack_bottom, to.stack_bytes);
#endif
#ifdef LOCKSTEP_FIBER_TSAN
  if (from.tsan_fiber == nullptr) from.tsan_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.tsan_fiber, 0);
#endif
  arrive(boost::context::detail::jump_fcontext(to.registers, &from), from);
}

// The exception state of the calling OS thread.
inline ExceptionState& exception_state() {
  return *reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
}

// Sets the sticky floating-point flags of the calling thread, and restores them.
class StickyFloatFlags {
 public:
  StickyFloatFlags();
  ~StickyFloatFlags();
  StickyFloatFlags(const StickyFloatFlags&) = delete;
  StickyFloatFlags& operator=(const StickyFloatFlags&) = delete;

 private:
  unsigned int before_ = 0;
};

class Context {
 public:
  using Entry = void (*)(boost::context::detail::transfer_t);

  // `colour` moves the first frame down a little, so that the stacks of different fibers do not
  // meet in the same cache sets.
  Context(std::size_t stack_bytes, std::uint32_t colour);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes `point` the beginning of `entry`, which must never return. The same `point` each time.
  void rewind(Entry entry, SwitchPoint& point);

 private:
  void map();

  std::size_t stack_bytes_;
  std::size_t colour_;
  std::byte* mapping_ = nullptr;  // guard page, then the stack
  bool used_ = false;             // frames may be there
  void* tsan_fiber_ = nullptr;
};

}  // namespace lockstep::simulation
