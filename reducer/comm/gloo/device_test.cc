#include "reducer/comm/gloo/device.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "reducer/comm/gloo/forwarding_transport.h"
#include "reducer/comm/gloo/test_refused_threads.h"

namespace lockstep {
namespace {

TEST(SharedDevice, IsOneForTheProcessAndGoesWithItsLastUser) {
  auto first = shared_device("127.0.0.1").value();
  auto second = shared_device("127.0.0.1").value();
  EXPECT_EQ(first, second);
  std::weak_ptr<::gloo::transport::Device> gone = first;
  first.reset();
  second.reset();
  EXPECT_TRUE(gone.expired());
}

TEST(SharedDevice, AddressThatIsNotOursIsAClearError) {
  for (const char* address : {"203.0.113.7", "no-such-host.invalid", "256.1.1.1"}) {
    const auto device = shared_device(address);
    ASSERT_FALSE(device.has_value()) << address;
    EXPECT_EQ(device.error().code(), Code::kInvalidArgument);
    EXPECT_NE(device.error().to_string().find(address), std::string::npos);
  }
}

TEST(SharedDevice, ARefusedThreadIsToldAsOne) {
  const testing::RefusedThreads refused;
  const auto device = shared_device("127.0.0.1");
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code(), Code::kTransport);
  const std::string text = device.error().to_string();
  EXPECT_NE(text.find("refused a thread"), std::string::npos) << text;
  EXPECT_EQ(text.find("address"), std::string::npos) << text;
}

// Returns, by descriptor, the number of Hurry objects of each event that this process has open.
std::map<std::string, long> events() {
  std::map<std::string, long> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream file(entry.path());
    std::string line;
    while (std::getline(file, line))
      if (line.starts_with("eventfd-count:"))
        found[entry.path().filename()] = std::stol(line.substr(line.find(':') + 1), nullptr, 16);
  }
  return found;
}

TEST(EventLoop, IsHurriedForAsLongAsSomebodyHurries) {
  const auto device = shared_device("127.0.0.1").value();
  const auto before = events();
  {
    const EventLoop loop(device);
    std::string event;
    for (const auto& [descriptor, count] : events())
      if (before.count(descriptor) == 0) event = descriptor;
    ASSERT_NE(event, "");
    EXPECT_EQ(events()[event], 0);
    {
      const EventLoop::Hurry first(loop);
      EXPECT_EQ(events()[event], 1);
      {
        const EventLoop::Hurry second(loop);
        EXPECT_EQ(events()[event], 2);
      }
      EXPECT_EQ(events()[event], 1);
    }
    EXPECT_EQ(events()[event], 0);
  }
  EXPECT_EQ(events(), before);
}

TEST(EventLoop, OfADeviceThatIsNotTcpIsLeftAlone) {
  const auto device = std::make_shared<ForwardingDevice>(shared_device("127.0.0.1").value(),
                                                         [](const ForwardedSend&) {});
  const auto before = events();
  const EventLoop loop(device);
  const EventLoop::Hurry hurry(loop);
  EXPECT_EQ(events(), before);
}

}  // namespace
}  // namespace lockstep
