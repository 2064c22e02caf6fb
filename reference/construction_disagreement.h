// ConstructionDisagreement: the way in which one rank differs from the others when reducers are
// constructed or reset (B4), and what all ranks must answer. kDisagreements is the table of all
// ways.
//
// A program may have one. Before the construction (or the first reset) that it names, the ranks try
// to construct (or reset) their reducers with it, and must all be refused; then they do it once
// more without it, on the same process groups. The refused attempt leaves nothing behind: what is
// expected of the rest of the program does not depend on it.
//
// Plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::reference {

struct Program;

// What a refused construction or reset must answer (B4).
struct Refusal {
  enum class By : std::uint8_t {
    kAgreement,  // every rank: that two ranks differ
    kOneRank,    // that rank its own error, and every other rank the same with that rank's number
    kEveryRank,  // each rank an error of its own
  };
  By by = By::kAgreement;
  std::uint32_t rank = 0;  // the rank that differs, as the world counts it
};

// A row of kDisagreements by its number. The first row is none.
enum class DisagreementKind : std::uint8_t { kNone };

struct DisagreementRow {
  // What a program must have, so that a rank can differ in this way, as a set of bits.
  enum Needs : std::uint32_t {
    kNothing = 0,
    kParameter = 1 << 0,      // one that is listed once and has no replica: it is changed
    kStrides = 1 << 1,        // that one is dense, and could lie in memory in another order
    kDimension = 1 << 2,      // that one trains, and has a dimension
    kRoom = 1 << 3,           // that one trains, is dense, and has two elements in some dimension
    kTwoParameters = 1 << 4,  // two that are listed once
    kNoReplicas = 1 << 5,
    kNoValues = 1 << 6,  // of parameters
    kReduced = 1 << 7,   // a parameter that is reduced
    kVerified = 1 << 8,
    kUnverified = 1 << 9,
    // Without bucket limits that mean something, the agreement refuses, and not the rank.
    kLimits = 1 << 10,
    kVariants = 1 << 11,  // no need: the rank differs in one of several ways
  };
  const char* name;  // in case files
  const char* has;   // what the rank has, in descriptions; {} is a parameter
  std::uint32_t needs = kNothing;
  Refusal::By by = Refusal::By::kAgreement;
};

inline constexpr auto kDisagreements = [] {
  using enum DisagreementRow::Needs;
  using enum Refusal::By;
  constexpr auto kReplica = kParameter | kNoReplicas | kNoValues;
  return std::to_array<DisagreementRow>({
      {"none", "nothing"},
      // An option of the rank differs from that of the others.
      {"mode", "another mode"},
      {"views", "another gradient_as_bucket_view"},
      {"order", "another order of additions", kUnverified},
      {"rebuild", "another rebuild_buckets"},
      {"manual_sync", "another auto_sync"},
      {"limits", "one bucket limit more"},
      {"chunk", "another limit of broadcast chunks"},
      {"keep_buffers", "another broadcast_buffers"},
      {"hook", "another communication hook"},
      {"launch", "another schedule"},
      {"pinned", "another pinned layout"},
      {"verify", "another verify_payload", kVerified},
      // Its parameters differ, or it has a buffer more, or a replica more.
      {"fewer_parameters", "no parameter {}", kParameter | kTwoParameters | kNoReplicas},
      {"more_parameters", "one parameter more", kNoReplicas},
      {"sizes", "another size of parameter {}", kParameter},
      {"strides", "other strides of parameter {}", kParameter | kStrides},
      {"dtype", "another dtype of parameter {}", kParameter},
      {"name", "another name of parameter {}", kParameter},
      {"frozen", "parameter {} frozen where the others do not, or the other way round", kParameter},
      {"sparse", "parameter {} sparse where the others do not, or the other way round",
       kParameter | kDimension},
      {"swapped", "parameter {} in the place of another one",
       kParameter | kTwoParameters | kNoReplicas},
      {"ignored", "parameter {} ignored", kParameter | kNoReplicas},
      {"more_buffers", "one buffer more", kNoReplicas},
      {"more_replicas", "one replica more", kReplica},
      // The rank itself cannot be constructed.
      {"unknown_name", "the name of nothing in its list of ignored ones", kNothing, kOneRank},
      {"no_limits", "no bucket limits", kLimits, kOneRank},
      {"no_trace", "no trace", kNothing, kOneRank},
      {"two_modes", "two modes at once", kNothing, kOneRank},
      {"verify_native", "verified payloads in the order of the transport", kNothing, kOneRank},
      {"null_parameter", "null in place of parameter {}", kParameter, kOneRank},
      {"null_buffer", "a buffer that is null, has no value, or has holes", kNoReplicas | kVariants,
       kOneRank},
      {"holes", "holes in parameter {}", kParameter | kRoom, kOneRank},
      {"replica_sizes", "a replica in which parameter {} has another size", kReplica, kOneRank},
      {"replica_list", "a replica with a shorter list of parameters", kReplica, kOneRank},
      // Its process group can do less; or its backward group has another size, or another rank.
      {"group_dtype", "a group that cannot sum its dtypes, or a backward group of other ranks",
       kReduced | kVariants, kOneRank},
      {"group_device", "a group that cannot reach its device, or a backward group of other ranks",
       kReduced | kVariants, kOneRank},
      {"group_verify", "a group that cannot verify payloads, or a backward group of other ranks",
       kVerified | kVariants, kOneRank},
      // Every rank pins one layout, and it is not one of the program's parameters (B3).
      {"layout", "a pinned layout of other parameters, as every rank has", kNothing, kEveryRank},
      // A buffer that is another one in a replica, or the same one (P15).
      {"replica_buffer",
       "a replica in which a buffer has another dtype or size, or no value, or is that of the "
       "first replica",
       kNoReplicas | kVariants, kOneRank},
  });
}();

constexpr const DisagreementRow& row_of(DisagreementKind kind) {
  return kDisagreements[static_cast<std::size_t>(kind)];
}
consteval DisagreementKind disagreement_named(std::string_view name) {
  std::size_t kind = kDisagreements.size() - 1;
  while (kDisagreements[kind].name != name) --kind;  // no constant, if there is none
  return static_cast<DisagreementKind>(kind);
}

constexpr std::uint32_t kDisagreementVariants = 60;  // kinds have 3, 4 or 5 ways: as often each

struct ConstructionDisagreement {
  DisagreementKind kind = DisagreementKind::kNone;
  std::uint32_t rank = 0;  // which rank differs, modulo those that are left
  bool at_reset = false;   // at the first reset, and not at the construction
  std::uint32_t pick = 0;  // which of the parameters that can be changed, modulo their number
  // In which of several ways a buffer or a group differs, in rows with variants; otherwise 0.
  std::uint32_t variant = 0;
};

// `members`: the ranks, as the world counts them, that construct or reset together. Empty if they
// do not notice the disagreement, because there is no other rank that could differ.
std::optional<Refusal> refusal_of(const Program& program,
                                  const std::vector<std::uint32_t>& members);
// Whether all ranks must refuse the first reset.
bool is_reset_refused(const Program& program);

// The parameters of the first reducer that the rank may list in another form: not ignored, listed
// once, without replicas.
std::vector<std::uint32_t> changeable_parameters(const Program& program);
// Which of these is changed: the one of `pick`, of those for which it makes a difference. Empty if
// there is none, or if the kind changes no parameter.
std::optional<std::uint32_t> changed_parameter(const Program& program);

// Takes a disagreement away that the program cannot have. Called by normalize().
void limit_disagreement(Program& program);

}  // namespace lockstep::reference
