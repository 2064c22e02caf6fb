// Shard: which part of a campaign this process runs. Shard s of n runs the indices s, s + n, s +
// 2n,
// ... of the campaign's seed.
//
// The number comes from the command line, or from the environment in which a cluster starts a
// process. Where a job array starts groups of ranks, the number counts both: the shards of the
// first task of the array come first. Of several launchers the innermost counts: mpirun sets its
// variables below srun.
//
//   ranks    OMPI_COMM_WORLD_RANK of OMPI_COMM_WORLD_SIZE   Open MPI
//            PMI_RANK of PMI_SIZE                           MPICH, and others with PMI
//            SLURM_PROCID of SLURM_STEP_NUM_TASKS           srun (or SLURM_NTASKS)
//   arrays   SLURM_ARRAY_TASK_ID of SLURM_ARRAY_TASK_COUNT  Slurm
//   indices  JOB_COMPLETION_INDEX of --shards               an Indexed Job of Kubernetes
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

struct Shard {
  std::uint64_t number = 0;
  std::uint64_t count = 1;

  std::string to_string() const;  // "3/16"
};

constexpr std::uint64_t kMaxShards = 1'000'000;

// Returns the value of a variable of the environment, or null.
using GetVariable = std::function<const char*(const char*)>;

// Reads "auto" or "I/N". `shards` is the number of shards that the command line gives apart: in a
// job array the number of a task is then the number of the shard, whichever tasks the array has.
Result<Shard> resolve_shard(const std::string& text, std::optional<std::uint64_t> shards,
                            const GetVariable& environment);

}  // namespace lockstep::properties
