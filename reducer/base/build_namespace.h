// LOCKSTEP_NS names the inline namespace that tells builds of the reducer apart, so that the real
// one, the simulated one, and those with planted bugs fit into one program. A build may define it;
// otherwise the platform on the include path says it; without one it is `os`.
#pragma once

#ifndef LOCKSTEP_NS
#if __has_include("lockstep_platform/build_namespace.h")
#include "lockstep_platform/build_namespace.h"
#else
#define LOCKSTEP_NS os
#endif
#endif
