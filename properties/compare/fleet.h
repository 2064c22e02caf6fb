// Fleet: the processes of all ranks over one NCCL library, and what they answer together.
//
// Threads: one caller, in a process without other threads (it forks). Failure: the error of the
// first rank that has one, with its number; a fleet that has failed, or did not answer in time, is
// at an end.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "properties/compare/rank_process.h"

namespace lockstep::properties {

class Fleet {
 public:
  struct Setup {
    int ranks = 0;
    RankPlace place;  // of every rank but for its number; run and folder are the fleet's own
  };
  // A fleet makes a folder of its own in `folder`.
  static Result<std::unique_ptr<Fleet>> start(const Setup& setup, const std::string& folder,
                                              const std::vector<PreparedOperation>& operations);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Asks the first `count` ranks, or all of them, at once; returns their answers by rank.
  using Answers = std::vector<nlohmann::json>;
  Result<Answers> ask(const nlohmann::json& request, int count = 0);

  // In two steps, for requests during which something happens.
  Status tell(const nlohmann::json& request);
  Result<nlohmann::json> answer_of(int rank, std::chrono::milliseconds limit);

  int ranks() const { return static_cast<int>(children_.size()); }

 private:
  Fleet(std::string folder, int ranks);

  const std::string folder_;
  const MeetingPoint everyone_;
  const MeetingPoint survivors_;
  std::vector<std::unique_ptr<Child>> children_;
};

// From the moment when the first rank begins until the last one is done, in ms, for each
// repetition.
std::vector<double> times_of(const Fleet::Answers& answers);

// The greatest of all ranks' values for each repetition, or their sum, from ns to ms.
std::vector<double> greatest_ms(const Fleet::Answers& answers, const char* field);
std::vector<double> sums_ms(const Fleet::Answers& answers, const char* field);

// The sum over all ranks; of a list, its first value counts.
std::uint64_t sum_of(const Fleet::Answers& answers, const char* field);

}  // namespace lockstep::properties
