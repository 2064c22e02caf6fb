// Connections that are not those of ranks, and messages that Gloo refuses: both end in a Status, on
// every rank, and never in the end of the process (F1).
#include "reducer/comm/gloo/guarded_transport.h"

#include <arpa/inet.h>
#include <gloo/common/error.h>
#include <gloo/transport/tcp/address.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/comm/gloo/mesh.h"
#include "reducer/failure_board.h"

extern "C" std::size_t malloc_usable_size(void* memory) noexcept;  // of the GNU C library

namespace lockstep::testing {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kGuardTime{2000};
constexpr std::size_t kSecretBytes = sizeof(GuardedPair::Secret);

// A TCP connection to the first address that a rank has published for its peer.
class Stranger {
 public:
  explicit Stranger(const std::string& published) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const ::gloo::transport::tcp::Address any;
    const std::size_t bytes = any.bytes().size();
    for (std::string_view left = published; left.size() >= sizeof(std::uint32_t);) {
      std::uint32_t length = 0;
      std::memcpy(&length, left.data(), sizeof length);
      left.remove_prefix(sizeof length);
      if (length >= bytes) {
        const ::gloo::transport::tcp::Address to(
            std::vector<char>(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(bytes)));
        is_connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&to.getSockaddr()),
                                  sizeof(sockaddr_in)) == 0;
        return;
      }
      left.remove_prefix(length);
    }
  }
  ~Stranger() { ::close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  bool is_connected() const { return is_connected_; }
  void send(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // What the rank sends before it closes the connection.
  std::string receive_all() const {
    std::string all;
    char bytes[64];
    for (ssize_t count = 0; (count = ::recv(socket_, bytes, sizeof bytes, 0)) > 0;)
      all.append(bytes, static_cast<std::size_t>(count));
    return all;
  }

 private:
  const int socket_;
  bool is_connected_ = false;
};

GlooContextOptions soon() {
  GlooContextOptions connection;
  connection.timeout = kGuardTime;
  return connection;
}

// What rank 1 publishes. Of two ranks the one with the larger address connects, and the other
// waits.
std::string addresses_of_a_peer_that_connects() {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in&>(storage);
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  EXPECT_EQ(::inet_pton(AF_INET, "127.255.255.254", &address.sin_addr), 1);
  std::vector<char> entry = ::gloo::transport::tcp::Address(storage).bytes();
  entry.resize(entry.size() + sizeof(GuardedPair::Secrets));
  const auto length = static_cast<std::uint32_t>(entry.size());
  std::string published(reinterpret_cast<const char*>(&length), sizeof length);
  return published.append(entry.begin(), entry.end());
}

// One rank connects; in the place of its peer there is a stranger, who knows the address alone.
Status meet_stranger(const std::string& greeting, std::string& answer) {
  const auto store = std::make_shared<HashStore>();
  Status status;
  platform::Thread rank("rank", [&] {
    auto group = GlooProcessGroup::connect(store, 0, 2, {}, soon());
    if (!group) status = group.error();
  });
  EXPECT_TRUE(store->set("here/1", "2").value());
  const auto published = store->get("address/0", Deadline::in(kGuardTime));
  EXPECT_TRUE(published.has_value());
  const Stranger stranger(published.value());
  EXPECT_TRUE(stranger.is_connected());
  stranger.send(greeting);
  if (greeting.size() >= kSecretBytes) answer = stranger.receive_all();
  EXPECT_TRUE(store->set("address/1", addresses_of_a_peer_that_connects()).value());
  rank.join();
  return status;
}

TEST(GuardedTransport, F1AConnectionWithoutTheSecretIsRefusedAndGetsNothing) {
  for (const std::string& greeting :
       {std::string(kSecretBytes, '\0'), std::string("hello, is it you?")}) {
    std::string answer;
    const Status status = meet_stranger(greeting, answer);
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(concerns_group(status.code())) << status.to_string();
    EXPECT_NE(status.to_string().find("not that of a rank of this group"), std::string::npos)
        << status.to_string();
    EXPECT_EQ(answer, "");
  }
}

TEST(GuardedTransport, F1AStrangerWhoSaysNothingCostsNoMoreThanTheTimeout) {
  for (const std::string& greeting : {std::string(), std::string(kSecretBytes - 1, 'x')}) {
    std::string answer;
    const auto limit = Deadline::in(seconds(20));
    const Status status = meet_stranger(greeting, answer);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), Code::kTimeout) << status.to_string();
    EXPECT_FALSE(limit.passed());
  }
}

// The positive control of the two above: whoever has the secret of the store is let in.
TEST(GuardedTransport, EveryPairOfAGroupIsGuardedAndAuthenticates) {
  Groups groups = connect_threads(3, {});
  for (int rank = 0; rank < 3; ++rank)
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      auto& mesh = groups[static_cast<std::size_t>(rank)]->context()->mesh();
      EXPECT_NE(dynamic_cast<GuardedPair*>(mesh.transport()->getPair(peer).get()), nullptr);
    }
  on_groups(groups, [](int, GlooProcessGroup& group) {
    const Status status = run(group, Collective());
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

// GuardedPair is made of what Gloo's headers say of a pair, and of the functions of Gloo's library.
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
  const auto device = std::make_shared<GuardedDevice>("127.0.0.1");
  const auto context = device->createContext(0, 3);
  const auto secrets_of = [&](int peer) {
    return dynamic_cast<GuardedPair&>(*context->createPair(peer)).secrets();
  };
  const GuardedPair::Secrets one = secrets_of(1);
  const GuardedPair::Secrets other = secrets_of(2);
  EXPECT_NE(one.knock, other.knock);
  EXPECT_NE(one.answer, other.answer);
  EXPECT_NE(one.knock, one.answer);
}

// Stands for a message that Gloo's checks refuse: from some event on, what reads it throws as Gloo
// does.
class RefusingDevice final : public GuardedDevice {
 public:
  explicit RefusingDevice(std::atomic<bool>& refuses)
      : GuardedDevice("127.0.0.1"), refuses_(refuses) {}
  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<RefusingContext>(shared_from_this(), rank, size, refuses_);
  }

 private:
  class RefusingPair final : public GuardedPair {
   public:
    RefusingPair(::gloo::transport::tcp::Context* context, ::gloo::transport::tcp::Device* device,
                 int rank, milliseconds timeout, std::atomic<bool>& refuses)
        : GuardedPair(context, device, rank, timeout), refuses_(refuses) {}

   protected:
    void transfer(int events) override {
      if (refuses_) throw ::gloo::Exception("a check of this test");
      GuardedPair::transfer(events);
    }

   private:
    std::atomic<bool>& refuses_;
  };
  class RefusingContext final : public GuardedContext {
   public:
    RefusingContext(std::shared_ptr<::gloo::transport::tcp::Device> device, int own, int ranks,
                    std::atomic<bool>& refuses)
        : GuardedContext(std::move(device), own, ranks), refuses_(refuses) {}

   protected:
    std::unique_ptr<GuardedPair> make_pair(int peer) override {
      return std::make_unique<RefusingPair>(this, device_.get(), peer, getTimeout(), refuses_);
    }

   private:
    std::atomic<bool>& refuses_;
  };

  std::atomic<bool>& refuses_;
};

TEST(GuardedTransport, F1WhatGlooRefusesOnItsThreadIsAnErrorOfEveryRank) {
  std::atomic<bool> refuses{false};
  std::array<Status, 3> statuses;
  const auto store = std::make_shared<HashStore>();
  on_ranks(3, [&](int rank) {
    GlooContextOptions connection = soon();
    if (rank == 1) connection.device = std::make_shared<RefusingDevice>(refuses);
    auto group = GlooProcessGroup::connect(store, rank, 3, {}, connection);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    ASSERT_TRUE(run(**group, Collective()).ok());
    EXPECT_TRUE(store->set("done/" + std::to_string(rank), "").value());
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_TRUE(
          store->get("done/" + std::to_string(peer), Deadline::in(seconds(20))).has_value());
    if (rank == 1) {
      refuses = true;
      EXPECT_TRUE(store->set("refuses", "").value());
    }
    EXPECT_TRUE(store->get("refuses", Deadline::in(seconds(20))).has_value());
    statuses[static_cast<std::size_t>(rank)] = run(**group, Collective());
  });
  for (const Status& status : statuses) {
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(concerns_group(status.code())) << status.to_string();
  }
  EXPECT_NE(statuses[1].to_string().find("Gloo refuses what the peer has sent: "),
            std::string::npos)
      << statuses[1].to_string();
}

}  // namespace
}  // namespace lockstep::testing
