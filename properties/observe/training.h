// train(): runs one rank of a case, from construction to the end, with any subject and environment.
// reference/job.h says what a step does; this code does it with a real engine and a real
// reducer.
#pragma once

#include "properties/observe/environment.h"
#include "properties/observe/expected_errors.h"
#include "properties/observe/observation.h"
#include "properties/observe/training_subject.h"
#include "reducer/device/host/host_device.h"
#include "reference/job.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// `expected_errors` says after which steps all ranks recover, because some rank's call must fail
// there. `devices` are the rank's own: two host devices, which must outlive everything that the
// rank allocated.
void train(const reference::Program& program, properties::ExpectedErrors& expected_errors,
           const SubjectFactory& make_subject, RankEnvironment& environment,
           std::vector<std::unique_ptr<HostDevice>>& devices,
           properties::RankObservation& observation);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
