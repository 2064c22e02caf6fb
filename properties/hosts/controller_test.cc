// The controller's store over TCP, and the peers that it refuses. Each refusal is one line, and the
// ranks that behave go on: every test ends with one that does.
#include "properties/hosts/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "properties/hosts/store_client.h"
#include "properties/hosts/store_wire.h"

namespace lockstep::properties::hosts {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kLong = seconds(60);
const std::string kSecret = "0123456789abcdef0123456789abcdef";

Clock::time_point late() { return Clock::now() + kLong; }

class ControllerTest : public ::testing::Test {
 protected:
  ControllerTest() { start({}); }

  void start(ControllerLimits limits) {
    controller_.reset();
    auto made = Controller::listen(
        {"127.0.0.1", 0}, Secret(kSecret),
        [this](const std::string& line) {
          const std::scoped_lock lock(mutex_);
          lines_.push_back(line);
        },
        limits);
    ASSERT_TRUE(made) << made.error().to_string();
    controller_ = std::move(*made);
    controller_->expect_ranks(3);
    controller_->begin_generation();
  }

  StoreClient client(std::uint32_t rank = 0, std::uint64_t generation = 1,
                     const std::string& secret = kSecret) {
    return StoreClient(controller_->address(), Secret(secret), rank, generation);
  }
  Line connect() {
    Result<Line> line = connect_to(controller_->address(), late());
    EXPECT_TRUE(line);
    return std::move(*line);
  }
  // A connection that has shown the secret.
  Line connect_as_rank() {
    Result<Line> line =
        connect_as(controller_->address(), Secret(kSecret), {Role::kStore, 0, 1}, late());
    EXPECT_TRUE(line);
    return std::move(*line);
  }
  static void wait_until_closed(const Line& line) {
    char byte = 0;
    Status status;
    while (status.ok()) status = line.read(&byte, 1, late());
    EXPECT_EQ(status.code(), Code::kPeerLost) << status.to_string();
  }
  // The lines that were reported; waits until there are so many.
  std::vector<std::string> reports(std::size_t count) {
    const auto deadline = late();
    while (Clock::now() < deadline) {
      {
        const std::scoped_lock lock(mutex_);
        if (lines_.size() >= count) return lines_;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return {};
  }
  void expect_that_others_go_on() {
    StoreClient good = client(2);
    const Result<bool> is_new = good.set("others", "go on");
    ASSERT_TRUE(is_new) << is_new.error().to_string();
    const Result<std::string> value = client(1).get("others", kLong);
    ASSERT_TRUE(value) << value.error().to_string();
    EXPECT_EQ(*value, "go on");
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;  // guarded by mutex_
  std::unique_ptr<Controller> controller_;
};

TEST_F(ControllerTest, KeepsTheFirstValueOfAKey) {
  StoreClient one = client(0);
  StoreClient two = client(1);
  EXPECT_EQ(one.set("key", std::string("a\0b", 3)), true);
  EXPECT_EQ(two.set("key", "other"), false);
  EXPECT_EQ(two.get("key", kLong), std::string("a\0b", 3));
  EXPECT_EQ(one.contains("key"), true);
  EXPECT_EQ(one.contains("none"), false);
  EXPECT_THAT(reports(0), IsEmpty());
}

TEST_F(ControllerTest, GetWaitsForTheKeyAndOtherThreadsOfTheRankGoOn) {
  StoreClient shared = client(0);
  std::thread waits([&] { EXPECT_EQ(shared.get("later", kLong), "value"); });
  EXPECT_EQ(shared.get("never", milliseconds(20)).error().code(), Code::kTimeout);
  EXPECT_EQ(shared.set("later", "value"), true);
  waits.join();
}

TEST_F(ControllerTest, RefusesAnotherSecret) {
  const Result<bool> set = client(0, 1, "another secret of 32 characters.").set("key", "value");
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(set.error().failure().detail, HasSubstr("wrong secret"));
  EXPECT_THAT(reports(1), ElementsAre(HasSubstr("wrong secret")));
  EXPECT_EQ(client(1).contains("key"), false);
  expect_that_others_go_on();
}

// A server that the rank takes for its controller must have the secret, too.
TEST_F(ControllerTest, ARankRefusesAControllerWithAnotherSecret) {
  Address address{"127.0.0.1", 0};
  Result<Line> listener = listen_on(address);
  ASSERT_TRUE(listener);
  std::thread impostor([&] {
    pollfd entry{listener->fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
    const Line line(::accept(listener->fd(), nullptr, nullptr));
    ASSERT_TRUE(line.write("lockstp1" + std::string(kNonceBytes, 'n'), late()).ok());
    char greeting[8 + 13 + kNonceBytes + kProofBytes];
    ASSERT_TRUE(line.read(greeting, sizeof greeting, late()).ok());
    ASSERT_TRUE(line.write("\x01" + std::string(kProofBytes, 'p'), late()).ok());
  });
  const Result<Line> line = connect_as(address, Secret(kSecret), {Role::kRank, 0, 0}, late());
  impostor.join();
  ASSERT_FALSE(line);
  EXPECT_THAT(line.error().failure().detail, HasSubstr("has another secret"));
}

// The same bytes once more are no proof: the controller has drawn another number.
TEST_F(ControllerTest, RefusesAGreetingThatWasSentBefore) {
  std::string recorded(8 + 13 + kNonceBytes + kProofBytes, '\0');
  Address address{"127.0.0.1", 0};
  Result<Line> listener = listen_on(address);
  ASSERT_TRUE(listener);
  std::thread rank([&] {
    EXPECT_FALSE(connect_as(address, Secret(kSecret), {Role::kRank, 0, 0}, late()));
  });
  {
    pollfd entry{listener->fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
    const Line line(::accept(listener->fd(), nullptr, nullptr));
    ASSERT_TRUE(line.write("lockstp1" + std::string(kNonceBytes, 'n'), late()).ok());
    ASSERT_TRUE(line.read(recorded.data(), recorded.size(), late()).ok());
    ASSERT_TRUE(line.write(std::string(3, '\0'), late()).ok());
  }
  rank.join();
  const Line replayed = connect();
  ASSERT_TRUE(replayed.write(recorded, late()).ok());
  EXPECT_THAT(reports(1), ElementsAre(HasSubstr("wrong secret")));
  expect_that_others_go_on();
}

TEST_F(ControllerTest, RefusesWhoSpeaksAnotherProtocol) {
  const Line line = connect();
  ASSERT_TRUE(line.write("GET / HTTP/1.1\r\nHost: here\r\n\r\n", late()).ok());
  wait_until_closed(line);
  EXPECT_THAT(reports(1), ElementsAre(HasSubstr("does not speak Lockstep's protocol")));
  expect_that_others_go_on();
}

TEST_F(ControllerTest, ClosesALineOnWhichNobodySpeaks) {
  start({.handshake = milliseconds(200)});
  const Line silent = connect();
  expect_that_others_go_on();
  wait_until_closed(silent);
  EXPECT_THAT(reports(1), ElementsAre(HasSubstr("said nothing more before the deadline")));
  expect_that_others_go_on();
}

TEST_F(ControllerTest, SilentPeersCannotTakeAllConnections) {
  start({.handshake = milliseconds(500), .strangers = 2});
  std::vector<Line> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(connect());
  expect_that_others_go_on();  // its ranks try again until the strangers are gone
  for (const Line& each : silent) wait_until_closed(each);
}

TEST_F(ControllerTest, RefusesLengthsThatNobodyCanMean) {
  for (const int place : {9, 17}) {
    const Line line = connect_as_rank();
    std::string request(kRequestBytes, '\0');
    request[0] = kSet;
    request[static_cast<std::size_t>(place)] = '\x80';  // 2^63
    ASSERT_TRUE(line.write(request, late()).ok());
    wait_until_closed(line);
  }
  EXPECT_THAT(reports(2), ElementsAre(HasSubstr("a key of 9223372036854775808 bytes"),
                                      HasSubstr("a value of 9223372036854775808 bytes")));
  expect_that_others_go_on();
}

TEST_F(ControllerTest, RefusesARequestThatNeverEnds) {
  start({.request = milliseconds(200)});
  const Line line = connect_as_rank();
  ASSERT_TRUE(line.write(std::string(1, kSet), late()).ok());
  wait_until_closed(line);
  EXPECT_THAT(reports(1), ElementsAre(HasSubstr("said nothing more before the deadline")));
  expect_that_others_go_on();
}

TEST_F(ControllerTest, RefusesWhatNoStoreDoes) {
  const Line line = connect_as_rank();
  ASSERT_TRUE(line.write(std::string(kRequestBytes, '?'), late()).ok());
  wait_until_closed(line);
  EXPECT_THAT(reports(1), ElementsAre(HasSubstr("no store does")));
  expect_that_others_go_on();
}

TEST_F(ControllerTest, RefusesWhatIsMoreThanTheStoreTakes) {
  start({.value_bytes = 100, .store_bytes = 150});
  StoreClient rank = client();
  EXPECT_EQ(rank.set("a", std::string(100, 'a')), true);
  const Result<bool> second = rank.set("b", std::string(100, 'b'));
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().failure().detail, HasSubstr("the store is full"));
  const Result<bool> large = rank.set("c", std::string(101, 'c'));
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().failure().detail, HasSubstr("a value of 101 bytes: 100 at most"));
  EXPECT_EQ(rank.contains("a"), true);
  expect_that_others_go_on();
}

TEST_F(ControllerTest, RefusesAnOldGeneration) {
  StoreClient old = client(0, 1);
  EXPECT_EQ(old.set("key", "old"), true);
  std::thread waits([&] {
    const Result<std::string> value = old.get("never", kLong);
    ASSERT_FALSE(value);
    EXPECT_THAT(value.error().failure().detail, HasSubstr("this is generation 2"));
  });
  EXPECT_EQ(old.contains("key"), true);
  EXPECT_EQ(controller_->begin_generation(), 2U);
  waits.join();
  const Result<bool> set = old.set("late", "old");  // over a connection from before, or a new one
  ASSERT_FALSE(set);
  EXPECT_THAT(set.error().failure().detail, HasSubstr("generation 1"));
  StoreClient fresh = client(0, 2);
  EXPECT_EQ(fresh.contains("key"), false);
  EXPECT_EQ(fresh.contains("late"), false);
  EXPECT_FALSE(client(0, 3).contains("key"));  // nor one that has not begun
}

TEST_F(ControllerTest, TakesOneLineForEachRank) {
  const Secret secret(kSecret);
  const Address address = controller_->address();
  Result<Line> first = connect_as(address, secret, {Role::kRank, 1, 0}, late());
  ASSERT_TRUE(first);
  const Result<Line> second = connect_as(address, secret, {Role::kRank, 1, 0}, late());
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().failure().detail, HasSubstr("rank 1 is here already"));
  const Result<Line> fourth = connect_as(address, secret, {Role::kRank, 3, 0}, late());
  ASSERT_FALSE(fourth);
  EXPECT_THAT(fourth.error().failure().detail, HasSubstr("there is no rank 3"));
  Result<Line> taken = controller_->take_rank(1, late());
  ASSERT_TRUE(taken);
  ASSERT_TRUE(first->write("case", late()).ok());
  char bytes[4];
  ASSERT_TRUE(taken->read(bytes, sizeof bytes, late()).ok());
  EXPECT_EQ(std::string(bytes, 4), "case");
  EXPECT_EQ(controller_->take_rank(2, Clock::now()).error().code(), Code::kTimeout);
  controller_->release_rank(1);
  EXPECT_TRUE(connect_as(address, secret, {Role::kRank, 1, 0}, late()));
}

TEST(Secret, IsReadFromAFile) {
  const std::string file =
      (std::filesystem::temp_directory_path() / "lockstep-secret-test").string();
  using std::filesystem::perms;
  const auto write = [&](const std::string& text) {
    std::ofstream(file) << text;
    std::filesystem::permissions(file, perms::owner_read | perms::owner_write);
  };
  write(kSecret + "\n");
  const Result<Secret> one = Secret::read(file);
  ASSERT_TRUE(one);
  EXPECT_TRUE(one->accepts("text", Secret(kSecret).prove("text")));
  EXPECT_FALSE(one->accepts("other text", Secret(kSecret).prove("text")));
  write("short\n");
  EXPECT_THAT(Secret::read(file).error().failure().detail, HasSubstr("openssl rand"));
  write(std::string(5000, 'x'));
  EXPECT_FALSE(Secret::read(file));
  write(kSecret + "\n");
  for (const perms other : {perms::group_read, perms::others_read, perms::others_write}) {
    std::filesystem::permissions(file, perms::owner_read | other);
    const Result<Secret> open = Secret::read(file);
    ASSERT_FALSE(open);
    EXPECT_THAT(open.error().failure().detail, HasSubstr("make it yours alone with: chmod 600 "));
  }
  std::filesystem::remove(file);
  EXPECT_THAT(Secret::read(file).error().failure().detail, HasSubstr("No such file"));
}

// RFC 4231, test case 2.
TEST(Secret, ProvesByHmacSha256) {
  const Proof proof = Secret("Jefe").prove("what do ya want for nothing?");
  EXPECT_EQ(number_at(proof.data(), 8), 0x5bdcc146bf60754eU);
}

TEST(Address, IsRead) {
  EXPECT_EQ(read_address("tcp://node1:29500")->host, "node1");
  EXPECT_EQ(read_address("tcp://[::1]:1")->to_string(), "tcp://[::1]:1");
  for (const char* wrong :
       {"", "node1:1", "tcp://node1", "tcp://:1", "tcp://n:65536", "tcp://n:1x"})
    EXPECT_FALSE(read_address(wrong)) << wrong;
  const auto line = connect_to({"no-such-host.invalid", 1}, Clock::now());
  ASSERT_FALSE(line);
  EXPECT_THAT(line.error().failure().detail, HasSubstr("does not resolve"));
}

// Both ends take memory for what has come, whatever is announced.
TEST_F(ControllerTest, ATextThatIsAnnouncedAndDoesNotComeTakesNoMemory) {
  Address address{"127.0.0.1", 0};
  Result<Line> listener = listen_on(address);
  ASSERT_TRUE(listener);
  Result<Line> sender = connect_to(address, late());
  ASSERT_TRUE(sender);
  pollfd entry{listener->fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
  const Line line(::accept(listener->fd(), nullptr, nullptr));
  ASSERT_TRUE(sender->write("some bytes", late()).ok());
  std::string text;
  constexpr std::uint64_t kAnnounced = std::uint64_t{1} << 30;
  const Status status = line.read_text(text, kAnnounced, Clock::now() + milliseconds(100));
  EXPECT_EQ(status.code(), Code::kTimeout) << status.to_string();
  EXPECT_LT(text.capacity(), kAnnounced / 16);
  const std::string whole(300'000, 'w');
  std::thread writer([&] { EXPECT_TRUE(sender->write(whole, late()).ok()); });
  EXPECT_TRUE(line.read_text(text, whole.size(), late()).ok());
  writer.join();
  EXPECT_EQ(text, whole);
}

// A flood of strangers, or a controller that is gone, says nothing about a key.
TEST_F(ControllerTest, AStoreThatIsNotReachedIsNoKeyThatIsNotSet) {
  StoreClient rank = client();
  EXPECT_EQ(rank.get("never", milliseconds(1)).error().code(), Code::kTimeout);
  const Address address = controller_->address();
  controller_.reset();
  const Result<std::string> gone = rank.get("never", milliseconds(1));
  ASSERT_FALSE(gone);
  EXPECT_NE(gone.error().code(), Code::kTimeout) << gone.error().to_string();
  // Somebody else accepts connections there, and says nothing.
  Address same = address;
  Result<Line> silent = listen_on(same);
  ASSERT_TRUE(silent);
  const Result<std::string> mute = rank.get("never", milliseconds(1));
  ASSERT_FALSE(mute);
  EXPECT_EQ(mute.error().code(), Code::kTransport) << mute.error().to_string();
  EXPECT_THAT(mute.error().failure().detail, HasSubstr("does not answer"));
}

// A rank does not take what it cannot read for an answer.
TEST_F(ControllerTest, AnAnswerThatNoStoreGivesIsAnError) {
  for (const char operation : {kSet, kGet, kContains}) {
    Address address{"127.0.0.1", 0};
    Result<Line> listener = listen_on(address);
    ASSERT_TRUE(listener);
    std::thread store([&] {
      pollfd entry{listener->fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
      const Line line(::accept(listener->fd(), nullptr, nullptr));
      ASSERT_TRUE(answer(
          line, Secret(kSecret), [](const Greeting&) { return std::string(); }, late()));
      char request[kRequestBytes + 1];
      ASSERT_TRUE(line.read(request, sizeof request, late()).ok());
      std::string reply(1, '?');
      put_number(reply, 0, 8);
      ASSERT_TRUE(line.write(reply, late()).ok());
    });
    StoreClient rank(address, Secret(kSecret), 0, 1);
    const Status status = operation == kGet   ? rank.get("k", kLong).error()
                          : operation == kSet ? rank.set("k", "").error()
                                              : rank.contains("k").error();
    store.join();
    EXPECT_EQ(status.code(), Code::kCorrupted) << status.to_string();
  }
}

}  // namespace
}  // namespace lockstep::properties::hosts
