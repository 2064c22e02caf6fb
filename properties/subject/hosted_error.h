// Converts failures between our Status and the C structure of subjects from shared libraries.
// Threads: any; a HostedErrors does not change after construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/subject/lockstep_subject.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

class HostedErrors {
 public:
  // `names`: the names of the parameters, in the order in which the subject knows them.
  explicit HostedErrors(std::vector<std::string> names) : names_(std::move(names)) {}

  // Returns an error that says "nothing known" except for the pass.
  static lockstep_error nothing(std::int64_t pass);
  lockstep_error to_c(const Failure& failure) const;
  // `code` is what the subject's function returned. LOCKSTEP_OK gives an ok Status. A code or a
  // parameter that does not exist gives kInternal with a text that says so.
  Status to_status(std::int32_t code, const lockstep_error& error, int reported_by) const;

  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

std::int32_t code_to_c(Code code);

}  // namespace lockstep::properties
