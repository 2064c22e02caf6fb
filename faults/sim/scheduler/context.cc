#include "faults/sim/scheduler/context.h"

#include <sys/mman.h>
#include <unistd.h>

#include "reducer/base/check.h"

#ifdef __SSE__
#include <xmmintrin.h>
#endif
#ifdef LOCKSTEP_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

namespace lockstep::simulation {

namespace {

std::size_t guard_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

StickyFloatFlags::StickyFloatFlags() {
#ifdef __SSE__
  // The flags are invalid, denormal, divide by zero, overflow, underflow and inexact.
  constexpr unsigned int kAllFlags = 0x3f;
  before_ = _mm_getcsr();
  _mm_setcsr(before_ | kAllFlags);
#endif
}

StickyFloatFlags::~StickyFloatFlags() {
#ifdef __SSE__
  _mm_setcsr(before_);
#endif
}

Context::Context(std::size_t stack_bytes, std::uint32_t colour)
    : stack_bytes_(stack_bytes), colour_(std::size_t{colour % 16} * 192) {
  LOCKSTEP_CHECK_EQ(stack_bytes % guard_bytes(), 0U);
  LOCKSTEP_CHECK_GE(stack_bytes, 4 * guard_bytes());
  map();
}

void Context::map() {
  void* memory = mmap(nullptr, guard_bytes() + stack_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LOCKSTEP_CHECK(memory != MAP_FAILED);
  LOCKSTEP_CHECK_EQ(mprotect(memory, guard_bytes(), PROT_NONE), 0);
  mapping_ = static_cast<std::byte*>(memory);
}

Context::~Context() {
#ifdef LOCKSTEP_FIBER_TSAN
  if (tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
#endif
#ifdef LOCKSTEP_FIBER_ASAN
  __asan_unpoison_memory_region(mapping_ + guard_bytes(), stack_bytes_);
#endif
  munmap(mapping_, guard_bytes() + stack_bytes_);
}

void Context::rewind(Entry entry, SwitchPoint& point) {
#ifdef LOCKSTEP_FIBER_ASAN
  if (used_) {  // what the old frames point to is lost on purpose: show it to the leak checker
    __lsan_register_root_region(mapping_ + guard_bytes(), stack_bytes_);
    map();
  }
#endif
  const std::size_t fresh = stack_bytes_ - colour_;
  std::byte* bottom = mapping_ + guard_bytes();
  point = SwitchPoint{};
  point.stack_bottom = bottom;
  point.stack_bytes = stack_bytes_;
  const StickyFloatFlags flags;  // the new stack begins with a copy of the control register
  point.registers = boost::context::detail::make_fcontext(bottom + fresh, fresh, entry);
#ifdef LOCKSTEP_FIBER_TSAN
  if (tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
  tsan_fiber_ = __tsan_create_fiber(0);
  point.tsan_fiber = tsan_fiber_;
#endif
  used_ = true;
}

}  // namespace lockstep::simulation
