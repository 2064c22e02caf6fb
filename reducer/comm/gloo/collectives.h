// The reducer's collectives in terms of Gloo's.
#pragma once

#include <gloo/context.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reducer/comm/gloo/gloo_process_group.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Runs a collective in a group of one rank.
void run_alone(const Collective& collective);

// Runs a collective that has elements, in a group of several ranks that have agreed on it. It
// throws what Gloo throws, and Interrupted. `scratch` is the caller's memory for a rank-ordered
// sum: it is as large as the data, and later collectives use it again.
void run_collective(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
                    std::uint32_t tag, const GlooOptions& options, std::vector<std::byte>& scratch);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
