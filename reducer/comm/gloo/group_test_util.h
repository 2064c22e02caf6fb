// Helpers for the tests of this folder: groups whose ranks are threads.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/gloo/gloo_process_group.h"
#include "reducer/comm/gloo/test_util.h"
#include "reducer/comm/test_elements.h"

namespace lockstep::testing {

using Group = std::unique_ptr<GlooProcessGroup>;
using Groups = std::vector<Group>;

inline GlooOptions with_timeout(std::chrono::milliseconds timeout) {
  GlooOptions options;
  options.timeout = timeout;
  return options;
}

// The connections under test: the ranks share memory, or send over TCP where the second run of the
// tests says so.
inline GlooContextOptions tested_connection() {
  GlooContextOptions connection;
  connection.share_memory = std::getenv("LOCKSTEP_TEST_OVER_TCP") == nullptr;
  return connection;
}

// Connects as GlooProcessGroup::connect() does, over the connections under test.
inline Result<Group> connect_rank(std::shared_ptr<Store> store, int rank, int size,
                                  const GlooOptions& options) {
  GlooContextOptions connection = tested_connection();
  connection.timeout = options.timeout;
  return GlooProcessGroup::connect(std::move(store), rank, size, options, connection);
}

// Makes groups of `size` ranks in this process, all connected.
inline Groups connect_threads(int size, const GlooOptions& options,
                              const GlooContextOptions& connection = tested_connection()) {
  auto store = std::make_shared<HashStore>();
  Groups groups(static_cast<std::size_t>(size));
  on_ranks(size, [&](int rank) {
    auto group = GlooProcessGroup::connect(store, rank, size, options, connection);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    groups[static_cast<std::size_t>(rank)] = std::move(*group);
  });
  return groups;
}

// Runs body(rank, group) for all groups at once.
inline void on_groups(Groups& groups, const std::function<void(int, GlooProcessGroup&)>& body) {
  on_ranks(static_cast<int>(groups.size()),
           [&](int rank) { body(rank, *groups[static_cast<std::size_t>(rank)]); });
}

}  // namespace lockstep::testing
