// Features: what a case has, by name, so that a run can report what it covered and a test can check
// that nothing is rare. Pure functions. The cost is a run of the model and some tens of
// microseconds, so use them on a sample of cases.
#pragma once

#include <bitset>
#include <cstddef>

#include "properties/case/case.h"

namespace lockstep::properties {

constexpr std::size_t kMaxFeatures = 512;  // room for all: some come from the rows of case/fields.h
using FeatureSet = std::bitset<kMaxFeatures>;

std::size_t feature_count();
const char* feature_name(std::size_t index);  // such as "a parameter unused on some ranks"
bool is_pair_of_features(std::size_t index);  // such as "manual sync, gradients as views"
FeatureSet features_of(const Case& value);    // requires a normalized case

}  // namespace lockstep::properties
