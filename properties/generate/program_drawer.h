// program_drawer: draws the parameters, the options and the steps of a program from the main stream
// of random numbers of a case. What is drawn from streams of its own changes them later
// (generate.cc). Internal to generate/. A pure function; any thread.
#pragma once

#include "properties/generate/generate.h"
#include "properties/generate/random.h"
#include "properties/generate/reach.h"

namespace lockstep::properties {

// `run_modes`, `replicas`: streams of their own, so that the rest of a seed's case does not depend
// on what the subject supports.
void draw_program(Random& random, Random run_modes, Random replicas, const Extent& extent,
                  const GenerateOptions& options, reference::Program& program);

}  // namespace lockstep::properties
