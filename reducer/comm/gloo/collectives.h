// Our collectives in terms of Gloo's.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>

#include "reducer/comm/gloo/gloo_process_group.h"
#include "reducer/comm/process_group.h"

namespace lockstep::inline LOCKSTEP_NS {

// What a collective is in a group of one rank.
void run_alone(const Collective& collective);

// Runs a collective that has elements, in a group of several ranks which have agreed on it. Throws
// what Gloo throws, and Interrupted.
void run_collective(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
                    std::uint32_t tag, const GlooOptions& options);

}  // namespace lockstep::inline LOCKSTEP_NS
