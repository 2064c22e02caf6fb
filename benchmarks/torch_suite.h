// TorchSuite: measures our reducer beside PyTorch's (torch_side.h); the two take steps in turn.
// A row is one mode of both:
//
//  - copying, view: one node calls the hooks on either side, so that no graph is measured.
//  - copying_batched, view_batched: the same, with batched_grad_copy on PyTorch's side, where its
//    version has that option. Our side does not change.
//  - NAME_chain: the same reducers. On each side the engine calls the hooks, through a chain with
//    one node per parameter: the smallest graph that works as a model does.
//  - chain: the time of that chain on each engine when nobody reduces.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/measure.h"
#include "benchmarks/program.h"
#include "benchmarks/torch_side.h"

namespace lockstep::benchmarks {

// The times are medians. `times_torch` is the median of the ratios of the repetitions, in each of
// which both reducers were measured directly one after the other. A ratio below 1 means that ours
// is faster.
struct TorchRow {
  std::string workload;
  int ranks = 0;
  std::string mode;
  double ms = 0;
  double torch_ms = 0;
  double times_torch = 0;
  // The ratio of the times that remain on either side without the time of its chain.
  double times_torch_net = 0;
  // The ratio for our group's all-reduces of the same buckets, and nothing else; in copying mode
  // each bucket is copied there and back: about what a reducer that costs nothing would have. 0 for
  // rows with a chain.
  double floor = 0;
  double cpu_ms = 0;  // processor time of all ranks
  double torch_cpu_ms = 0;
  std::uint64_t wrong = 0;      // wrong elements on both sides, and of the floor
  std::vector<double> each_ms;  // of each repetition
  std::vector<double> torch_each_ms;
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
  const TorchSide* torch_ = nullptr;
  std::vector<TorchRow> rows_;
};

}  // namespace lockstep::benchmarks
