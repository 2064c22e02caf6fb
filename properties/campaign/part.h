// CampaignPart: which part of a campaign this process runs. Part s of n runs the indices s, s + n,
// s + 2n, ... of the campaign's seed.
//
// The number comes from the command line, or from the environment in which a cluster starts a
// process. Where a job array starts groups of ranks, the number counts both: the parts of the
// first task of the array come first. Of several launchers the innermost counts: mpirun sets its
// variables below srun.
//
//   ranks    OMPI_COMM_WORLD_RANK of OMPI_COMM_WORLD_SIZE   Open MPI
//            PMI_RANK of PMI_SIZE                           MPICH, and others with PMI
//            SLURM_PROCID of SLURM_STEP_NUM_TASKS           srun (or SLURM_NTASKS)
//   arrays   SLURM_ARRAY_TASK_ID of SLURM_ARRAY_TASK_COUNT  Slurm
//   indices  JOB_COMPLETION_INDEX of --parts               an Indexed Job of Kubernetes
//
// These are pure functions of their arguments. Failure: one line that names the option or the
// variable and its value, and says what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "reducer/base/status.h"

namespace lockstep::properties {

struct CampaignPart {
  std::uint64_t number = 0;
  std::uint64_t count = 1;

  std::string to_string() const;  // "3/16"
};

constexpr std::uint64_t kMaxParts = 1'000'000;

// Returns the value of a variable of the environment, or null.
using GetVariable = std::function<const char*(const char*)>;

// Reads "auto" or "I/N". `parts` is the number of parts that the command line gives apart: in a
// job array the number of a task is then the number of the part, whichever tasks the array has.
Result<CampaignPart> resolve_part(const std::string& text, std::optional<std::uint64_t> parts,
                                  const GetVariable& environment);

}  // namespace lockstep::properties
