// Lane: where a case is run on a subject. `sim` is deterministic, on one thread, in virtual time;
// `gloo` is real TCP, with ranks as threads or as processes; `nccl` is a GPU, with ranks as
// processes.
//
// Threads: one caller. A lane keeps what is dear to set up (stacks, connections) from one case to
// the next. Failure: what goes wrong in the case is in the Observation. A subject may end or hang
// the process: see cli/server.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "properties/case/case.h"
#include "properties/lane/observation.h"
#include "properties/subject/capabilities.h"
#include "reference/contract.h"
#include "reference/expectation.h"

struct lockstep_subject;

namespace lockstep::properties {

enum class LaneKind : std::uint8_t { kSim, kGloo, kNccl };
const char* name_of(LaneKind kind);

// Which reducer is under test.
struct Subject {
  enum class Kind : std::uint8_t {
    kProduction,
    kSeeded,  // the production reducer with the planted bug `id`
    kHosted,  // a user's, from the shared library `id`
    kTorch,   // PyTorch's, in the program `rank_program` (properties/subject/torch)
  };
  Kind kind = Kind::kProduction;
  std::string id;
  // kHosted, once the library is open in this process, where it stays until the process ends.
  const lockstep_subject* table = nullptr;
  Capabilities capabilities = Capabilities::all();
  // What it is held to.
  reference::Contract contract = reference::Contract::lockstep();
  std::string rank_program;  // kTorch: what ranks run in
  // kProduction: what save() wrote, pinned whatever the case says; and whether it is to write.
  std::string pinned_layout;
  bool saves_layout = false;
  // A second one that runs every case, too, and must agree with this one (CaseRunner); or null.
  std::shared_ptr<const Subject> against;

  std::string name() const;  // as on the command line: reducer, seeded:R01, torch, ./libmine.so
};

// What cases may ask of the subject, or of both, if there are two: then no error either, as errors
// are told in other calls and other words.
Capabilities common_capabilities(const Subject& subject);

// The id of the planted bug in the subject, or in the one beside it; empty: none.
std::string planted_bug_of(const Subject& subject);

// Reads "reducer", "seeded:ID", "torch" or a path; otherwise one line of what is wrong and what to
// do. A library is opened, in this process.
Result<Subject> parse_subject(const std::string& text);

// The same, but a library is opened in a child process alone, so that one which ends or hangs
// whatever opens it takes nothing else with it. The subject has no table: open_subject() comes
// later, where the cases are run.
Result<Subject> find_subject(const std::string& text);

// Opens in this process what of the subject, and of the one that it runs against, is not open yet.
Status open_subject(Subject& subject);

class Lane {
 public:
  virtual ~Lane() = default;
  // `expectation` is the model's, without recoveries: it says where the program itself must fail.
  virtual void run(const Case& c, const reference::Expectation& expectation,
                   Observation& observation) = 0;
};

// Whether this program has the lane for the subject, and for the one beside it (real_lanes.h).
bool has_lane(LaneKind kind, const Subject& subject);

std::unique_ptr<Lane> make_lane(LaneKind kind, const Subject& subject);  // has_lane()

}  // namespace lockstep::properties
