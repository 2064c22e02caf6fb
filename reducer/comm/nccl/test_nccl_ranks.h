// For the tests of this folder: groups of ranks that are threads of one process, each with a
// QueueDevice, over ThreadNccl.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/comm/nccl/test_thread_nccl.h"
#include "reducer/comm/test_elements.h"

namespace lockstep::testing {

using Group = std::unique_ptr<NcclProcessGroup>;

constexpr std::chrono::seconds kGenerous{60};  // what no test needs
constexpr std::chrono::milliseconds kShort{100};

inline NcclOptions quick(platform::Duration timeout = kGenerous) {
  NcclOptions options;
  options.timeout = timeout;
  options.connect_timeout = kGenerous;
  options.poll = std::chrono::microseconds(200);
  options.notice = std::chrono::milliseconds(1);
  options.grace = std::chrono::milliseconds(50);
  return options;
}

class NcclRanks : public ::testing::Test {
 protected:
  // The rules of nccl_link.h hold in every test.
  ~NcclRanks() override {
    groups.clear();
    EXPECT_THAT(nccl.broken_rules(), ::testing::IsEmpty());
  }

  void make_devices(int size) {
    while (static_cast<int>(devices.size()) < size)
      devices.push_back(std::make_unique<QueueDevice>());
  }
  Device& device(int rank) { return *devices[static_cast<std::size_t>(rank)]; }
  NcclProcessGroup& group(int rank) { return *groups[static_cast<std::size_t>(rank)]; }

  void connect(int size, const NcclOptions& options) {
    make_devices(size);
    groups.resize(static_cast<std::size_t>(size));
    on_ranks(size, [&](int rank) {
      auto made =
          NcclProcessGroup::connect(nccl.api(version), device(rank), store, rank, size, options);
      ASSERT_TRUE(made.has_value()) << made.error().to_string();
      groups[static_cast<std::size_t>(rank)] = std::move(*made);
    });
  }

  ThreadNccl nccl;
  int version = 22809;
  std::shared_ptr<Store> store = std::make_shared<HashStore>();
  std::vector<std::unique_ptr<QueueDevice>> devices;
  std::vector<Group> groups;
};

}  // namespace lockstep::testing
