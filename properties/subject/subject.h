// Subject: the reducer under test, as the command line names it, and what is known of it before it
// runs.
//
// Threads: any; select one planted bug per process at a time. Failure: one line that says what is
// wrong with the name or the library, and what to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "properties/case/capabilities.h"
#include "properties/subject/profile.h"
#include "reducer/base/status.h"

struct lockstep_subject;

namespace lockstep::properties {

// Selects the reducer under test.
struct Subject {
  enum class Kind : std::uint8_t {
    kProduction,
    kSeeded,  // the production reducer with the planted bug `id`
    kHosted,  // a user's, from the shared library `id`
    kTorch,   // PyTorch's, in the program `rank_program` (properties/subject/torch)
    kPython,  // a user's wrapper in Python (properties/subject/python)
  };
  Kind kind = Kind::kProduction;
  // kTorch: the version, the folder, or empty for the system's; kPython: FILE:FUNCTION.
  std::string id;
  // For kHosted: set after the library was opened in this process, where it remains open until the
  // process ends.
  const lockstep_subject* table = nullptr;
  // Of kHosted: the table is this program's own, so that ranks cannot be other processes.
  bool is_in_this_program = false;
  Capabilities capabilities = Capabilities::lockstep();
  Profile profile;  // whose behaviour it is held to
  // Whether it is held to Lockstep's contract instead of its own.
  bool is_held_to_lockstep = false;
  // kTorch, kPython: the program of the ranks, and its arguments before the command.
  std::string rank_program;
  std::vector<std::string> rank_arguments;
  // For kProduction: a layout that save() wrote, pinned whatever the case says; and whether to
  // write one.
  std::string pinned_layout;
  bool saves_layout = false;
  // A second subject that runs every case, too, and must agree with this one (CaseRunner); or null.
  std::shared_ptr<const Subject> against;

  // As on the command line: reducer, seeded:R01, torch:2.9.1, python:ddp.py:wrap, ./libmine.so.
  std::string name() const;
  // Whether it brings its own engine and process group, and so has the lane gloo alone,
  // or with kTorch the lane hosts, too.
  bool has_own_group() const { return kind == Kind::kTorch || kind == Kind::kPython; }
};

// Returns what cases may require of the subject, or of both subjects if there are two. With two,
// cases have no errors either, because two subjects report errors in different calls and words.
Capabilities common_capabilities(const Subject& subject);

// Returns the id of the planted bug in the subject, or in the one beside it; empty if there is
// none.
std::string planted_bug_of(const Subject& subject);

// Reads "reducer", "seeded:ID", "torch", "torch:VERSION", "torch:FOLDER", "python:FILE:FUNCTION" or
// a path. On failure, returns one line that says what is wrong and what to do. Opens a library in
// this process.
Result<Subject> parse_subject(const std::string& text);

// Like parse_subject(), but opens a library only in a child process, so that a library that ends or
// hangs its process does no harm. The subject has no table: open_subject() follows later, in the
// process that runs the cases.
Result<Subject> find_subject(const std::string& text);

// Holds the subject to the values alone, whatever its arithmetic and layout are
// (Profile::any_arithmetic), and leaves it the cases in which they are exact.
void hold_to_values_alone(Subject& subject);

// Opens in this process the libraries of the subject, and of the one that it runs against, that are
// not open yet, and selects a planted bug. A process that runs cases calls it first.
Status open_subject(Subject& subject);

}  // namespace lockstep::properties
