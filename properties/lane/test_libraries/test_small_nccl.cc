// libsmall_nccl.so: an NCCL without a GPU, for the tests of the nccl lane. Its ranks are processes.
// Memory and streams are those of a QueueDevice of the program (NativeStream). Ranks send over the
// real net plug-in, through its table of version 11, so that the plug-in's faults have their
// effects: an error of the plug-in becomes an error of the communicator, and the operation hangs
// until it is aborted, as in NCCL.
//
// The operations are NCCL's with one channel, Ring and Simple: the ring is 0 -> 1 -> ... -> 0 in
// chunks of 2 MiB, with one message per chunk (faults/sim/nccl/ring.h). Each peer has one more
// connection for send and receive, which is created at its first use. The log has the same lines as
// NCCL 2.28.9's.
//
// Without NCCL_NET_PLUGIN_REF_COUNT the plug-in is unloaded with the process's last communicator,
// and the next communicator finds none, as in 2.28.
//
// The played GPU (faults/played_gpu) takes it for an NCCL that was linked with libcudart.so, and
// has none of its kernels to play. So the program runs over it as it is shipped.
//
// With SMALL_NCCL_PRETENDS=tree|socket the log claims another algorithm or network.
//
// Built with SMALL_NCCL_IS_NEWER, the library is a later version of itself, which has
// ncclCommShrink. It differs from the older one in what SMALL_NCCL_PLANTED lists, so that tests can
// see whether a comparison of two versions finds it:
//
//   bits   all-reduces go around the ring in chunks of 8 KiB
//   slow   an all-reduce takes 100 ms longer
//   abort  an abort takes 300 ms longer
//   told   an error of the network does not become one of the communicator
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "faults/nccl_net/net_tables.h"
#include "faults/sim/nccl/ring.h"
#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/device/test_queue_device.h"

#define SMALL_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace lockstep;
using faults::net::TableV11;
using simulated::size_of;

#ifdef SMALL_NCCL_IS_NEWER
constexpr bool kIsNewer = true;
constexpr int kVersion = 23007;
constexpr const char* kVersionText = "2.30.7";
#else
constexpr bool kIsNewer = false;
constexpr int kVersion = 22809;
constexpr const char* kVersionText = "2.28.9";
#endif
// As many as NCCL of that version has functions.
constexpr std::size_t kFunctions = kIsNewer ? 1999 : 1996;
constexpr std::size_t kChunkBytes = std::size_t{2} << 20;
constexpr std::size_t kPlantedChunkBytes = 8192;
constexpr std::chrono::milliseconds kPlantedSlowness{100};
constexpr std::chrono::milliseconds kPlantedAbort{300};
using NetHandle = std::array<char, faults::net::kHandleBytes>;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool is_planted(const char* name) {
  return kIsNewer &&
         ("," + variable("SMALL_NCCL_PLANTED") + ",").find("," + std::string(name) + ",") !=
             std::string::npos;
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
    if (result != 0 && state == 0 && is_planted("told")) return false;
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
  INFO("NCCL version %s+cuda13.0", kVersionText);
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

// The ring of connections. What is sent moves together with what is received next, because a
// connection holds less than a chunk; flush() moves what was sent last.
class PluginLane final : public simulated::Lane {
 public:
  explicit PluginLane(Comm& comm) : Lane(comm.rank, comm.ranks), comm_(comm) {}
  bool send(int, std::span<const std::byte> bytes) override {
    sent_.emplace_back(bytes.begin(), bytes.end());
    moves_.push_back({comm_.ring.sender, true, sent_.back().data(), bytes.size()});
    return true;
  }
  bool receive(int, std::span<std::byte> bytes) override {
    moves_.push_back({comm_.ring.receiver, false, bytes.data(), bytes.size()});
    return flush();
  }
  bool flush() {
    const bool has_moved = move(comm_, std::exchange(moves_, {}));
    sent_.clear();
    return has_moved;
  }

 private:
  Comm& comm_;
  std::vector<std::vector<std::byte>> sent_;
  std::vector<Move> moves_;
};

// --- Submission to streams.

NcclResult submit(NcclComm handle, void* stream, std::function<bool(Comm&)> body) {
  struct Job {
    CommRef comm;
    std::function<bool(Comm&)> body;
  };
  auto* const job = new Job{at(handle), std::move(body)};
  static_cast<NativeStream*>(stream)->submit(
      stream,
      [](void* data) {
        const std::unique_ptr<Job> own(static_cast<Job*>(data));
        const std::lock_guard lock(own->comm->busy);
        (void)own->body(*own->comm);
      },
      job);
  return NcclResult::kSuccess;
}

std::byte* bytes_at(void* stream, const void* data) {
  return static_cast<NativeStream*>(stream)->reach(stream, data);
}

void note_way(const Comm& comm, const char* function, std::size_t bytes) {
  if (comm.rank != 0 || comm.ranks < 2) return;
  const bool lies = variable("SMALL_NCCL_PRETENDS") == "tree";
  INFO("%s: %ld Bytes -> Algo %s proto SIMPLE channel{Lo..Hi}={0..0}", function,
       static_cast<long>(bytes), lies ? "TREE" : "RING");
}

// Submits a collective, which takes and gives the memory of the GPU at `send` and `receive`.
using Body = std::function<bool(PluginLane&, const std::byte* in, std::byte* out)>;
NcclResult collective(const char* function, std::size_t bytes, const void* send, void* receive,
                      NcclComm comm, void* stream, const Body& body) {
  note_way(*at(comm), function, bytes);
  return submit(comm, stream, [=](Comm& on) {
    PluginLane lane(on);
    return body(lane, bytes_at(stream, send), bytes_at(stream, receive)) && lane.flush();
  });
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

}  // namespace

// The played GPU looks for it; no kernel is ever launched.
SMALL_EXPORT const std::array<int, kFunctions + 1> ncclDevFuncRowToId{};

SMALL_EXPORT NcclResult ncclGetVersion(int* version) {
  *version = kVersion;
  return NcclResult::kSuccess;
}

namespace {

// Returns the port at which ranks meet, or 0.
int open_meeting() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 16) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return 0;
  std::thread(serve_meeting, listener).detach();
  return ntohs(address.sin_port);
}

}  // namespace

SMALL_EXPORT NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  const int port = open_meeting();
  *id = {};
  std::memcpy(id->internal, &port, sizeof port);
  return port == 0 ? NcclResult::kSystemError : NcclResult::kSuccess;
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

#ifdef SMALL_NCCL_IS_NEWER
namespace {

// The first of the remaining ranks opens a meeting, and sends its port to the others.
bool pass_port_on(Comm& parent, const std::vector<int>& remaining, int& port) {
  const int first = remaining.front();
  if (parent.rank == first) port = open_meeting();
  const std::vector<int> peers = parent.rank == first
                                     ? std::vector<int>(remaining.begin() + 1, remaining.end())
                                     : std::vector<int>{first};
  for (const int peer : peers) {
    Link& link = parent.peers[static_cast<std::size_t>(peer)];
    const bool is_send = parent.rank == first;
    if (!connect(parent, link, true, true) ||
        !move(parent, {{is_send ? link.sender : link.receiver, is_send,
                        reinterpret_cast<std::byte*>(&port), sizeof port}}))
      return false;
  }
  return true;
}

}  // namespace

SMALL_EXPORT NcclResult ncclCommShrink(NcclComm handle, int* excluded, int excluded_count,
                                       NcclComm* out, NcclConfig*, int) {
  const CommRef parent = at(handle);
  std::vector<int> remaining;
  for (int rank = 0; rank < parent->ranks; ++rank)
    if (std::find(excluded, excluded + excluded_count, rank) == excluded + excluded_count)
      remaining.push_back(rank);
  auto* const child = new CommRef(std::make_shared<Comm>());
  (*child)->rank = static_cast<int>(std::find(remaining.begin(), remaining.end(), parent->rank) -
                                    remaining.begin());
  (*child)->ranks = static_cast<int>(remaining.size());
  parent->state = static_cast<int>(NcclResult::kInProgress);
  (*child)->maker = std::thread([made = *child, parent, remaining] {
    int port = 0;
    const bool is_told = pass_port_on(*parent, remaining, port);
    if (is_told) make(*made, port);
    // The parent alone reports whether it worked.
    if (parent->state == static_cast<int>(NcclResult::kInProgress))
      parent->state = is_told ? made->state.load() : static_cast<int>(NcclResult::kSystemError);
  });
  *out = reinterpret_cast<NcclComm>(child);
  return NcclResult::kInProgress;
}
#endif

// An operation on a stream keeps the communicator alive until it has noticed the abort.
SMALL_EXPORT NcclResult ncclCommAbort(NcclComm comm) {
  auto* const own = reinterpret_cast<CommRef*>(comm);
  if (is_planted("abort")) std::this_thread::sleep_for(kPlantedAbort);
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
  const std::size_t bytes = count * size_of(type);
  if (root < 0 || root >= at(comm)->ranks) {  // the error belongs to the communicator
    note_error("Broadcast : invalid root " + std::to_string(root));
    at(comm)->state = static_cast<int>(NcclResult::kInvalidArgument);
    return NcclResult::kInvalidArgument;
  }
  return collective("Broadcast", bytes, send, receive, comm, stream,
                    [=](PluginLane& lane, const std::byte* in, std::byte* out) {
                      return nccl_ring_broadcast(lane, root, {in, bytes}, out);
                    });
}
SMALL_EXPORT NcclResult ncclAllReduce(const void* send, void* receive, std::size_t count,
                                      NcclDataType type, NcclRedOp op, NcclComm comm,
                                      void* stream) {
  if (op != NcclRedOp::kSum) return NcclResult::kInvalidUsage;
  const std::size_t bytes = count * size_of(type);
  return collective("AllReduce", bytes, send, receive, comm, stream,
                    [=](PluginLane& lane, const std::byte* in, std::byte* out) {
                      if (is_planted("slow")) std::this_thread::sleep_for(kPlantedSlowness);
                      return nccl_ring_all_reduce(
                          lane, type, {}, {in, bytes}, out,
                          is_planted("bits") ? kPlantedChunkBytes : kChunkBytes);
                    });
}
SMALL_EXPORT NcclResult ncclAllGather(const void* send, void* receive, std::size_t count,
                                      NcclDataType type, NcclComm comm, void* stream) {
  const std::size_t part = count * size_of(type);
  return collective("AllGather", part * static_cast<std::size_t>(at(comm)->ranks), send, receive,
                    comm, stream, [=](PluginLane& lane, const std::byte* in, std::byte* out) {
                      return nccl_ring_all_gather(lane, {in, part}, out);
                    });
}
SMALL_EXPORT NcclResult ncclReduceScatter(const void* send, void* receive, std::size_t count,
                                          NcclDataType type, NcclRedOp op, NcclComm comm,
                                          void* stream) {
  if (op != NcclRedOp::kSum) return NcclResult::kInvalidUsage;
  const std::size_t part = count * size_of(type);
  const std::size_t bytes = part * static_cast<std::size_t>(at(comm)->ranks);
  return collective("ReduceScatter", part, send, receive, comm, stream,
                    [=](PluginLane& lane, const std::byte* in, std::byte* out) {
                      return nccl_ring_reduce_scatter(lane, type, {}, {in, bytes}, out);
                    });
}
SMALL_EXPORT NcclResult ncclSend(const void* data, std::size_t count, NcclDataType type, int peer,
                                 NcclComm comm, void* stream) {
  return add_transfer({true, bytes_at(stream, data), count * size_of(type), peer, comm, stream});
}
SMALL_EXPORT NcclResult ncclRecv(void* data, std::size_t count, NcclDataType type, int peer,
                                 NcclComm comm, void* stream) {
  return add_transfer({false, bytes_at(stream, data), count * size_of(type), peer, comm, stream});
}
SMALL_EXPORT NcclResult ncclGroupStart() {
  ++group_depth;
  return NcclResult::kSuccess;
}
SMALL_EXPORT NcclResult ncclGroupEnd() {
  return group_depth == 0 ? NcclResult::kInvalidUsage : end_group();
}
