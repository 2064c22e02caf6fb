#include "reducer/autograd/graph_task.h"

#include <algorithm>
#include <new>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void BackwardEnds::add(BackwardEnd* callback) {
  LOCKSTEP_CHECK(callback != nullptr);
  if (std::find(callbacks_.begin(), callbacks_.end(), callback) == callbacks_.end())
    callbacks_.push_back(callback);
}

Status BackwardEnds::run(Status status) {
  // A callback may add another one.
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    BackwardEnd* const callback = callbacks_[i];
    try {
      status = status.ok() ? callback->backward_succeeded()
                           : callback->backward_failed(std::move(status));
    } catch (const std::bad_alloc&) {
      status = out_of_memory();
    }
  }
  return status;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
