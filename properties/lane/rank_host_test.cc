// `lockstep rank` and what its controller sends: a rank ends in peace only when its controller
// hangs up. Whatever else cannot be understood is an error that says so.
#include "properties/lane/rank_host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "properties/hosts/controller.h"
#include "properties/process/message.h"

namespace lockstep::properties {
namespace {

const std::string kSecretText = "0123456789abcdef0123456789abcdef";

// Runs a rank whose controller says `what` on the rank's line, and then hangs up.
Status rank_that_hears(const std::function<void(int fd)>& what) {
  const std::string file = ::testing::TempDir() + "rank_host_secret_" + std::to_string(::getpid());
  std::ofstream(file) << kSecretText;
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  auto controller = hosts::Controller::listen({"127.0.0.1", 0}, hosts::Secret(kSecretText),
                                              [](const std::string&) {});
  EXPECT_TRUE(controller) << controller.error().to_string();
  (*controller)->expect_ranks(1);
  Status status;
  std::thread rank([&] {
    RankHostOptions options;
    options.store = (*controller)->address().to_string();
    options.secret_file = file;
    status = run_rank_host(options);
  });
  {
    auto line = (*controller)->take_rank(0, hosts::Clock::now() + std::chrono::seconds(60));
    EXPECT_TRUE(line) << line.error().to_string();
    if (line) what(line->fd());
  }
  rank.join();
  std::filesystem::remove(file);
  return status;
}

void write_bytes(int fd, const std::string& bytes) {
  ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

TEST(RankHost, EndsInPeaceWhenItsControllerHangsUp) {
  const Status status = rank_that_hears([](int) {});
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(RankHost, EndsWithAnErrorAfterWhatIsNoMessage) {
  const Status status =
      rank_that_hears([](int fd) { write_bytes(fd, "HTTP/1.1 400 Bad Request\r\n\r\n"); });
  ASSERT_EQ(status.code(), Code::kCorrupted) << status.to_string();
  EXPECT_NE(status.to_string().find("what is no message"), std::string::npos);
}

TEST(RankHost, EndsWithAnErrorAfterAMessageThatNoControllerSends) {
  for (const char* const text : {"", "?", "q", "q{}", "q[1, 2]"}) {
    const Status status = rank_that_hears([&](int fd) { ASSERT_TRUE(send_message(fd, text)); });
    EXPECT_EQ(status.code(), Code::kCorrupted) << "'" << text << "': " << status.to_string();
  }
}

}  // namespace
}  // namespace lockstep::properties
