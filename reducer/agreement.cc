#include "reducer/agreement.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <type_traits>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::uint64_t kDescription = 1;  // The kinds of messages: see Header.
constexpr std::uint64_t kRefusal = 2;
// The limit is far above what models need: the description of 100,000 parameters has about 15 MB.
constexpr std::uint64_t kMaxDescriptionBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMaxReasonBytes = 4096;

struct Header {
  std::uint64_t kind = kDescription;
  std::uint64_t hash = 0;
  std::uint64_t lines = 0;
  std::uint64_t bytes = 0;  // The size of the description, or of the reason for the refusal.
  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 32);

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).push_back('\n');
  return text;
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // This is FNV-1a.
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

Status all_gather(ProcessGroup& group, const void* mine, std::size_t bytes,
                  std::vector<std::byte>& all, Work& work) {
  LOCKSTEP_CHECK_GE(group.size(), 1);
  LOCKSTEP_CHECK(bytes > 0);
  std::vector<std::byte> contribution(bytes);
  std::memcpy(contribution.data(), mine, bytes);
  all.resize(bytes * static_cast<std::size_t>(group.size()));
  Collective collective;
  collective.op = Op::kAllGather;
  collective.dtype = DType::kByte;
  collective.count = bytes;
  collective.data = contribution.data();
  collective.gathered = all.data();
  return run(group, collective, work);
}

// Broadcasts the text of one rank. The other ranks know its length from the header.
Status broadcast(ProcessGroup& group, int root, std::string& text, std::uint64_t bytes) {
  LOCKSTEP_CHECK_GE(root, 0);
  LOCKSTEP_CHECK_LT(root, group.size());
  text.resize(static_cast<std::size_t>(bytes));
  if (bytes == 0) return {};
  Collective collective;
  collective.op = Op::kBroadcast;
  collective.dtype = DType::kByte;
  collective.count = bytes;
  collective.root = root;
  collective.data = reinterpret_cast<std::byte*>(text.data());
  return run(group, collective);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string difference(const std::string& base, const std::string& other, int other_rank) {
  LOCKSTEP_CHECK_GE(other_rank, 1);  // Every rank is compared with rank 0.
  const std::vector<std::string> a = split(base);
  const std::vector<std::string> b = split(other);
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  const auto line = [i](const std::vector<std::string>& lines) {
    return i < lines.size() ? "'" + lines[i] + "'" : std::string("nothing more");
  };
  return "rank 0 and rank " + std::to_string(other_rank) +
         " were constructed differently: rank 0 has " + line(a) + ", rank " +
         std::to_string(other_rank) + " has " + line(b);
}

// Makes a failure about the description that `rank` sent.
Failure about(int rank, int self, std::string detail) {
  LOCKSTEP_CHECK_GE(rank, 0);
  LOCKSTEP_CHECK_GE(self, 0);
  Failure failure;
  failure.code = Code::kDisagreement;
  failure.rank = failure.suspect = rank;
  failure.reported_by = self;
  failure.definite = true;
  failure.collective = "all_gather";
  failure.detail = std::move(detail);
  return failure;
}

// Checks that every header is valid, and that none announces more than the limits.
Status check(const std::vector<Header>& headers, int self) {
  LOCKSTEP_CHECK_LT(static_cast<std::size_t>(self), headers.size());
  for (std::size_t r = 0; r < headers.size(); ++r) {
    const Header& header = headers[r];
    const int rank = static_cast<int>(r);
    const std::string who = "rank " + std::to_string(rank);
    if (header.kind != kDescription && header.kind != kRefusal)
      return about(rank, self,
                   who + " sent something else than a description of itself (kind " +
                       std::to_string(header.kind) +
                       "): its message is damaged, or it runs another version of the library");
    const std::uint64_t most = header.kind == kRefusal ? kMaxReasonBytes : kMaxDescriptionBytes;
    if (header.bytes > most)
      return about(rank, self,
                   who + " announces " + std::to_string(header.bytes) +
                       " bytes to describe itself, more than the " + std::to_string(most) +
                       " that are allowed: its message is damaged, or its parameters have names "
                       "that are too long");
  }
  return {};
}

Status exchange(ProcessGroup& group, const Header& mine, std::vector<Header>& headers, Work& work) {
  std::vector<std::byte> all;
  LOCKSTEP_RETURN_IF_ERROR(all_gather(group, &mine, sizeof mine, all, work));
  headers.resize(static_cast<std::size_t>(group.size()));
  static_assert(std::is_trivially_copyable_v<Header>);
  LOCKSTEP_CHECK_EQ(all.size(), headers.size() * sizeof mine);
  std::memcpy(headers.data(), all.data(), all.size());
  return {};
}

// Returns the reason why this rank refuses. A reason without a rank is the rank's own.
Status of_this_rank(Status own, int rank) {
  Failure& failure = own.failure();
  failure.reported_by = rank;
  if (failure.rank == kNone) failure.rank = rank;
  failure.definite = true;
  return own;
}

// All ranks receive the reason of the first rank that refuses; other ranks that refuse return their
// own reason.
Status refused(ProcessGroup& group, int rank, const Header& header, const Status& own) {
  LOCKSTEP_CHECK_EQ(header.kind, kRefusal);
  LOCKSTEP_CHECK_LE(header.bytes, kMaxReasonBytes);  // check() refuses a longer reason.
  std::string reason;
  if (rank == group.rank()) reason = encode(own.failure(), kMaxReasonBytes);
  Status sent = broadcast(group, rank, reason, header.bytes);
  if (!own.ok()) return own;
  LOCKSTEP_RETURN_IF_ERROR(std::move(sent));
  Failure failure = decode_failure(reason, group.size());
  failure.rank = failure.suspect = rank;
  failure.reported_by = group.rank();
  failure.detail = "rank " + std::to_string(rank) + " refused: " + failure.detail;
  return failure;
}

}  // namespace

Status agree(ProcessGroup& group, const std::vector<std::string>& lines, Status own,
             std::int64_t& sequence) {
  if (!own.ok()) own = of_this_rank(std::move(own), group.rank());
  std::string text = own.ok() ? join(lines) : encode(own.failure(), kMaxReasonBytes);
  const Header mine{own.ok() ? kDescription : kRefusal, hash_of(text), lines.size(), text.size()};
  std::vector<Header> headers;
  Work work;
  if (Status status = exchange(group, mine, headers, work); !status.ok())
    return own.ok() ? status : own;
  sequence = work.sequence();
  if (Status status = check(headers, group.rank()); !status.ok()) return own.ok() ? status : own;

  const auto refusal = std::find_if(headers.begin(), headers.end(),
                                    [](const Header& header) { return header.kind == kRefusal; });
  if (refusal != headers.end())
    return refused(group, static_cast<int>(refusal - headers.begin()), *refusal, own);
  const auto odd = std::find_if(headers.begin(), headers.end(),
                                [&](const Header& h) { return h != headers[0]; });
  if (odd == headers.end()) return {};

  const int other = static_cast<int>(odd - headers.begin());
  std::string first = group.rank() == 0 ? text : std::string();
  std::string second = group.rank() == other ? std::move(text) : std::string();
  LOCKSTEP_RETURN_IF_ERROR(broadcast(group, 0, first, headers[0].bytes));
  LOCKSTEP_RETURN_IF_ERROR(broadcast(group, other, second, odd->bytes));
  return about(other, group.rank(), difference(first, second, other));
}

Status agree_to_go_on(ProcessGroup& group, Status own) {
  std::int64_t sequence = 0;
  return agree(group, {}, std::move(own), sequence);
}

// Each rank identifies itself to the others by a random number; zero says that it has none.
Status agree_on_ranks(ProcessGroup& first, ProcessGroup& second) {
  using Number = std::array<std::uint64_t, 2>;
  Number mine{};
  if (::getrandom(mine.data(), sizeof mine, 0) != static_cast<ssize_t>(sizeof mine)) mine = {};
  // check_group() has compared the groups, and no rank has refused since.
  LOCKSTEP_CHECK_EQ(first.rank(), second.rank());
  LOCKSTEP_CHECK_EQ(first.size(), second.size());
  std::vector<std::byte> of_first;
  std::vector<std::byte> of_second;
  Work work;
  LOCKSTEP_RETURN_IF_ERROR(all_gather(first, mine.data(), sizeof mine, of_first, work));
  for (int r = 0; r < first.size(); ++r) {
    Number number{};
    std::memcpy(number.data(), of_first.data() + static_cast<std::size_t>(r) * sizeof number,
                sizeof number);
    if (number == Number{})
      return Status(Code::kInternal, "the system gives rank " + std::to_string(r) +
                                         " no random numbers: ranks cannot be distinguished");
  }
  LOCKSTEP_RETURN_IF_ERROR(all_gather(second, mine.data(), sizeof mine, of_second, work));
  if (of_first == of_second) return {};
  return Status(Code::kInvalidArgument,
                "the backward group is not one of the same ranks in the same order");
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
