// FileStore is a Store in a directory that many processes share, on one machine or over a network
// file system with working link(2).
//
// Each key is one file. set() writes a value to a file of its own name first and then links that
// file to the key's name, so that a reader sees all of the value or nothing, and the first of
// several writers wins. get() looks again every 0.2 ms at first, and every 5 ms later, until its
// deadline.
//
// Use a fresh directory for each run: files stay when a process ends, and a run would mistake files
// left by a crashed run for its own. The class deletes no values.
//
// Threads: all calls from any thread; any number of processes.
// Failure: kInvalidArgument when the directory is missing or not writable, and for a value of more
// than 64 MiB; kTimeout, which names the key; kCorrupted for a file that another program changed,
// for one that is no regular file (a pipe or a device; nothing waits for them), and for one of more
// than 64 MiB; kTransport for everything else that the system refuses (a full disk, for example).
// Every text has the path and the system's reason. A set() that failed leaves the key unset and no
// file behind.
#pragma once

#include <string>
#include <string_view>

#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class FileStore : public Store {
 public:
  // `directory` must exist. The constructor does not touch it.
  explicit FileStore(std::string directory);

  Result<bool> set(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override;
  Result<bool> contains(std::string_view key) override;

 private:
  std::string path_of(std::string_view key) const;

  std::string directory_;
};

// The name of the file that holds `key`. It is safe for every file system. Different keys have
// different names, except for hash collisions among keys too long to be spelled out (a reader
// notices a collision).
std::string file_name_of(std::string_view key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
