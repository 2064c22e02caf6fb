// While a DefaultFloats is alive, the thread that made it computes as contract G9 demands, whatever
// the application has set for that thread: it rounds to nearest even, keeps subnormals, and has no
// traps. The destructor restores the previous settings, including the flags of raised exceptions.
//
// Applications change these settings for speed (-ffast-math links a start-up routine that sets
// flush-to-zero, as does torch.set_flush_denormal(True)) or for interval arithmetic (fesetround),
// and a new thread inherits them. A bucket has the same bits on all ranks only if all ranks compute
// in the same way.
//
// Threads: it is a value on the stack of one thread, and belongs to no other.
// Order: arithmetic on values that are read from memory after the constructor, and written to
// memory before the destructor, is inside. The compiler may move values in registers past either.
// Cost: one read of a control register, and two writes where the application has changed it.
#pragma once

#include <cfenv>
#include <cstdint>

namespace lockstep {

class [[nodiscard]] DefaultFloats {
 public:
#if defined(__x86_64__)
  DefaultFloats() : saved_(control()) {
    if ((saved_ & ~kFlags) != kDefault) set_control(kDefault);
  }
  ~DefaultFloats() {
    if ((saved_ & ~kFlags) != kDefault) set_control(saved_);
  }
#elif defined(__aarch64__)
  DefaultFloats() : saved_(control()) {
    if (saved_ != kDefault) set_control(kDefault);
  }
  ~DefaultFloats() {
    if (saved_ != kDefault) set_control(saved_);
  }
#else
  DefaultFloats() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
    asm volatile("" : : : "memory");
  }
  ~DefaultFloats() {
    asm volatile("" : : : "memory");
    std::fesetenv(&saved_);
  }
#endif
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint32_t kFlags = 0x3f;  // The flags of exceptions that were raised.
  // All exceptions are masked, and nothing else is set.
  static constexpr std::uint32_t kDefault = 0x1f80;
  static std::uint32_t control() {
    std::uint32_t value = 0;
    asm volatile("stmxcsr %0" : "=m"(value) : : "memory");
    return value;
  }
  static void set_control(std::uint32_t value) {
    asm volatile("ldmxcsr %0" : : "m"(value) : "memory");
  }
  const std::uint32_t saved_;
#elif defined(__aarch64__)
  static constexpr std::uint64_t kDefault = 0;
  static std::uint64_t control() {
    std::uint64_t value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
    return value;
  }
  static void set_control(std::uint64_t value) {
    asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
  }
  const std::uint64_t saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace lockstep
