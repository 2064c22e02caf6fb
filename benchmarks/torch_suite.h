// TorchSuite: our reducer beside PyTorch's (torch_reduced.h), step by step in turns. A row is one
// mode of both:
//
//   copying, view     hooks are called by one node on either side, so that no graph is in it
//   copying_chain,    the same reducers, whose hooks the engine of each side brings about, by a
//   view_chain        chain of a node for each parameter: as a model does, with the least graph
//   chain             what that chain takes on each engine when nobody reduces
#pragma once

#include <string>
#include <vector>

#include "benchmarks/measure.h"
#include "benchmarks/program.h"

namespace lockstep::benchmarks {

// Times are medians; `times_torch` is that of the ratios of each repetition, in which both were
// measured one right after the other. Below 1 ours is the faster one.
struct TorchRow {
  std::string workload;
  int ranks = 0;
  std::string mode;
  double ms = 0;
  double torch_ms = 0;
  double times_torch = 0;
  double times_torch_net = 0;  // of what is left of either side's time without its chain
  double cpu_ms = 0;           // processor time of all ranks
  double torch_cpu_ms = 0;
  std::uint64_t wrong = 0;  // elements of either side
};

std::vector<std::string> torch_suite_parts();

class TorchSuite final : public Bench {
 public:
  explicit TorchSuite(Choice choice) : choice_(std::move(choice)) {}

  int run() override;
  std::uint64_t wrong() const override;
  std::string to_json() const override;

 private:
  int compare(const Workload& workload, int ranks);
  void add_rows(const std::string& workload, int ranks, const std::vector<Summary>& found);

  const Choice choice_;
  std::vector<TorchRow> rows_;
};

}  // namespace lockstep::benchmarks
