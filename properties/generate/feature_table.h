// FeatureTable: the names of all features, and which of them are pairs of two others. The names of
// single values of options and of their pairs come from the rows of case/fields.h; the others are
// listed in feature_table.cc. Internal to generate/; features.h is the interface.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::properties {

struct FeatureTable {
  // A case has the feature `index` if it has both others. These may be features without a number,
  // which FeatureCollector finds for this alone.
  struct Pair {
    std::size_t index = 0;
    std::string first;
    std::string second;
  };
  std::vector<std::string> names;
  std::vector<Pair> pairs;
};

// The table is made once. Threads: any.
const FeatureTable& feature_table();

}  // namespace lockstep::properties
