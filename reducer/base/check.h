// CHECK: assertions that are always on, for programmer errors. A failed check prints both values
// and its source location to stderr, and aborts the process. Expected failures are Status values
// instead (see status.h).
// Threads: any. The condition must have no side effects.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

namespace lockstep {

[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& values);

template <typename A, typename B>
std::string check_values(const A& a, const B& b) {
  std::ostringstream out;
  out << +a << " vs " << +b;
  return out.str();
}

}  // namespace lockstep

#define LOCKSTEP_CHECK(condition)                                   \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::lockstep::check_failed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

#define LOCKSTEP_CHECK_OP(a, op, b)                                   \
  do {                                                                \
    if (!((a)op(b))) [[unlikely]]                                     \
      ::lockstep::check_failed(__FILE__, __LINE__, #a " " #op " " #b, \
                               ::lockstep::check_values((a), (b)));   \
  } while (false)

#define LOCKSTEP_CHECK_EQ(a, b) LOCKSTEP_CHECK_OP(a, ==, b)
#define LOCKSTEP_CHECK_LT(a, b) LOCKSTEP_CHECK_OP(a, <, b)
#define LOCKSTEP_CHECK_LE(a, b) LOCKSTEP_CHECK_OP(a, <=, b)
#define LOCKSTEP_CHECK_GE(a, b) LOCKSTEP_CHECK_OP(a, >=, b)
