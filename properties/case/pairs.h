// Pairs: the features with which coverage counts other features in pairs, as sets of bits. A row of
// fields.h, or generate/feature_table.h for a feature that is no option, names the set of its
// feature; generate/feature_table.h has the text of each bit. Plain constants.
#pragma once

#include "properties/case/field.h"

namespace lockstep::properties::fields::with {

constexpr Pairs kLocalPasses = 1u << 0;
constexpr Pairs kDynamic = 1u << 1;
constexpr Pairs kStatic = 1u << 2;
constexpr Pairs kViews = 1u << 3;
constexpr Pairs kRebuilt = 1u << 4;
constexpr Pairs kHook = 1u << 5;
constexpr Pairs kAfterBackward = 1u << 6;
constexpr Pairs kManualSync = 1u << 7;
constexpr Pairs kUneven = 1u << 8;
constexpr Pairs kNested = 1u << 9;
constexpr Pairs kError = 1u << 10;
constexpr Pairs kFault = 1u << 11;
constexpr Pairs kEveryWay = (1u << 12) - 1;  // every way to train: what a new option starts with
constexpr Pairs kPinned = 1u << 12;
constexpr Pairs kSparse = 1u << 13;
constexpr Pairs kBuffers = 1u << 14;
constexpr Pairs kReplicas = 1u << 15;
constexpr Pairs kVerified = 1u << 16;
constexpr Pairs kValues = 1u << 17;
constexpr Pairs kSeveralBuckets = 1u << 18;
constexpr Pairs kForwards = 1u << 19;
constexpr Pairs kBackwards = 1u << 20;
constexpr Pairs kAskedRebuild = 1u << 21;
constexpr Pairs kModes = kDynamic | kStatic;

}  // namespace lockstep::properties::fields::with
