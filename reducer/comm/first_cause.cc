#include "reducer/comm/first_cause.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::size_t kMaxLater = 8;

}  // namespace

bool FirstCause::set(const Status& cause) {
  LOCKSTEP_CHECK(!cause.ok());
  if (!cause_.ok()) {
    attach(cause.to_string());
    return false;
  }
  cause_ = cause;
  return true;
}

void FirstCause::attach(const std::string& line) {
  LOCKSTEP_CHECK(!cause_.ok());
  std::vector<std::string>& later = cause_.failure().later;
  const bool is_new =
      line != cause_.to_string() && std::find(later.begin(), later.end(), line) == later.end();
  if (is_new && later.size() < kMaxLater) later.push_back(line);
}

void FirstCause::append(std::string line) {
  LOCKSTEP_CHECK(!cause_.ok());
  cause_.failure().later.push_back(std::move(line));
}

void FirstCause::replace(const Status& first, std::size_t known) {
  LOCKSTEP_CHECK(!cause_.ok());
  LOCKSTEP_CHECK(!first.ok());
  const std::vector<std::string> attached = std::exchange(cause_, first).failure().later;
  LOCKSTEP_CHECK_LE(known, attached.size());
  for (std::size_t i = known; i < attached.size(); ++i) attach(attached[i]);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
