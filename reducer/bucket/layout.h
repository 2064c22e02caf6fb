// Layout says which gradients share a bucket, and where each lies in its bucket (contract B1, B2,
// B3, B5). It is a pure function of the parameters and the limits: it is the same on every rank,
// whatever addresses or hashes are.
//
// Units: counts and offsets are in elements, limits in bytes. A Layout is a value; it does not
// change once made. A bucket with more bytes than any memory has is refused (kInvalidArgument),
// whether it is computed or loaded; no number wraps around.
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

// What the assignment needs to know about a parameter. A shared parameter appears once.
struct ParameterInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  int device = 0;
  std::int64_t elements = 0;
  bool requires_grad = true;
  bool sparse = false;  // Whether its gradients are sparse (S1).
};

struct BucketMember {
  std::size_t parameter = 0;  // The index into the parameters.
  std::int64_t offset = 0;    // The offset of its first element in the bucket.
  std::int64_t elements = 0;
};

struct BucketLayout {
  DType dtype = DType::kFloat32;
  int device = 0;
  std::int64_t elements = 0;  // The padding between members counts.
  // True for the bucket of one parameter with sparse gradients, which has no memory.
  bool sparse = false;
  std::vector<BucketMember> members;
};

struct Layout {
  std::vector<BucketLayout> buckets;  // In launch order.
  std::uint64_t hash = 0;             // The hash of everything above.
  // The limits that the layout was made with, for information; empty if the layout was made from
  // lists of buckets.
  std::vector<std::uint64_t> limits;

  bool operator==(const Layout& other) const { return hash == other.hash; }
};

// Assigns parameters to buckets (B1, B2). Every group of (dtype, device) fills buckets in the order
// of parameters. A bucket closes when it reaches its limit: limits[i] for the group's i-th bucket,
// and the last limit for all further ones. Each parameter with sparse gradients has a bucket of its
// own in addition. The buckets are sorted by their first members, and the list is then reversed.
// Parameters that require no gradient are left out. An empty list of limits is an error.
Result<Layout> assign_buckets(std::span<const ParameterInfo> parameters,
                              std::span<const std::uint64_t> limits);

// Assigns parameters to buckets after a pass was recorded (B2). It walks over `order`, which holds
// the indices of all parameters that require a gradient in the order in which they became ready,
// and leaves the buckets in that order. An index that is out of range, repeated or missing, or that
// belongs to a frozen parameter, is an error (B5).
Result<Layout> assign_buckets_in_order(std::span<const ParameterInfo> parameters,
                                       std::span<const std::uint64_t> limits,
                                       std::span<const std::size_t> order);

// Makes a layout from explicit bucket contents, in launch order, and computes the offsets. The
// following are errors, which name the bucket or the index (B5): an index that is out of range,
// repeated or missing; a frozen parameter; mixed dtypes or devices in a bucket; a parameter with
// sparse gradients beside others; an empty bucket.
Result<Layout> layout_from_buckets(std::span<const ParameterInfo> parameters,
                                   std::span<const std::vector<std::size_t>> buckets);

// Writes a layout as a few lines of text, which can be stored with a checkpoint and pinned in the
// run that continues from it (B3, ReducerOptions::pinned_layout). It refers to parameters by index.
std::string save(const Layout& layout);

// Reads what save() wrote. It returns kInvalidArgument, with the line, for any other text, for
// another alignment, and for a text whose hash does not match its contents.
Result<Layout> load_layout(std::string_view text);

// Checks that the layout is one of these parameters (B5). The error says what differs.
Status check_layout(const Layout& layout, std::span<const ParameterInfo> parameters);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
