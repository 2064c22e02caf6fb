// Connections that are not those of ranks, and messages that Gloo refuses, end no process: ranks
// connect in spite of strangers, and what Gloo refuses is a Status on every rank (F1).
#include "reducer/comm/gloo/guarded_transport.h"

#if LOCKSTEP_GLOO_IS_GUARDED

#include <arpa/inet.h>
#include <gloo/common/error.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/test_ranks.h"

extern "C" std::size_t malloc_usable_size(void* memory) noexcept;  // of the GNU C library

namespace lockstep::testing {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kStrangerLimit{60};
constexpr std::size_t kSecretsBytes = 2 * kSecretBytes;

std::string entry_of(const std::string& bytes) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes;
}

std::vector<std::string> entries_of(std::string_view published) {
  std::vector<std::string> entries;
  for (std::uint32_t length = 0; published.size() >= sizeof length;) {
    std::memcpy(&length, published.data(), sizeof length);
    entries.emplace_back(published.substr(sizeof length, length));
    published.remove_prefix(sizeof length + entries.back().size());
  }
  return entries;
}

// What somebody publishes who knows no secret.
std::string entry_of(const sockaddr_in& address) {
  sockaddr_storage storage{};
  std::memcpy(&storage, &address, sizeof address);
  const std::vector<char> bytes = ::gloo::transport::tcp::Address(storage).bytes();
  return entry_of(std::string(bytes.begin(), bytes.end()) + std::string(kSecretsBytes, '\0'));
}

sockaddr_in address_of(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  EXPECT_EQ(::inet_pton(AF_INET, host, &address.sin_addr), 1);
  return address;
}

// A socket whose calls end after kStrangerLimit.
class Socket {
 public:
  explicit Socket(int descriptor = ::socket(AF_INET, SOCK_STREAM, 0)) : descriptor_(descriptor) {
    EXPECT_GE(descriptor_, 0);
    const timeval limit = {kStrangerLimit.count(), 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Socket() { ::close(descriptor_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_; }
  void send(const std::string& bytes) const {
    EXPECT_EQ(::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // What the other end sends before it closes the connection.
  std::string receive_all() const {
    std::string all;
    char bytes[64];
    ssize_t count = 0;
    while ((count = ::recv(descriptor_, bytes, sizeof bytes, 0)) > 0)
      all.append(bytes, static_cast<std::size_t>(count));
    EXPECT_TRUE(count == 0 || errno == ECONNRESET) << std::strerror(errno);
    return all;
  }

 private:
  const int descriptor_;
};

// A store that tells of the addresses that a rank publishes before others see them. Then nobody but
// a stranger can have come to the ports.
class SpiedStore final : public Store {
 public:
  explicit SpiedStore(std::function<void(const std::string&)> spy) : spy_(std::move(spy)) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    if (key.starts_with("address/")) spy_(std::string(value));
    return inner_.set(key, value);
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    return inner_.get(key, deadline);
  }
  Result<bool> contains(std::string_view key) override { return inner_.contains(key); }

 private:
  HashStore inner_;
  const std::function<void(const std::string&)> spy_;
};

// The strangers of one rank's ports.
class Strangers {
 public:
  // Each greets every port with one of `greetings`.
  void visit(const std::string& published, const std::vector<std::string>& greetings) {
    for (const std::string& entry : entries_of(published)) {
      if (entry.empty()) continue;  // There is no connection of a rank to itself.
      for (const std::string& greeting : greetings) {
        auto socket = std::make_unique<Socket>();
        sockaddr_in to{};
        std::memcpy(&to,
                    &::gloo::transport::tcp::Address(
                         std::vector<char>(entry.begin(), entry.end() - kSecretsBytes))
                         .getSockaddr(),
                    sizeof to);
        ASSERT_EQ(::connect(socket->descriptor(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0)
            << std::strerror(errno);
        socket->send(greeting);
        sockets_.push_back(std::move(socket));
      }
    }
  }
  std::size_t count() const { return sockets_.size(); }
  void expect_nothing() const {
    for (const auto& socket : sockets_) EXPECT_EQ(socket->receive_all(), "");
  }

 private:
  std::vector<std::unique_ptr<Socket>> sockets_;
};

void expect_ranks_connect_beside(const std::vector<std::string>& greetings) {
  std::array<Strangers, 3> strangers;
  platform::Mutex mutex{"test.strangers"};
  std::size_t next = 0;
  const auto store = std::make_shared<SpiedStore>([&](const std::string& published) {
    const platform::MutexLock lock(mutex);
    ASSERT_LT(next, strangers.size());
    strangers[next++].visit(published, greetings);
  });
  on_ranks(3, [&](int rank) {
    GlooContextOptions connection;
    connection.share_memory = false;
    connection.timeout = kStrangerLimit;
    auto group = GlooProcessGroup::connect(store, rank, 3, {}, connection);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    const Status status = run(**group, Collective());
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
  for (const Strangers& each : strangers) {
    EXPECT_EQ(each.count(), 2 * greetings.size());
    each.expect_nothing();
  }
}

TEST(GuardedTransport, F1RanksConnectBesideStrangersWhoGetNothing) {
  expect_ranks_connect_beside({"", "hello", std::string(kSecretBytes, '\0'),
                               std::string(kSecretBytes - 1, 'x'), "is this the port of a rank?"});
}

TEST(GuardedTransport, F1RanksConnectBesideMoreStrangersThanAPortRemembers) {
  expect_ranks_connect_beside(std::vector<std::string>(kMostGuests + 4));
}

// The one who listens in the place of rank 1 sends `answer` after the knock, and closes the
// connection if it is to.
Status connect_to_impostor(const std::string& answer, bool closes, milliseconds timeout) {
  const Socket listener;
  sockaddr_in own = address_of("127.0.0.1", 0);
  socklen_t length = sizeof own;
  EXPECT_EQ(::bind(listener.descriptor(), reinterpret_cast<sockaddr*>(&own), length), 0);
  EXPECT_EQ(::listen(listener.descriptor(), 1), 0);
  EXPECT_EQ(::getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&own), &length), 0);
  const auto store = std::make_shared<HashStore>();
  EXPECT_TRUE(store->set("here/1", "2").value_or(false));
  EXPECT_TRUE(store->set("address/1", entry_of(own) + entry_of(std::string())).value_or(false));
  Status status;
  on_ranks(2, [&](int who) {
    if (who == 0) {
      GlooContextOptions connection;
      connection.share_memory = false;
      connection.timeout = timeout;
      connection.address = "127.0.0.2";  // The rank with the larger address connects.
      auto group = GlooProcessGroup::connect(store, 0, 2, {}, connection);
      if (!group) status = group.error();
      return;
    }
    const Socket connection(::accept(listener.descriptor(), nullptr, nullptr));
    connection.send(answer);
    if (closes) return;
    connection.receive_all();
  });
  return status;
}

TEST(GuardedTransport, F1WhoListensInThePlaceOfARankIsRefused) {
  const Status wrong = connect_to_impostor(std::string(kSecretBytes, 'x'), false, kStrangerLimit);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.to_string().find("is no rank of this group"), std::string::npos)
      << wrong.to_string();
  const Status closed = connect_to_impostor("x", true, kStrangerLimit);
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.code(), Code::kPeerLost) << closed.to_string();
  const Status silent = connect_to_impostor("", false, milliseconds(500));
  ASSERT_FALSE(silent.ok());
  EXPECT_EQ(silent.code(), Code::kTimeout) << silent.to_string();
}

// A rank that does not come is a timeout, whoever else has come.
TEST(GuardedTransport, F1AStrangerDoesNotStandForARankThatIsMissing) {
  Strangers strangers;
  const auto store = std::make_shared<SpiedStore>([&](const std::string& published) {
    if (strangers.count() == 0) strangers.visit(published, {"", "hello"});
  });
  EXPECT_TRUE(store->set("here/1", "2").value_or(false));
  GlooContextOptions connection;
  connection.share_memory = false;
  connection.timeout = milliseconds(500);
  on_ranks(2, [&](int who) {
    if (who == 1) {
      // Of two ranks the one with the smaller address waits for the other one.
      EXPECT_TRUE(store->get("address/0", Deadline::in(kStrangerLimit)).has_value());
      const auto larger = entry_of(address_of("127.255.255.254", 9));
      EXPECT_TRUE(store->set("address/1", larger).value_or(false));
      return;
    }
    auto group = GlooProcessGroup::connect(store, 0, 2, {}, connection);
    ASSERT_FALSE(group.has_value());
    EXPECT_EQ(group.error().code(), Code::kTimeout) << group.error().to_string();
    EXPECT_EQ(group.error().failure().suspect, 1);
  });
  EXPECT_EQ(strangers.count(), 2u);
  strangers.expect_nothing();
}

// A guarded pair is made of what Gloo's headers say of a pair, and of the functions of Gloo's
// library.
TEST(GuardedTransport, PairsHaveTheSizeThatGloosLibraryGivesThem) {
  const auto device = std::make_shared<::gloo::transport::tcp::Device>(
      ::gloo::transport::tcp::CreateDeviceAttr("127.0.0.1"));
  const auto context = device->createContext(0, 2);
  const auto& pair = context->createPair(1);
  // The whole object: the interface of a pair is its first part.
  const std::size_t usable = ::malloc_usable_size(pair.get());
  EXPECT_GE(usable, sizeof(::gloo::transport::tcp::Pair));
  EXPECT_LT(usable, sizeof(::gloo::transport::tcp::Pair) + 2 * alignof(std::max_align_t));
}

TEST(GuardedTransport, SecretsAreOthersForEveryConnectionAndDirection) {
  const auto device = make_guarded_device("127.0.0.1");
  const auto context = device->createContext(0, 3);
  std::set<std::string> secrets;
  for (const int peer : {1, 2}) {
    const std::vector<char> invitation = invitation_of(*context->createPair(peer));
    ASSERT_GT(invitation.size(), kSecretsBytes);
    const std::string shown(invitation.end() - kSecretsBytes, invitation.end());
    secrets.insert(shown.substr(0, kSecretBytes));
    secrets.insert(shown.substr(kSecretBytes));
  }
  EXPECT_EQ(secrets.size(), 4u);
}

// Stands for a message that Gloo's checks refuse: from some event on, the event loop throws as Gloo
// does.
TEST(GuardedTransport, F1WhatGlooRefusesOnItsThreadIsAnErrorOfEveryRank) {
  std::atomic<bool> refuses{false};
  std::array<Status, 3> statuses;
  const auto store = std::make_shared<HashStore>();
  on_ranks(3, [&](int rank) {
    GlooContextOptions connection;
    connection.share_memory = false;
    connection.timeout = kStrangerLimit;
    if (rank == 1)
      connection.device = make_guarded_device("127.0.0.1", [&] {
        if (refuses) throw ::gloo::Exception("a check of this test");
      });
    auto group = GlooProcessGroup::connect(store, rank, 3, {}, connection);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    const Status before = run(**group, Collective());
    EXPECT_TRUE(before.ok()) << before.to_string();
    EXPECT_TRUE(store->set("done/" + std::to_string(rank), "").has_value());
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_TRUE(
          store->get("done/" + std::to_string(peer), Deadline::in(kStrangerLimit)).has_value());
    if (rank == 1) {
      refuses = true;
      EXPECT_TRUE(store->set("refuses", "").has_value());
    }
    EXPECT_TRUE(store->get("refuses", Deadline::in(kStrangerLimit)).has_value());
    std::array<float, 3> ones = {1, 1, 1};  // No rank has the sum without what rank 1 adds.
    Collective sum;
    sum.count = ones.size();
    sum.data = reinterpret_cast<std::byte*>(ones.data());
    statuses[static_cast<std::size_t>(rank)] = run(**group, sum);
  });
  for (const Status& status : statuses) {
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(concerns_group(status.code())) << status.to_string();
  }
  EXPECT_NE(statuses[1].to_string().find("Gloo refuses what came from "), std::string::npos)
      << statuses[1].to_string();
}

}  // namespace
}  // namespace lockstep::testing

#endif
