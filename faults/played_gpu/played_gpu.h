// What liblockstep-played-gpu.so gives to a program, in plain C: it makes an NCCL ready to run on
// a GPU that is played in this process (README.md).
//
// Threads: one, before NCCL is used. A process plays one NCCL; each rank is a process.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_PLAYED_VERSION 1u
#define LOCKSTEP_PLAYED_FILE "liblockstep-played-gpu.so"

// LOCKSTEP_PLAYED_VERSION of the build.
typedef uint32_t (*LockstepPlayedVersion)(void);
uint32_t lockstep_played_version(void);

// Loads the library, a path or a name that the loader finds, and prepares it. Returns null, or one
// line that says why it cannot be played. A second call for the same library changes nothing.
typedef const char* (*LockstepPlayedLoad)(const char* library);
const char* lockstep_played_load(const char* library);

#ifdef __cplusplus
}
#endif
