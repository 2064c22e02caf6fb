// Child: a forked process that runs a subject, with a socket between it and the parent. The subject
// shares the child's process, and may do anything to it: end it, hang it, close its descriptors or
// write to them, and print without end (output_limit.h). Therefore the child reports that it is
// done with a number that only the two processes know; any other end of the connection is a crash.
// Every wait here has a limit.
//
// A child may also send a signal to this program. Where the program's handler asks
// is_signal_of_child(), such a signal is a crash of the child, and not the user's wish to end the
// program. A signal that cannot be handled (SIGKILL, SIGSTOP) ends or stops the program.
//
// Threads: one caller, in a process without other threads (it forks). Failure: start() returns the
// system's error; how_lost() says in words how a child was lost.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "properties/process/last_words.h"
#include "properties/process/output_limit.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

// Returns whether `sender` is a child of this process, or a process of a child's group. The next
// receive() from that child then says that it is lost. For signal handlers, with the number of the
// signal and the process that sent it, which is 0 for a signal of the kernel's (Ctrl-C).
bool is_signal_of_child(int signal, pid_t sender) noexcept;

// The child's end.
class ChildLine {
 public:
  ChildLine(int fd, std::uint64_t nonce) : fd_(fd), nonce_(nonce) {}
  bool send(const std::string& text);     // false if the other end is gone
  bool receive(std::string& text) const;  // waits; false if the other end is gone
  // Ends the child if a subject has closed the child's end, or has written to it what the parent
  // has not read yet. Called between two cases, so that the right case is blamed.
  void check();
  // Reports that the child is done, and ends it as it is: nothing is destroyed.
  [[noreturn]] void finish();

 private:
  friend class Child;
  bool say(char kind, const std::string& text);
  int unread_by_parent() const;

  const int fd_;
  const std::uint64_t nonce_;
  // How much the parent had not read at the last look, all of it the child's own. What somebody
  // else writes while the parent reads as much or more of that goes unnoticed until the parent
  // comes to it.
  int unread_ = 0;
};

class Child {
 public:
  // `clean_up` removes what a child that was killed may have left behind. It is called after the
  // end of each child, with the number of its process.
  explicit Child(std::function<void(pid_t)> clean_up = {}) : clean_up_(std::move(clean_up)) {}
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Runs `body` in the child, which has none of the lines to other children. When `body` returns,
  // the child finishes.
  Status start(const std::function<void(ChildLine&)>& body);

  bool is_running() const { return pid_ > 0; }
  int fd() const { return fd_; }        // for poll()
  pid_t group() const { return pid_; }  // the process group of the child and of its children
  // Whether the child has ended, so that receive() returns at once, even if another process still
  // holds the child's socket.
  bool has_ended() const;
  // Returns whether receive() has something to tell at once: a message, an end or a signal.
  bool has_news() const;

  // Returns false if the child does not read the text within some seconds.
  bool send(const std::string& text);

  enum class Received : std::uint8_t {
    kMessage,
    kNothing,   // within `limit`
    kFinished,  // it has finished, and is gone
    kLost,      // it is gone in another way; how_lost() says how
  };
  Received receive(std::string& text, std::chrono::milliseconds limit);
  // "was killed by signal 6 (Aborted)"
  const std::string& how_lost() const { return how_lost_; }
  // As waitpid() returned it; nothing if the child was lost in another way than by its end.
  std::optional<int> end_status() const { return end_status_; }
  // Returns the stacks of the child (last_words.h): where a signal has ended it, or, while it runs,
  // where its threads are; nothing if it could not say. Before end(), and once.
  std::string take_stacks();

  // Kills the child and the processes of its group.
  void end();

 private:
  Received lose(const std::string& why);      // once it has ended, or some time has passed
  Received lose_now(const std::string& how);  // kills it

  const std::function<void(pid_t)> clean_up_;
  pid_t pid_ = -1;
  int fd_ = -1;
  std::uint64_t nonce_ = 0;
  std::string how_lost_;
  std::optional<int> end_status_;
  std::unique_ptr<LastWords> words_;  // of the child that runs, or was lost
  OutputLimit output_;                // of the child that runs
};

// Runs `work` in a child, which may hang or crash, and returns what it returns; or `silence` after
// the limit; or how the child was lost.
std::string ask_in_child(const std::function<std::string()>& work, std::chrono::milliseconds limit,
                         const std::string& silence);

}  // namespace lockstep::properties
