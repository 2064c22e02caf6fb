// The rows of the atlas (atlas.h), for atlas.cc and nobody else.
#pragma once

#include <vector>

#include "reference/atlas.h"

namespace lockstep::reference {

std::vector<AtlasRow> atlas_rows();

}  // namespace lockstep::reference
