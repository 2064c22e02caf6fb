// For tests: while a RefusedThreads is alive, the system refuses every thread of this process that
// is started with the default attributes, as it refuses one beyond the limit: the default stack
// does not fit into any memory.
//
// Threads: one at a time exists in a process; threads that run already go on.
#pragma once

#include <cstddef>
#include <thread>  // and the system's own threads below it

#include "reducer/base/check.h"

namespace lockstep::testing {

class RefusedThreads {
 public:
  RefusedThreads() {
    LOCKSTEP_CHECK_EQ(::pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    LOCKSTEP_CHECK_EQ(::pthread_attr_init(&huge), 0);
    LOCKSTEP_CHECK_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 47), 0);
    LOCKSTEP_CHECK_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
  }
  ~RefusedThreads() {
    LOCKSTEP_CHECK_EQ(::pthread_setattr_default_np(&before_), 0);
    ::pthread_attr_destroy(&before_);
  }
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace lockstep::testing
