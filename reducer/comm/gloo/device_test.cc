#include "reducer/comm/gloo/device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "reducer/comm/gloo/forwarding_transport.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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

// Processor time of the threads that `make` begins, in ticks of the system's clock.
class TimeOfThreads {
 public:
  explicit TimeOfThreads(const std::function<void()>& make) {
    const std::set<std::string> before = threads();
    make();
    for (const std::string& thread : threads())
      if (before.count(thread) == 0) threads_.push_back(thread);
  }
  std::size_t count() const { return threads_.size(); }
  long ticks() const {
    long sum = 0;
    for (const std::string& thread : threads_) {
      std::ifstream file(thread + "/stat");
      std::string line;
      std::getline(file, line);
      std::istringstream fields(line.substr(line.rfind(')') + 2));
      std::string skipped;
      for (int i = 0; i < 11; ++i) fields >> skipped;
      long user = 0;
      long system = 0;
      EXPECT_TRUE(fields >> user >> system) << thread;
      sum += user + system;
    }
    return sum;
  }

 private:
  static std::set<std::string> threads() {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
      found.insert(entry.path());
    return found;
  }
  std::vector<std::string> threads_;
};

bool comes_true_within(seconds limit, const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end)
    if (what()) return true;
  return false;
}

// The processor time of a device's loop.
struct LoopTime {
  std::shared_ptr<::gloo::transport::Device> device;
  const TimeOfThreads time{[this] { device = shared_device("127.0.0.1").value(); }};

  bool comes_to_rest() const {
    return comes_true_within(seconds(60), [this] {
      const long before = time.ticks();
      std::this_thread::sleep_for(milliseconds(200));
      return time.ticks() == before;
    });
  }
  bool runs() const {
    const long before = time.ticks();
    return comes_true_within(seconds(60), [&] { return time.ticks() > before + 10; });
  }
};

TEST(EventLoop, TurnsWithoutPauseOnlyWhileSomebodyHurries) {
  const LoopTime it;
  ASSERT_EQ(it.time.count(), 1u);
  const EventLoop loop(it.device);
  EXPECT_TRUE(it.comes_to_rest());
  {
    const EventLoop::Hurry first(loop);
    { const EventLoop::Hurry second(loop); }
    EXPECT_TRUE(it.runs()) << "one of two still hurries";
  }
  EXPECT_TRUE(it.comes_to_rest());
}

TEST(EventLoop, OfADeviceThatIsNotTcpIsLeftAlone) {
  const LoopTime it;
  const EventLoop loop(std::make_shared<ForwardingDevice>(it.device, [](const ForwardedSend&) {}));
  const EventLoop::Hurry hurry(loop);
  EXPECT_TRUE(it.comes_to_rest());
}

}  // namespace
}  // namespace lockstep
