// SparseLaunches: which kinds of sparse gradients the ranks launch in one step (hook_model.h).
// PyTorch zeroes a table's gradient to one whose columns are sparse, too, and cannot reduce it
// beside every other one. One thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/program.h"

namespace lockstep::properties::torch_model {

class SparseLaunches {
 public:
  void begin_step(std::size_t parameters) { launched_.assign(parameters, {}); }

  // A rank launches the gradient of a sparse parameter; `shapeless`: it was zeroed in place, and
  // has had no rows since. Returns false if nobody can tell what comes of it: a rank that has such
  // a gradient receives rows of others as if they were of that kind, which ends its process.
  [[nodiscard]] bool note(std::uint32_t parameter, const reference::Parameter& record,
                          bool shapeless, bool has_rows) {
    Launched& launched = launched_[parameter];
    (shapeless ? launched.shapeless : launched.shaped) = true;
    launched.rows = launched.rows || has_rows;
    // Ranks tell each other by sizes which dimensions are sparse, up to the first that is 0.
    const bool is_confused = launched.shaped && record.sizes[0] == 0;
    return !launched.shapeless || (!launched.rows && !is_confused);
  }

 private:
  struct Launched {
    bool shapeless = false;
    bool shaped = false;
    bool rows = false;
  };
  std::vector<Launched> launched_;
};

}  // namespace lockstep::properties::torch_model
