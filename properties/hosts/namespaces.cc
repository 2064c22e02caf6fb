#include "properties/hosts/namespaces.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "properties/hosts/command.h"
#include "properties/process/child.h"

namespace lockstep::properties::hosts {
namespace {

constexpr auto kTrialLimit = std::chrono::seconds(20);

Status ip(const std::string& commands) {
  const Result<std::string> done = run_command({"ip", "-batch", "-"}, commands);
  return done ? Status() : done.error();
}

bool write_file(const char* file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  out.flush();
  return out.good();
}

// Without privileges a network namespace needs a user namespace, in which this user is root.
int enter_user_namespace() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return errno;
  const bool is_mapped = write_file("/proc/self/setgroups", "deny") &&
                         write_file("/proc/self/uid_map", fmt::format("0 {} 1", user)) &&
                         write_file("/proc/self/gid_map", fmt::format("0 {} 1", group));
  return is_mapped ? 0 : EPERM;
}

Status refused(int error) {
  return {Code::kInvalidArgument,
          fmt::format("the lane hosts with --netns needs network namespaces, and the system says: "
                      "{}; run it as root, or with CAP_SYS_ADMIN (docker run --privileged), or "
                      "allow user namespaces (sysctl user.max_user_namespaces, "
                      "kernel.unprivileged_userns_clone)",
                      std::strerror(error))};
}

}  // namespace

std::string data_address(std::uint32_t host) { return fmt::format("10.83.0.{}", host + 1); }
std::string control_address(std::uint32_t host) { return fmt::format("10.84.0.{}", host + 1); }
std::string controller_address() { return "10.84.0.254"; }

Status leave_network() {
  if (::unshare(CLONE_NEWNET) == 0) return {};
  if (errno != EPERM) return refused(errno);
  const int error = enter_user_namespace();
  return error == 0 ? Status() : refused(error);
}

Status enter_hub() {
  if (find_program("ip").empty() || find_program("nsenter").empty())
    return {Code::kInvalidArgument,
            "the lane hosts with --netns needs the programs ip and nsenter: install iproute2 and "
            "util-linux (ci/setup --network)"};
  LOCKSTEP_RETURN_IF_ERROR(leave_network());
  const Status made =
      ip(fmt::format("link set lo up\n"
                     "link add {0} type bridge\nlink set {0} up\n"
                     "link add {1} type bridge\nlink set {1} up\n"
                     "address add {2}/24 dev {1}\n",
                     kDataInterface, kControlInterface, controller_address()));
  if (made.ok()) return {};
  return {Code::kInvalidArgument,
          fmt::format("the lane hosts with --netns needs bridges and veth pairs, and CAP_NET_ADMIN "
                      "to make them: {}",
                      made.failure().detail)};
}

Status plug_in(pid_t process, std::uint32_t host) {
  std::string hub;
  std::string inside = "link set lo up\n";
  const auto connect = [&](const char* name, const std::string& address) {
    hub += fmt::format(
        "link add {0}{1} type veth peer name {0} netns {2}\nlink set {0}{1} master {0} up\n", name,
        host, process);
    inside += fmt::format("address add {1}/24 dev {0}\nlink set {0} up\n", name, address);
  };
  connect(kDataInterface, data_address(host));
  connect(kControlInterface, control_address(host));
  LOCKSTEP_RETURN_IF_ERROR(ip(hub));
  const Result<std::string> done = run_inside(process, {"ip", "-batch", "-"}, inside);
  return done ? Status() : done.error();
}

Result<std::string> run_inside(pid_t process, std::vector<std::string> arguments,
                               const std::string& input) {
  const std::string program = find_program(arguments[0]);
  if (!program.empty()) arguments[0] = program;
  std::vector<std::string> all = {"nsenter", fmt::format("--net=/proc/{}/ns/net", process)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_command(all, input);
}

void unplug(std::uint32_t host) {
  for (const char* name : {kDataInterface, kControlInterface})
    ip(fmt::format("link delete {}{}\n", name, host)).ignore();
}

Status try_namespaces() {
  Child child;
  LOCKSTEP_RETURN_IF_ERROR(child.start([](ChildLine& line) {
    Status status = enter_hub();
    // A veth pair is another module of the kernel than a bridge.
    if (status.ok()) status = ip("link add trial0 type veth peer name trial1\n");
    line.send(status.ok() ? std::string() : status.failure().detail);
  }));
  std::string told;
  if (child.receive(told, kTrialLimit) != Child::Received::kMessage)
    return {Code::kInternal,
            fmt::format("the process that tried network namespaces {}", child.how_lost())};
  return told.empty() ? Status() : Status(Code::kInvalidArgument, told);
}

}  // namespace lockstep::properties::hosts
