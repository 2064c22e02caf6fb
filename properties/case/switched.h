// switched: the second run of a case with a Switch. It has another value of an option that must not
// change what comes out. Which options these are, the table of fields says (Row::keeps).
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/capabilities.h"
#include "properties/case/case.h"

namespace lockstep::properties {

constexpr std::size_t kMaxSwitchable = 32;

// Returns the case of the second run, which has no switch itself. Returns nothing if the case has
// no switch, or if another value of the option would mean nothing in this program, or would change
// what comes out.
std::optional<Case> switched(const Case& value);

// All options that can be switched in some program.
std::vector<SwitchedOption> switchable_options();
std::string name_of(SwitchedOption option);  // as in case files
std::optional<SwitchedOption> switchable_option(std::string_view name);
std::string switchable_names();  // of all of them

// Returns the capability that any value of the option needs, except its default; maybe none.
std::optional<Capability> needed_for(SwitchedOption option);

// Returns whether ranks must raise the same errors in both runs.
bool keeps_errors(SwitchedOption option);

// How the second run differs: "views = true"; empty without one.
std::string describe_switch(const Case& value);

}  // namespace lockstep::properties
