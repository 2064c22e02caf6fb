// PartFiles: the folder of one part below the campaign's, such as part-0003. Nobody else writes
// there, so a folder that several machines share is enough. It holds log.jsonl (part_log.h), the
// failing cases, and a lock, which keeps a second process from running the same part. The lock
// belongs to the process: it goes when the process ends, however it ends.
//
// Every line is written by one call, and a line that could not be written whole is removed again.
// sync() returns when the disk has what was appended.
//
// Threads: one caller. Failure: one line with the path, the system's reason, and what to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "properties/campaign/part_log.h"

namespace lockstep::properties {

std::string part_folder(const std::string& campaign, std::uint64_t part);
std::string part_log_file(const std::string& campaign, std::uint64_t part);

std::string host_name();

class PartFiles {
 public:
  PartFiles() = default;
  ~PartFiles();
  PartFiles(const PartFiles&) = delete;
  PartFiles& operator=(const PartFiles&) = delete;

  // Makes or opens the folder, takes the lock, removes a torn last line, and reads the log. If a
  // process of another machine has the lock, it waits up to `patience_seconds`: the file system may
  // notice the end of a lost machine late.
  Status open(const std::string& campaign, const CampaignPart& part, int patience_seconds);

  const PartHistory& history() const { return history_; }
  const std::string& folder() const { return folder_; }

  Status append(const std::string& line);
  Status sync();

 private:
  Status lock(const CampaignPart& part, int patience_seconds);
  Status read(const CampaignPart& part);

  std::string folder_;
  std::string path_;
  int lock_ = -1;
  int log_ = -1;
  std::uint64_t bytes_ = 0;  // of the log
  PartHistory history_;
};

// Returns whether some process holds the lock of the part, and so runs it.
bool is_running(const std::string& campaign, std::uint64_t part);

// The logs of all parts that have one, ascending; also while processes append to them.
Result<std::vector<PartHistory>> read_parts(const std::string& campaign);

}  // namespace lockstep::properties
