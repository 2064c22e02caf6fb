// FirstCause is why a process group has ended: the first failure, which stays, with a line for each
// failure that followed from it.
//
// Threads: under the mutex of its owner.
#pragma once

#include <cstddef>
#include <string>

#include "reducer/base/build_namespace.h"
#include "reducer/base/status.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class FirstCause {
 public:
  // True while the group has not failed.
  bool ok() const { return cause_.ok(); }
  const Status& status() const { return cause_; }

  // Keeps `cause` and returns true. If there is a cause already, it returns false, and only
  // attaches the text of this one to it.
  bool set(const Status& cause);
  // Attaches a line about what followed, unless the cause or another line says the same. A few
  // lines are kept. Requires !ok().
  void attach(const std::string& line);
  // Attaches a line that everybody must read, whatever else has been attached. Requires !ok().
  void append(std::string line);
  // Replaces the cause by `first`, which was made of a copy of it that had `known` lines. The lines
  // that were attached to the cause meanwhile follow those of `first`. Requires !ok() of both.
  void replace(const Status& first, std::size_t known);

 private:
  Status cause_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
