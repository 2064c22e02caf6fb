// Network namespaces as hosts: many machines on this one. The calling process moves into a
// namespace of its own, the hub, which has two switches (bridges). Each rank's process moves into
// another one, and is plugged into both: `data` is the network between the ranks, which faults
// disturb, and `control` the one to the controller, which stays well.
//
// The namespaces have no names, and so nothing is left behind: the kernel removes a namespace, its
// interfaces and its switches with its last process, whatever ended that process.
//
// It works as root, with CAP_SYS_ADMIN, or where users may make user namespaces.
//
// Threads: enter_hub() in a process with one thread; the rest anywhere in that process. Failure:
// one sentence that says which permission or program is missing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties::hosts {

constexpr std::uint32_t kMostHosts = 64;
constexpr const char* kDataInterface = "data";
constexpr const char* kControlInterface = "control";

// The addresses of a host, and the controller's.
std::string data_address(std::uint32_t host);
std::string control_address(std::uint32_t host);
std::string controller_address();

// Moves this process into a namespace of its own (user: and into a user namespace, where it must).
Status leave_network();

Status enter_hub();

// Plugs the namespace of `process`, which has called leave_network(), into both switches.
Status plug_in(pid_t process, std::uint32_t host);
// Removes the host's interfaces, whose process has ended, if they are still there.
void unplug(std::uint32_t host);

// Runs one of the system's programs in the namespace of a process (see run_command()).
Result<std::string> run_inside(pid_t process, std::vector<std::string> arguments,
                               const std::string& input = {});

// Whether this machine can do it, tried in a process apart; the error says what is missing.
// Requires a process with one thread (it forks).
Status try_namespaces();

}  // namespace lockstep::properties::hosts
