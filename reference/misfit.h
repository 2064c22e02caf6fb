// Misfit: the way in which one rank does not fit the others when reducers are constructed or reset
// (B4), and what all ranks must answer.
//
// A program may have one misfit. Before the construction (or the first reset) that it names, the
// ranks try to construct (or reset) their reducers with the misfit, and must all be refused; then
// they do it once more without it, on the same process groups. The refused attempt leaves nothing
// behind: what is expected of the rest of the program does not depend on the misfit.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::reference {

struct Program;

enum class MisfitKind : std::uint8_t {
  kNone,
  // An option of the rank differs from that of the others: the mode, views, the order of additions,
  // the rebuild, manual sync, the bucket limits, the chunks of broadcasts, the broadcast of
  // buffers, the communication hook, when buckets are reduced, the pinned layout, verification.
  kMode,
  kViews,
  kOrder,
  kRebuild,
  kManualSync,
  kLimits,
  kChunk,
  kKeepBuffers,
  kHook,
  kLaunch,
  kPinned,
  kVerify,
  // The rank's parameters differ: one is missing, one is added; one has another size, strides,
  // dtype or name, is frozen where the others' is not (or the other way round), or has sparse
  // gradients (or not); two are listed in the other order; one is ignored.
  kFewerParameters,
  kMoreParameters,
  kSizes,
  kStrides,
  kDType,
  kName,
  kFrozen,
  kSparse,
  kSwapped,
  kIgnored,
  // The rank has a buffer more, or a replica more.
  kMoreBuffers,
  kMoreReplicas,
  // The rank itself cannot be constructed: it ignores a name that nothing has, has no bucket
  // limits, keeps no trace, is in two modes, verifies sums in the order of the transport, lists a
  // null parameter, or a buffer that is null or without a value or with holes, has a parameter with
  // holes, a replica of another size, or one with a shorter list.
  kUnknownName,
  kNoLimits,
  kNoTrace,
  kTwoModes,
  kVerifyNative,
  kNullParameter,
  kNullBuffer,
  kHoles,
  kReplicaSizes,
  kReplicaList,
  // The rank's process group cannot sum a dtype, cannot reach a device, or cannot verify; or its
  // backward group has another size, or gives it another rank.
  kGroupDType,
  kGroupDevice,
  kGroupVerify,
  // Every rank pins one layout, and it is not one of the program's parameters (B3).
  kLayout,
  // The rank has a buffer more, and a replica in which that one has another dtype or size
  // or no value, or is the very same one, or two replicas in which it is one (P15).
  kReplicaBuffer,
};
constexpr MisfitKind kLastMisfit = MisfitKind::kReplicaBuffer;
constexpr std::uint32_t kMisfitVariants = 60;  // kinds have 3, 4 or 5 ways: as often each

struct Misfit {
  MisfitKind kind = MisfitKind::kNone;
  std::uint32_t rank = 0;  // which rank does not fit, modulo those that are left
  bool at_reset = false;   // at the first reset, and not at the construction
  std::uint32_t pick = 0;  // which of the parameters that can be changed, modulo their number
  // In which of several ways a buffer or a group does not fit (kNullBuffer, kReplicaBuffer, and
  // groups); otherwise 0.
  std::uint32_t variant = 0;
};

// What a refused construction or reset must answer (B4).
struct Refusal {
  enum class By : std::uint8_t {
    kAgreement,  // every rank: that two ranks differ
    kOneRank,    // that rank its own error, and every other rank the same with that rank's number
    kEveryRank,  // each rank an error of its own
  };
  By by = By::kAgreement;
  std::uint32_t rank = 0;  // the rank that does not fit, as the world counts it
};

// `members`: the ranks, as the world counts them, that construct or reset together. Empty if they
// do not notice the misfit, because there is no other rank that could differ.
std::optional<Refusal> refusal_of(const Program& program,
                                  const std::vector<std::uint32_t>& members);

// The parameters of the first reducer that the rank may list in another form: not ignored, listed
// once, without replicas.
std::vector<std::uint32_t> changeable_parameters(const Program& program);
// Which of these a misfit changes: the one of Misfit::pick, of those for which it makes a
// difference. Empty if there is none, or if the kind changes no parameter.
std::optional<std::uint32_t> changed_parameter(const Program& program);

// Takes a misfit away that the program cannot have. Called by normalize().
void limit_misfit(Program& program);

}  // namespace lockstep::reference
