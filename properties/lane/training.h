// train(): one rank of a case, from construction to the end, with whatever subject and environment.
// What a step does is written in reference/program.h; this is that text, driven through a real
// engine and a real reducer.
#pragma once

#include "properties/lane/environment.h"
#include "properties/lane/expected_errors.h"
#include "properties/lane/observation.h"
#include "properties/lane/subject.h"
#include "reducer/device/host/host_device.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// `expected_errors`: after which steps everyone recovers, because some rank's call must fail there.
// `devices` are the rank's own: two host devices, which must outlive everything that the rank
// allocated.
void train(const reference::Program& program, properties::ExpectedErrors& expected_errors,
           const SubjectFactory& make_subject, RankEnvironment& environment,
           std::vector<std::unique_ptr<HostDevice>>& devices,
           properties::RankObservation& observation);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
