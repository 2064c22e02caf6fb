// The checks of the components: each makes a situation out of choices, lets one part of Lockstep
// act in it, and returns a sentence about the first thing that is wrong, or an empty text. The
// source of a check says what it asks of the part.
//
// Threads: a fiber of the simulator's. Some take virtual time.
#pragma once

#include <string>

#include "properties/components/choices.h"
#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using components::Choices;

std::string check_abort(Choices& choices);
std::string check_agreement(Choices& choices);
std::string check_failure_board(Choices& choices);
std::string check_failure_cause(Choices& choices);
std::string check_frames(Choices& choices);
std::string check_group_failure(Choices& choices);
std::string check_headers(Choices& choices);
std::string check_layouts(Choices& choices);
std::string check_lone_rank(Choices& choices);
std::string check_mismatches(Choices& choices);
std::string check_names(Choices& choices);
std::string check_placement(Choices& choices);
std::string check_roster(Choices& choices);
std::string check_rows(Choices& choices);
std::string check_shared_memory(Choices& choices);
std::string check_staged_group(Choices& choices);
std::string check_uneven_inputs(Choices& choices);
std::string check_waits(Choices& choices);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
