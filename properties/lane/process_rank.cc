// Runs one rank of a case in its own process. Compiled once per build of the reducer.
#include "properties/lane/gloo_environment.h"
#include "properties/lane/process_ranks.h"
#include "properties/observe/training.h"
#include "properties/subject/subject_factory.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void run_rank_here(const properties::Subject& subject, const properties::RankJob& job,
                   properties::RankObservation& observation, faults::Fired& fired) {
  GlooEnvironment environment(RealEnvironment::setup_of(job));
  std::vector<std::unique_ptr<HostDevice>> devices;
  properties::ExpectedErrors errors(job.c->program, *job.expectation);
  train(job.c->program, errors, make_subject_factory(subject), environment, devices, observation);
  fired = environment.fired();
  observation.lacking = environment.lacking();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
