// The messages between `lockstep` and a rank of the subject `python`, as JSON
// (properties/subject/python/lockstep/ranks.py is the other end): one rank of a case with all the
// numbers that it needs, how a recovery goes on, and what the rank observed.
//
// Threads: any. Failure: only a report can be wrong, as a wrapper may have written it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/lane/rank_json.h"
#include "properties/observe/observation.h"
#include "properties/subject/expected.h"

namespace lockstep::properties {

// `expectation` is the model's: after a step in which any rank must fail, all ranks recover. Ranks
// keep their process group as long as `group` stays the same.
std::string python_job(const Case& c, const Expected& expectation, const RankRequest& request,
                       const std::string& group);

// `expectation` takes the recoveries up to this one into account.
std::string python_resume(const Expected& expectation, const Resume& resume);

// Returns false if the text is no report about this program.
bool read_python_report(const std::string& text, const reference::Program& program,
                        RankObservation& observation);

}  // namespace lockstep::properties
