#include "faults/nccl_net/interface.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "faults/nccl_net/lockstep_net.h"

namespace lockstep::faults::net {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Address address_of(const sockaddr* address) {
  Address out;
  out.size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&out.bytes, address, out.size);
  return out;
}

// Finds the first interface that is up, wanted and has an address; IPv4 comes before IPv6.
Outcome<Interface> find(const std::string& description,
                        const std::function<bool(const ifaddrs&)>& is_wanted) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return error_of(kSystemError,
                    std::string("cannot list the network interfaces: ") + std::strerror(errno));
  Interface found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* item = list; item != nullptr && found.name.empty(); item = item->ifa_next)
      if (item->ifa_addr != nullptr && item->ifa_addr->sa_family == family &&
          (item->ifa_flags & IFF_UP) != 0 && is_wanted(*item))
        found = {item->ifa_name, address_of(item->ifa_addr)};
  }
  ::freeifaddrs(list);
  if (found.name.empty())
    return error_of(kSystemError, "no network interface is up and is " + description);
  return found;
}

}  // namespace

bool nccl_pattern_matches(const std::string& pattern, const std::string& name) {
  const bool is_excluding = pattern.starts_with('^');
  const bool is_exact = pattern.starts_with('=') || pattern.starts_with("^=");
  std::size_t begin = (is_excluding ? 1u : 0u) + (is_exact ? 1u : 0u);
  bool is_listed = false;
  while (begin <= pattern.size()) {
    const std::size_t end = std::min(pattern.find(',', begin), pattern.size());
    const std::string item = pattern.substr(begin, end - begin);
    if (!item.empty() && (is_exact ? name == item : name.starts_with(item))) is_listed = true;
    begin = end + 1;
  }
  return is_listed != is_excluding;
}

Outcome<Interface> choose_interface() {
  if (const std::string name = environment(LOCKSTEP_NET_IFNAME); !name.empty())
    return find("'" + name + "', as " LOCKSTEP_NET_IFNAME " says",
                [&](const ifaddrs& item) { return name == item.ifa_name; });
  if (const std::string pattern = environment("NCCL_SOCKET_IFNAME"); !pattern.empty())
    return find("like '" + pattern + "', as NCCL_SOCKET_IFNAME says",
                [&](const ifaddrs& item) { return nccl_pattern_matches(pattern, item.ifa_name); });
  return find("the loopback",
              [](const ifaddrs& item) { return (item.ifa_flags & IFF_LOOPBACK) != 0; });
}

}  // namespace lockstep::faults::net
