// The cases that earlier runs of fuzz found with the same subject, on the same lane. A run begins
// with them: what is not mended yet is told at once, and what came back is told before any search.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "properties/lane/lane.h"
#include "properties/report/failure_report.h"

namespace lockstep::properties {

// The text that is kept with a found case. The functions below know the case by it again.
std::string about_found(const FailureReport& failure);

// The name of the file of a found case, without its ending: two subjects have two names, so that
// neither loses its cases to the other: sim-1-0 for Lockstep's reducer, sim-1-0-libmine for
// ./libmine.so, and a name with four more digits for a library in another folder.
std::string file_stem(const FailureReport& failure);

struct EarlierFailure {
  std::string file;
  Case value;
};

// Returns the found cases of `folder`, in the order of their names, at most kMaxEarlier of them:
// the shrunk one of each finding, if the subject can run it. A file that is no case is named on
// standard error, and left out.
constexpr std::size_t kMaxEarlier = 100;
std::vector<EarlierFailure> earlier_failures(const std::string& folder, LaneKind lane,
                                             const Subject& subject);

}  // namespace lockstep::properties
