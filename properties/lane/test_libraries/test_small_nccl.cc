// libsmall_nccl.so: an NCCL without a GPU, for the tests of the nccl lane. Its ranks are processes.
// Memory and streams are those of a QueueDevice of the program (lockstep_test_reach,
// lockstep_test_submit). Ranks send over the real net plug-in, through its table of version 11, so
// that the plug-in's faults have their effects: an error of the plug-in becomes an error of the
// communicator, and the operation hangs until it is aborted, as in NCCL.
//
// The operations are NCCL's with one channel, Ring and Simple: the ring is 0 -> 1 -> ... -> 0 in
// chunks of 2 MiB, with one message per chunk. Each peer has one more connection for send and
// receive, which is created at its first use. The log has the same lines as NCCL 2.28.9's.
//
// Without NCCL_NET_PLUGIN_REF_COUNT the plug-in is unloaded with the process's last communicator,
// and the next communicator finds none, as in 2.28.
//
// With SMALL_NCCL_PRETENDS=tree|socket the log claims another algorithm or network.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "faults/nccl_net/net_tables.h"
#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/tensor/half.h"

#define SMALL_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace lockstep;
using faults::net::TableV11;

constexpr std::size_t kChunkBytes = std::size_t{2} << 20;
using NetHandle = std::array<char, faults::net::kHandleBytes>;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// --- The log.

void log(int level, unsigned long, const char* file, int line, const char* format, ...) {
  static std::mutex mutex;
  static std::FILE* const out = [] {
    std::FILE* opened = std::fopen(variable("NCCL_DEBUG_FILE").c_str(), "w");
    if (opened != nullptr) ::setlinebuf(opened);
    return opened;
  }();
  if (out == nullptr || variable("NCCL_DEBUG") != "INFO") return;
  char text[900];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(mutex);
  const int pid = ::getpid();
  if (level == faults::net::kLogWarning)
    std::fprintf(out, "\n[2026-01-01 00:00:00] host:%d:%d [0] %s:%d NCCL WARN %s\n", pid, pid, file,
                 line, text);
  else
    std::fprintf(out, "host:%d:%d [0] NCCL INFO %s\n", pid, pid, text);
}
#define INFO(...) log(faults::net::kLogInfo, 1, "", 0, __VA_ARGS__)

// --- The meeting of ranks through ncclUniqueId.

bool all_of(int fd, void* data, std::size_t bytes, bool is_read,
            const std::atomic<bool>* is_aborted = nullptr) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t moved = is_read ? ::recv(fd, at, bytes, 0) : ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (moved < 0 && errno == EINTR) continue;  // after SIGSTOP and SIGCONT, too
    if (moved < 0 && errno == EAGAIN && is_aborted != nullptr && !*is_aborted) continue;
    if (moved <= 0) return false;
    at += moved;
    bytes -= static_cast<std::size_t>(moved);
  }
  return true;
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct Hello {
  int rank;
  int ranks;
};

// Collects the data of each rank, in the size that the rank states, and sends all of it to all
// ranks.
void serve_meeting(int listener) {
  std::map<int, int> sockets;
  std::map<int, std::vector<char>> said;
  for (int ranks = 1; static_cast<int>(sockets.size()) < ranks;) {
    const int fd = ::accept(listener, nullptr, nullptr);
    Hello hello{};
    if (fd < 0 || !all_of(fd, &hello, sizeof hello, true)) break;
    ranks = hello.ranks;
    sockets[hello.rank] = fd;
    said[hello.rank].resize(sizeof(NetHandle) * static_cast<std::size_t>(ranks + 1));
    if (!all_of(fd, said[hello.rank].data(), said[hello.rank].size(), true)) break;
  }
  for (auto& [rank, fd] : sockets) {
    for (auto& [other, bytes] : said) (void)all_of(fd, bytes.data(), bytes.size(), false);
    ::close(fd);
  }
  ::close(listener);
}

// --- Communicators.

struct Link {
  void* sender = nullptr;
  void* listener = nullptr;  // for the peer's sender
  void* receiver = nullptr;
  NetHandle theirs{};  // our sender connects to this
};

// The communicators' shared use of the plug-in, as in plugin/net.cc.
class PluginUses {
 public:
  bool is_forgotten() {
    const std::lock_guard lock(mutex_);
    return is_forgotten_;
  }
  void begin() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--count_ > 0) return;
    INFO("Unloading plugin %s", variable("NCCL_NET_PLUGIN").c_str());
    is_forgotten_ = true;
  }

 private:
  std::mutex mutex_;
  int count_ = std::atoi(variable("NCCL_NET_PLUGIN_REF_COUNT").c_str());
  bool is_forgotten_ = false;
};
PluginUses& plugin_uses() {
  static PluginUses uses;
  return uses;
}

struct Comm {
  int rank = 0;
  int ranks = 1;
  const TableV11* net = nullptr;
  void* context = nullptr;
  Link ring;  // its sender connects to the next rank, its receiver to the previous one
  std::vector<Link> peers;
  std::atomic<int> state{static_cast<int>(NcclResult::kInProgress)};
  std::atomic<bool> is_aborted{false};
  std::thread maker;
  std::mutex busy;  // held by the operation that runs on a stream

  ~Comm() {
    if (net == nullptr) return;
    const auto close = [this](Link& link) {
      if (link.sender != nullptr) net->close_send(link.sender);
      if (link.receiver != nullptr) net->close_receive(link.receiver);
      if (link.listener != nullptr) net->close_listen(link.listener);
    };
    close(ring);
    for (Link& peer : peers) close(peer);
    if (context == nullptr) return;
    net->finalize(context);
    plugin_uses().end();
  }
  int next() const { return (rank + 1) % ranks; }
  int previous() const { return (rank + ranks - 1) % ranks; }
  void fail(int code) { state = code; }
  // Tries until `is_done` returns true. Returns false if the communicator was aborted or has
  // failed: as a kernel on a GPU does, the call then hangs until the abort.
  bool wait(const std::function<bool()>& is_done) {
    while (!is_aborted) {
      const int now = state;
      const bool works = now == 0 || now == static_cast<int>(NcclResult::kInProgress);
      if (works && is_done()) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return false;
  }
  bool check(int result) {
    if (result != 0) fail(result);
    return result == 0;
  }
};
using CommRef = std::shared_ptr<Comm>;

CommRef& at(NcclComm comm) { return *reinterpret_cast<CommRef*>(comm); }
std::atomic<const char*> last_error{""};

// Any thread may call this; the text remains valid for callers that received it.
void note_error(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  const std::lock_guard lock(mutex);
  last_error = texts.insert(text).first->c_str();
}

const TableV11* load_net() {
  const std::string name = variable("NCCL_NET_PLUGIN");
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    library = ::dlopen(("libnccl-net-" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    INFO("NET/Plugin: Could not find: libnccl-net-%s.so", name.c_str());
    return nullptr;
  }
  auto* const table = static_cast<const TableV11*>(::dlsym(library, "ncclNetPlugin_v11"));
  if (table != nullptr) INFO("NET/Plugin: Loaded net plugin %s (v11)", table->name);
  return table;
}

bool connect(Comm& comm, Link& link, bool has_sender, bool has_receiver) {
  return comm.wait([&] {
    if (has_sender && link.sender == nullptr &&
        !comm.check(comm.net->connect(comm.context, 0, link.theirs.data(), &link.sender, nullptr)))
      return false;
    if (has_receiver && link.receiver == nullptr &&
        !comm.check(comm.net->accept(link.listener, &link.receiver, nullptr)))
      return false;
    return (!has_sender || link.sender != nullptr) && (!has_receiver || link.receiver != nullptr);
  });
}

// Opens one listener for the ring and one for each peer, and exchanges their handles among all
// ranks.
bool exchange(Comm& comm, int port) {
  std::vector<NetHandle> mine(static_cast<std::size_t>(comm.ranks) + 1);
  comm.peers.resize(static_cast<std::size_t>(comm.ranks));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    Link& link = i == 0 ? comm.ring : comm.peers[i - 1];
    mine[i].fill(0);
    if (!comm.check(comm.net->listen(comm.context, 0, mine[i].data(), &link.listener)))
      return false;
  }
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  Hello hello{comm.rank, comm.ranks};
  const timeval turn{0, 20000};  // the interval at which it looks for an abort
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &turn, sizeof turn);
  std::vector<NetHandle> all(mine.size() * static_cast<std::size_t>(comm.ranks));
  const bool is_met =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      all_of(fd, &hello, sizeof hello, false) &&
      all_of(fd, mine.data(), mine.size() * sizeof(NetHandle), false) &&
      all_of(fd, all.data(), all.size() * sizeof(NetHandle), true, &comm.is_aborted);
  ::close(fd);
  if (!is_met) return comm.check(static_cast<int>(NcclResult::kSystemError));
  const auto handle_of = [&](int rank, int which) {
    return all[static_cast<std::size_t>(rank) * mine.size() + static_cast<std::size_t>(which)];
  };
  comm.ring.theirs = handle_of(comm.next(), 0);
  for (int peer = 0; peer < comm.ranks; ++peer)
    comm.peers[static_cast<std::size_t>(peer)].theirs = handle_of(peer, 1 + comm.rank);
  return true;
}

void make(Comm& comm, int port) {
  INFO("NCCL version 2.28.9+cuda13.0");
  if (!plugin_uses().is_forgotten()) comm.net = load_net();
  if (comm.net == nullptr || variable("NCCL_NET") != comm.net->name) {
    note_error("Failed to initialize any NET plugin");
    return comm.fail(static_cast<int>(NcclResult::kInvalidUsage));
  }
  if (!comm.check(comm.net->init(&comm.context, 0, nullptr, log, nullptr))) return;
  plugin_uses().begin();
  const bool lies = variable("SMALL_NCCL_PRETENDS") == "socket";
  const char* const network = lies ? "Socket" : comm.net->name;
  INFO("Using network %s", network);
  if (comm.ranks > 1) {
    if (!exchange(comm, port) || !connect(comm, comm.ring, true, true)) return;
    std::string ring;
    for (int rank = 0; rank < comm.ranks; ++rank) ring += " " + std::to_string(rank);
    if (comm.rank == 0) INFO("Channel 00/01 :%s", ring.c_str());
    INFO("Channel 00/0 : %d[0] -> %d[0] [receive] via NET/%s/0", comm.previous(), comm.rank,
         network);
    INFO("Channel 00/0 : %d[0] -> %d[0] [send] via NET/%s/0", comm.rank, comm.next(), network);
  }
  comm.state = 0;
}

// --- Moving data.

struct Move {
  void* connection = nullptr;
  bool is_send = false;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  void* request = nullptr;
  bool is_done = false;
};

// Moves all of them at once.
bool move(Comm& comm, std::vector<Move> moves) {
  std::erase_if(moves, [](const Move& each) { return each.bytes == 0; });
  return comm.wait([&] {
    bool is_done = true;
    for (Move& each : moves) {
      if (each.is_done) continue;
      if (each.request == nullptr) {
        void* data = each.data;
        std::size_t bytes = each.bytes;
        int tag = 0;
        void* none = nullptr;
        const int result = each.is_send ? comm.net->isend(each.connection, data, bytes, tag,
                                                          nullptr, nullptr, &each.request)
                                        : comm.net->irecv(each.connection, 1, &data, &bytes, &tag,
                                                          &none, &none, &each.request);
        if (!comm.check(result)) return false;
      }
      int done = 0;
      int size = 0;
      if (each.request != nullptr && !comm.check(comm.net->test(each.request, &done, &size)))
        return false;
      each.is_done = done != 0;
      is_done = is_done && each.is_done;
    }
    return is_done;
  });
}

bool pass_on(Comm& comm, std::byte* out, std::size_t out_bytes, std::byte* in,
             std::size_t in_bytes) {
  return move(
      comm, {{comm.ring.sender, true, out, out_bytes}, {comm.ring.receiver, false, in, in_bytes}});
}

std::size_t width_of(NcclDataType type) {
  constexpr std::array<std::size_t, 10> widths{1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return widths[static_cast<std::size_t>(type)];
}

template <class T>
void add_as(std::byte* to, const std::byte* from, std::size_t bytes) {
  auto* const sum = reinterpret_cast<T*>(to);
  const auto* const other = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(T); ++i) sum[i] = static_cast<T>(sum[i] + other[i]);
}

template <float (*kFrom)(std::uint16_t), std::uint16_t (*kTo)(float)>
void add_halves(std::byte* to, const std::byte* from, std::size_t bytes) {
  auto* const sum = reinterpret_cast<std::uint16_t*>(to);
  const auto* const other = reinterpret_cast<const std::uint16_t*>(from);
  for (std::size_t i = 0; i < bytes / 2; ++i) sum[i] = kTo(kFrom(sum[i]) + kFrom(other[i]));
}

void add(NcclDataType type, std::byte* to, const std::byte* from, std::size_t bytes) {
  switch (type) {
    case NcclDataType::kFloat32:
      return add_as<float>(to, from, bytes);
    case NcclDataType::kFloat64:
      return add_as<double>(to, from, bytes);
    case NcclDataType::kFloat16:
      return add_halves<half_to_float, float_to_half>(to, from, bytes);
    case NcclDataType::kBfloat16:
      return add_halves<bfloat16_to_float, float_to_bfloat16>(to, from, bytes);
    case NcclDataType::kInt32:
    case NcclDataType::kUint32:
      return add_as<std::uint32_t>(to, from, bytes);
    case NcclDataType::kInt64:
    case NcclDataType::kUint64:
      return add_as<std::uint64_t>(to, from, bytes);
    case NcclDataType::kInt8:
    case NcclDataType::kUint8:
      return add_as<std::uint8_t>(to, from, bytes);
  }
}

// This follows src/device/all_reduce.h, runRing.
bool all_reduce(Comm& comm, NcclDataType type, std::byte* data, std::size_t bytes) {
  const auto n = static_cast<std::size_t>(comm.ranks);
  const auto rank = static_cast<std::size_t>(comm.rank);
  std::vector<std::byte> come;
  for (std::size_t base = 0; base < bytes; base += n * kChunkBytes) {
    const std::size_t left = bytes - base;
    const std::size_t chunk =
        left < n * kChunkBytes ? ((left + n - 1) / n + 15) / 16 * 16 : kChunkBytes;
    const auto begin = [&](std::size_t c) { return base + std::min(c * chunk, left); };
    const auto size = [&](std::size_t c) { return begin(c + 1) - begin(c); };
    come.resize(chunk);
    for (std::size_t step = 1; step < 2 * n - 1; ++step) {
      const std::size_t out = (rank + 2 * n - step) % n;
      const std::size_t in = (rank + 2 * n - step - 1) % n;
      const bool adds = step < n;
      std::byte* const to = adds ? come.data() : data + begin(in);
      if (!pass_on(comm, data + begin(out), size(out), to, size(in))) return false;
      if (adds) add(type, data + begin(in), come.data(), size(in));
    }
  }
  return true;
}

bool all_gather(Comm& comm, std::byte* all, std::size_t part) {
  const auto n = static_cast<std::size_t>(comm.ranks);
  const auto rank = static_cast<std::size_t>(comm.rank);
  for (std::size_t step = 0; step + 1 < n; ++step)
    if (!pass_on(comm, all + (rank + n - step) % n * part, part,
                 all + (rank + n - step - 1) % n * part, part))
      return false;
  return true;
}

// The part of rank d starts with the rank behind d, and ends with d.
bool reduce_scatter(Comm& comm, NcclDataType type, const std::byte* parts, std::byte* out,
                    std::size_t part) {
  const auto n = static_cast<std::size_t>(comm.ranks);
  const auto rank = static_cast<std::size_t>(comm.rank);
  const auto own = [&](std::size_t d) { return parts + d * part; };
  std::vector<std::byte> sum(own((rank + n - 1) % n), own((rank + n - 1) % n) + part);
  std::vector<std::byte> come(part);
  for (std::size_t step = 1; step < n; ++step) {
    if (!pass_on(comm, sum.data(), part, come.data(), part)) return false;
    const std::byte* const mine = own((rank + 2 * n - step - 1) % n);
    sum.assign(mine, mine + part);
    add(type, sum.data(), come.data(), part);
  }
  std::copy(sum.begin(), sum.end(), out);
  return true;
}

bool broadcast(Comm& comm, std::byte* data, std::size_t bytes, int root) {
  if (comm.rank != root && !pass_on(comm, nullptr, 0, data, bytes)) return false;
  return comm.next() == root || pass_on(comm, data, bytes, nullptr, 0);
}

// --- Submission to streams.

// A function of the program: it runs body(data) when the stream reaches it.
using Submit = void (*)(void* stream, void (*body)(void*), void* data);

NcclResult submit(NcclComm handle, void* stream, std::function<bool(Comm&)> body) {
  static const auto into = reinterpret_cast<Submit>(::dlsym(RTLD_DEFAULT, "lockstep_test_submit"));
  if (into == nullptr) return NcclResult::kInternalError;
  struct Job {
    CommRef comm;
    std::function<bool(Comm&)> body;
  };
  auto* const job = new Job{at(handle), std::move(body)};
  into(
      stream,
      [](void* data) {
        const std::unique_ptr<Job> own(static_cast<Job*>(data));
        const std::lock_guard lock(own->comm->busy);
        (void)own->body(*own->comm);
      },
      job);
  return NcclResult::kSuccess;
}

void note_way(const Comm& comm, const char* function, std::size_t bytes) {
  if (comm.rank != 0 || comm.ranks < 2) return;
  const bool lies = variable("SMALL_NCCL_PRETENDS") == "tree";
  INFO("%s: %ld Bytes -> Algo %s proto SIMPLE channel{Lo..Hi}={0..0}", function,
       static_cast<long>(bytes), lies ? "TREE" : "RING");
}

struct Transfer {
  bool is_send;
  std::byte* data;
  std::size_t bytes;
  int peer;
  NcclComm comm;
  void* stream;
};
thread_local int group_depth = 0;
thread_local std::vector<Transfer> grouped;

bool transfer(Comm& comm, const std::vector<Transfer>& transfers) {
  std::vector<Move> moves;
  const std::byte* own = nullptr;
  for (const Transfer& each : transfers)
    if (each.peer == comm.rank && each.is_send) own = each.data;
  for (const Transfer& each : transfers) {
    if (each.peer == comm.rank) {
      if (!each.is_send) std::memmove(each.data, own, each.bytes);
      continue;
    }
    Link& link = comm.peers[static_cast<std::size_t>(each.peer)];
    if (!connect(comm, link, true, true)) return false;
    moves.push_back(
        {each.is_send ? link.sender : link.receiver, each.is_send, each.data, each.bytes});
  }
  return move(comm, std::move(moves));
}

NcclResult end_group() {
  if (--group_depth > 0 || grouped.empty()) return NcclResult::kSuccess;
  std::vector<Transfer> transfers = std::exchange(grouped, {});
  const Transfer first = transfers.front();
  return submit(first.comm, first.stream,
                [transfers](Comm& comm) { return transfer(comm, transfers); });
}

NcclResult add_transfer(const Transfer& transfer) {
  ++group_depth;
  grouped.push_back(transfer);
  return end_group();
}

// A function of the program: it returns the memory of a GPU address for an operation of the stream.
std::byte* bytes_at(void* stream, const void* data) {
  using Reach = std::byte* (*)(void* stream, const void* data);
  static const auto reach = reinterpret_cast<Reach>(::dlsym(RTLD_DEFAULT, "lockstep_test_reach"));
  return reach == nullptr ? nullptr : reach(stream, data);
}

}  // namespace

SMALL_EXPORT NcclResult ncclGetVersion(int* version) {
  *version = 22809;
  return NcclResult::kSuccess;
}

SMALL_EXPORT NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 16) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return NcclResult::kSystemError;
  *id = {};
  const int port = ntohs(address.sin_port);
  std::memcpy(id->internal, &port, sizeof port);
  std::thread(serve_meeting, listener).detach();
  return NcclResult::kSuccess;
}

SMALL_EXPORT NcclResult ncclCommInitRankConfig(NcclComm* out, int ranks, NcclUniqueId id, int rank,
                                               NcclConfig*) {
  int port = 0;
  std::memcpy(&port, id.internal, sizeof port);
  auto* const comm = new CommRef(std::make_shared<Comm>());
  (*comm)->rank = rank;
  (*comm)->ranks = ranks;
  (*comm)->maker = std::thread([made = *comm, port] { make(*made, port); });
  *out = reinterpret_cast<NcclComm>(comm);
  return NcclResult::kInProgress;
}

// An operation on a stream keeps the communicator alive until it has noticed the abort.
SMALL_EXPORT NcclResult ncclCommAbort(NcclComm comm) {
  auto* const own = reinterpret_cast<CommRef*>(comm);
  (*own)->is_aborted = true;
  if ((*own)->maker.joinable()) (*own)->maker.join();
  { const std::lock_guard until_it_has((*own)->busy); }
  delete own;
  return NcclResult::kSuccess;
}
SMALL_EXPORT NcclResult ncclCommDestroy(NcclComm comm) { return ncclCommAbort(comm); }
SMALL_EXPORT NcclResult ncclCommFinalize(NcclComm) { return NcclResult::kSuccess; }

SMALL_EXPORT const char* ncclGetErrorString(NcclResult) { return "what NCCL says"; }
SMALL_EXPORT const char* ncclGetLastError(NcclComm) { return last_error; }
SMALL_EXPORT NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error) {
  *error = static_cast<NcclResult>(at(comm)->state.load());
  return NcclResult::kSuccess;
}
SMALL_EXPORT NcclResult ncclCommCount(NcclComm comm, int* count) {
  if (at(comm)->state == static_cast<int>(NcclResult::kInProgress))
    return NcclResult::kInvalidArgument;
  *count = at(comm)->ranks;
  return NcclResult::kSuccess;
}
SMALL_EXPORT NcclResult ncclCommCuDevice(NcclComm, int* device) {
  *device = 0;
  return NcclResult::kSuccess;
}
SMALL_EXPORT NcclResult ncclCommUserRank(NcclComm comm, int* rank) {
  *rank = at(comm)->rank;
  return NcclResult::kSuccess;
}
SMALL_EXPORT NcclResult ncclRedOpCreatePreMulSum(NcclRedOp*, void*, NcclDataType,
                                                 NcclScalarResidence, NcclComm) {
  return NcclResult::kInvalidUsage;
}
SMALL_EXPORT NcclResult ncclRedOpDestroy(NcclRedOp, NcclComm) { return NcclResult::kInvalidUsage; }

SMALL_EXPORT NcclResult ncclBroadcast(const void* send, void* receive, std::size_t count,
                                      NcclDataType type, int root, NcclComm comm, void* stream) {
  const std::size_t bytes = count * width_of(type);
  if (root < 0 || root >= at(comm)->ranks) {  // the error belongs to the communicator
    note_error("Broadcast : invalid root " + std::to_string(root));
    at(comm)->state = static_cast<int>(NcclResult::kInvalidArgument);
    return NcclResult::kInvalidArgument;
  }
  note_way(*at(comm), "Broadcast", bytes);
  return submit(comm, stream, [=](Comm& on) {
    std::byte* const to = bytes_at(stream, receive);
    if (on.rank == root && send != receive) std::memmove(to, bytes_at(stream, send), bytes);
    return broadcast(on, to, bytes, root);
  });
}
SMALL_EXPORT NcclResult ncclAllReduce(const void* send, void* receive, std::size_t count,
                                      NcclDataType type, NcclRedOp op, NcclComm comm,
                                      void* stream) {
  if (op != NcclRedOp::kSum) return NcclResult::kInvalidUsage;
  const std::size_t bytes = count * width_of(type);
  note_way(*at(comm), "AllReduce", bytes);
  return submit(comm, stream, [=](Comm& on) {
    std::byte* const to = bytes_at(stream, receive);
    if (send != receive) std::memmove(to, bytes_at(stream, send), bytes);
    return all_reduce(on, type, to, bytes);
  });
}
SMALL_EXPORT NcclResult ncclAllGather(const void* send, void* receive, std::size_t count,
                                      NcclDataType type, NcclComm comm, void* stream) {
  const std::size_t part = count * width_of(type);
  note_way(*at(comm), "AllGather", part * static_cast<std::size_t>(at(comm)->ranks));
  return submit(comm, stream, [=](Comm& on) {
    std::byte* const all = bytes_at(stream, receive);
    std::byte* const mine = all + static_cast<std::size_t>(on.rank) * part;
    std::byte* const own = bytes_at(stream, send);
    if (own != mine) std::memmove(mine, own, part);
    return all_gather(on, all, part);
  });
}
SMALL_EXPORT NcclResult ncclReduceScatter(const void* send, void* receive, std::size_t count,
                                          NcclDataType type, NcclRedOp op, NcclComm comm,
                                          void* stream) {
  if (op != NcclRedOp::kSum) return NcclResult::kInvalidUsage;
  const std::size_t part = count * width_of(type);
  note_way(*at(comm), "ReduceScatter", part);
  return submit(comm, stream, [=](Comm& on) {
    return reduce_scatter(on, type, bytes_at(stream, send), bytes_at(stream, receive), part);
  });
}
SMALL_EXPORT NcclResult ncclSend(const void* data, std::size_t count, NcclDataType type, int peer,
                                 NcclComm comm, void* stream) {
  return add_transfer({true, bytes_at(stream, data), count * width_of(type), peer, comm, stream});
}
SMALL_EXPORT NcclResult ncclRecv(void* data, std::size_t count, NcclDataType type, int peer,
                                 NcclComm comm, void* stream) {
  return add_transfer({false, bytes_at(stream, data), count * width_of(type), peer, comm, stream});
}
SMALL_EXPORT NcclResult ncclGroupStart() {
  ++group_depth;
  return NcclResult::kSuccess;
}
SMALL_EXPORT NcclResult ncclGroupEnd() {
  return group_depth == 0 ? NcclResult::kInvalidUsage : end_group();
}
