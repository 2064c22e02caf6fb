// Context: a stack, and the registers that are saved on it. switch_context() switches between
// contexts in a few nanoseconds.
//
// It uses fcontext of Boost.Context. It does not use the class boost::context::fiber above
// fcontext, for two reasons: a fiber that will never run again (after a deadlock) must be abandoned
// and not unwound, and the sanitizers must know a stack before the first jump to it, while that
// class jumps to a new stack in its constructor.
//
// Threads: one OS thread. All contexts of a program belong to it.
// Ownership: a Context owns its stack (mapped memory with a guard page below) until it is
// destroyed. rewind() starts over at the top of the stack, whatever frames are on it: their
// destructors do not run, and what they owned on the heap is leaked. Under AddressSanitizer
// rewind() takes a new stack, and leaves the old one mapped and known to the leak checker.
// Exceptions: the state that the C++ runtime stores per OS thread is saved and restored, so a
// switch inside a handler is allowed. An exception must not leave the entry function.
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

// Where an execution stopped: what switch_context() needs in order to resume there. The program's
// own stack has one, too.
struct SwitchPoint {
  void* registers = nullptr;  // an fcontext_t
  void* caught_exceptions = nullptr;
  unsigned int uncaught_exceptions = 0;
  const void* stack_bottom = nullptr;  // the lowest address
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // for AddressSanitizer
  void* tsan_fiber = nullptr;  // for ThreadSanitizer
};

// The layout that the C++ ABI gives to __cxa_eh_globals.
struct ExceptionState {
  void* caught_exceptions;
  unsigned int uncaught_exceptions;
};

// These notify the sanitizers, and do nothing without them.
void before_switch(SwitchPoint& from, SwitchPoint& to);
void after_switch(SwitchPoint& here, SwitchPoint& from);

// An entry function calls this first, with its argument.
inline void arrive(boost::context::detail::transfer_t transfer,
                   [[maybe_unused]] SwitchPoint& here) {
  auto& from = *static_cast<SwitchPoint*>(transfer.data);
  from.registers = transfer.fctx;
#ifdef LOCKSTEP_FIBER_ASAN
  // The bounds of the program's own stack become known here, when it is left for the first time.
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

// This function notifies the sanitizers itself, and does not call another one for it:
// ThreadSanitizer has a call stack for each fiber, and a function that is entered on one fiber and
// left on another would unbalance both.
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

// Returns the exception state of the calling OS thread.
inline ExceptionState& exception_state() {
  return *reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
}

// The constructor sets the sticky floating-point flags of the calling thread; the destructor
// restores them.
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

  // `colour` moves the first frame down a little, so that the stacks of different fibers use
  // different cache sets.
  Context(std::size_t stack_bytes, std::uint32_t colour);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes `point` the beginning of `entry`, which must never return. Every call must pass the same
  // `point`.
  void rewind(Entry entry, SwitchPoint& point);

 private:
  void map();

  std::size_t stack_bytes_;
  std::size_t colour_;
  std::byte* mapping_ = nullptr;  // the guard page, then the stack
  bool used_ = false;             // whether the stack may hold frames
  void* tsan_fiber_ = nullptr;
};

}  // namespace lockstep::simulation
