// Layout: which gradients travel together, and where each lies in its bucket (contract B1, B2, B3,
// B5). A pure function of the parameters and the limits: the same on every rank, whatever addresses
// or hashes are.
//
// Units: counts and offsets in elements, limits in bytes. A Layout is a value; it does not change
// once made. A bucket of more bytes than any memory has is refused (kInvalidArgument), whether it
// is made or loaded: nothing here wraps around.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reducer/base/dtype.h"
#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

constexpr std::size_t kMemberAlignmentBytes = 64;

// What the assignment has to know of a parameter. Shared parameters appear once.
struct ParameterInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  int device = 0;
  std::int64_t elements = 0;
  bool requires_grad = true;
  bool sparse = false;  // its gradients are (S1)
};

struct BucketMember {
  std::size_t parameter = 0;  // index into the parameters
  std::int64_t offset = 0;    // of its first element in the bucket
  std::int64_t elements = 0;
};

struct BucketLayout {
  DType dtype = DType::kFloat32;
  int device = 0;
  std::int64_t elements = 0;  // padding between members included
  bool sparse = false;        // of one parameter with sparse gradients: it has no memory
  std::vector<BucketMember> members;
};

struct Layout {
  std::vector<BucketLayout> buckets;  // in launch order
  std::uint64_t hash = 0;             // of everything above
  // The limits that it was made with, for the record; empty if it came from lists of buckets.
  std::vector<std::uint64_t> limits;

  bool operator==(const Layout& other) const { return hash == other.hash; }
};

// B1 and B2: every group of (dtype, device) fills buckets in the order of parameters; a bucket
// closes when it reaches its limit: limits[i] for the group's i-th bucket, the last limit for all
// further ones. A parameter with sparse gradients has a bucket of its own, besides. The list,
// ordered by first members, is reversed. Parameters that require no gradient are left out. An empty
// list of limits is an error.
Result<Layout> assign_buckets(std::span<const ParameterInfo> parameters,
                              std::span<const std::uint64_t> limits);

// B2, after a pass was recorded: the same walk over `order`, which holds the indices of all
// parameters that require a gradient, in the order in which they got ready; the list stays in that
// order. B5: an index that is out of range, twice or missing, or of a frozen parameter, is an
// error.
Result<Layout> assign_buckets_in_order(std::span<const ParameterInfo> parameters,
                                       std::span<const std::uint64_t> limits,
                                       std::span<const std::size_t> order);

// A layout from explicit bucket contents, in launch order; offsets are computed. B5: an index out
// of range, twice or missing, a frozen parameter, mixed dtypes or devices in a bucket, one with
// sparse gradients beside others, or an empty bucket are errors that name it.
Result<Layout> layout_from_buckets(std::span<const ParameterInfo> parameters,
                                   std::span<const std::vector<std::size_t>> buckets);

// B3: a layout as a few lines of text, to be kept with a checkpoint and pinned in the run that goes
// on from there (ReducerOptions::pinned_layout). What it names are indices of parameters.
std::string save(const Layout& layout);

// Reads what save() wrote. kInvalidArgument, with the line, for anything else, for another
// alignment, and for a text whose hash is not that of its contents.
Result<Layout> load_layout(std::string_view text);

// B5: whether the layout is one of these parameters. The error says what differs.
Status check_layout(const Layout& layout, std::span<const ParameterInfo> parameters);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
