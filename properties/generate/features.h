// Features: what a case has, by name, so that a run can tell what it covered and a test can see
// that nothing is rare. Pure functions. Costs a run of the model and some tens of microseconds: for
// a sample of cases.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>

#include "properties/case/case.h"

namespace lockstep::properties {

constexpr std::size_t kFeatures = 352;
using FeatureSet = std::bitset<kFeatures>;

const char* feature_name(std::size_t index);  // "a parameter unused on some ranks"
FeatureSet features_of(const Case& value);    // of a normalized case

}  // namespace lockstep::properties
