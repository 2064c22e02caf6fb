#include "reducer/comm/gloo/sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <gloo/transport/tcp/address.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// Calls visit(descriptor, the target of its link) for each descriptor of the process until visit
// returns false.
void each_descriptor(const std::function<bool(int, std::string_view)>& visit) {
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir("/proc/self/fd"));
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] == '.') continue;
    char target[64];
    const ssize_t length =
        ::readlinkat(::dirfd(directory.get()), entry->d_name, target, sizeof target);
    if (length <= 0) continue;
    if (!visit(std::atoi(entry->d_name), {target, static_cast<std::size_t>(length)})) return;
  }
}

void set_close_on_exec(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFD);
  if (flags >= 0) ::fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC);
}

// Returns family, port and host as bytes that can be compared; empty for anything but an internet
// address.
std::string name_of(const sockaddr_storage& address) {
  static_assert(sizeof(sockaddr_in) <= sizeof address && sizeof(sockaddr_in6) <= sizeof address);
  std::string name;
  const auto append = [&name](const void* data, std::size_t bytes) {
    name.append(static_cast<const char*>(data), bytes);
  };
  if (address.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    append(&in.sin_port, sizeof in.sin_port);
    append(&in.sin_addr, sizeof in.sin_addr);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    append(&in.sin6_port, sizeof in.sin6_port);
    append(&in.sin6_addr, sizeof in.sin6_addr);
  }
  return name;
}

// The address of this side of a pair.
std::string name_of(::gloo::transport::Pair& pair) {
  const std::vector<char> bytes = pair.address().bytes();
  // It is not a TCP pair.
  if (bytes.size() != ::gloo::transport::tcp::Address().bytes().size()) return "";
  return name_of(::gloo::transport::tcp::Address(bytes).getSockaddr());
}

std::uint64_t cookie_of(int descriptor) {
  std::uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  const bool is_told =
      ::getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 && cookie != 0;
  return is_told ? cookie : 0;
}

// The descriptors that are registered with an event loop, and what they are.
std::map<int, std::string> registered_with(int loop) {
  std::map<int, std::string> found;
  const std::string path = "/proc/self/fdinfo/" + std::to_string(loop);
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "re"));
  std::array<char, 256> line;
  while (file != nullptr && std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    int one = -1;
    std::error_code gone;
    if (std::sscanf(line.data(), "tfd: %d", &one) == 1)
      found[one] = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(one), gone);
  }
  return found;
}

}  // namespace

void Sockets::find(const std::vector<::gloo::transport::Pair*>& pairs) {
  std::vector<std::string> names;
  for (::gloo::transport::Pair* pair : pairs)
    if (std::string name = name_of(*pair); !name.empty()) names.push_back(std::move(name));
  std::sort(names.begin(), names.end());
  sockets_.clear();
  each_descriptor([&](int descriptor, std::string_view what) {
    if (!what.starts_with("socket:")) return true;
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return true;
    if (!std::binary_search(names.begin(), names.end(), name_of(address))) return true;
    set_close_on_exec(descriptor);
    sockets_.push_back({descriptor, cookie_of(descriptor)});
    return true;
  });
}

std::uint64_t Sockets::bytes_moved() const {
  std::uint64_t bytes = 0;
  for (const Socket& socket : sockets_) {
    if (socket.cookie == 0 || cookie_of(socket.descriptor) != socket.cookie) continue;
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(socket.descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    constexpr std::size_t kNeeded =
        offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
    if (length >= kNeeded) bytes += info.tcpi_bytes_acked + info.tcpi_bytes_received;
  }
  return bytes;
}

void close_loop_on_exec(int event) {
  std::map<int, std::string> registered;
  each_descriptor([&](int descriptor, std::string_view what) {
    if (what != "anon_inode:[eventpoll]") return true;
    registered = registered_with(descriptor);
    if (!registered.contains(event)) return true;
    set_close_on_exec(descriptor);
    return false;
  });
  std::erase_if(registered, [](const auto& each) { return !each.second.starts_with("pipe:"); });
  for (const auto& [one, pipe] : registered)
    each_descriptor([&](int descriptor, std::string_view what) {  // either end of it
      if (what == pipe) set_close_on_exec(descriptor);
      return true;
    });
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
