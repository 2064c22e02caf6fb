// membership_features: the features of who trains together and what the ranks hold in common:
// state, replicas, reducers, groups, uneven inputs, verified collectives. Internal to generate/;
// features.h is the interface. Pure functions; any thread.
#pragma once

#include <set>
#include <string>

#include "properties/case/case.h"
#include "reference/expectation.h"

namespace lockstep::properties {

// Adds to `found`, which has the features of the fields of the case already.
void find_membership_features(const Case& value, const reference::Expectation& expected,
                              std::set<std::string>& found);

}  // namespace lockstep::properties
