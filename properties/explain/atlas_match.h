// Which libraries of the atlas (reference/atlas.h) add so, and what would tell them apart.
// Pure functions; any thread; nothing fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/explain/explain_bits.h"
#include "reference/atlas.h"

namespace lockstep::properties {

// Rows whose order gives all bits of the result, divided before or after the sum, or not at all.
struct AtlasMatch {
  const reference::AtlasRow* row = nullptr;
  bool is_at_this_size = false;  // the row holds for the buffer's size
};
// Those at this size first.
std::vector<AtlasMatch> match_atlas(const AverageInputs& inputs,
                                    const std::vector<std::uint64_t>& result);

// Lines for a person: the libraries at this size, those at other sizes if there are none, and the
// ranks and elements with which the listed libraries add in most different orders. Empty: none.
std::string text_of(const std::vector<AtlasMatch>& matches, const AverageInputs& inputs);

// The atlas as a table in Markdown, for reference/ORDERS.md.
std::string atlas_table();

}  // namespace lockstep::properties
