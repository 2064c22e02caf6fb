// FileStore: a Store in a directory that many processes share, on one machine or over a network
// file system with working link(2).
//
// Each key is one file. A value is written to a file of its own name first and then linked to the
// key's name, so that a reader sees all of it or nothing, and the first of several writers wins.
// get() looks again every 0.2 ms at first, every 5 ms later, until its deadline.
//
// Use a fresh directory for each run: files stay when a process ends, and files left by a run that
// crashed would be taken for this run's. Nothing here deletes them.
//
// Threads: all calls from any thread; any number of processes.
// Failure: kInvalidArgument when the directory is missing or may not be written, and for a value of
// more than 64 MiB; kTimeout naming
// the key; kCorrupted for a file that another program changed, and for what is no regular file (a
// pipe, a device: nothing waits for them) or has more than 64 MiB; kTransport for everything else
// that the system refuses (a full disk, for one). Every text has the path and the system's reason.
// A set() that failed left the key unset and no file behind.
#pragma once

#include <string>
#include <string_view>

#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class FileStore : public Store {
 public:
  // `directory` must exist. Nothing is touched before the first call.
  explicit FileStore(std::string directory);

  Result<bool> set(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override;
  Result<bool> contains(std::string_view key) override;

 private:
  std::string path_of(std::string_view key) const;

  std::string directory_;
};

// The name of the file that holds `key`: safe for every file system, and different keys have
// different names, but for hash collisions among keys too long to be spelled out (a collision is
// noticed when the file is read).
std::string file_name_of(std::string_view key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
