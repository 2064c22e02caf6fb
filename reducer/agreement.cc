#include "reducer/agreement.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

namespace lockstep::inline LOCKSTEP_NS {
namespace {

struct Header {
  std::uint64_t format = 1;
  std::uint64_t hash = 0;
  std::uint64_t lines = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Header&) const = default;
};

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).push_back('\n');
  return text;
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

Status all_gather(ProcessGroup& group, const void* mine, std::size_t bytes,
                  std::vector<std::byte>& all, Work& work) {
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

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Status difference(const std::string& base, const std::string& other, int other_rank, int self) {
  const std::vector<std::string> a = split(base);
  const std::vector<std::string> b = split(other);
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  const auto line = [i](const std::vector<std::string>& lines) {
    return i < lines.size() ? "'" + lines[i] + "'" : std::string("nothing more");
  };
  Failure failure;
  failure.code = Code::kDisagreement;
  failure.rank = other_rank;
  failure.reported_by = self;
  failure.suspect = other_rank;
  failure.definite = true;
  failure.collective = "all_gather";
  failure.detail = "rank 0 and rank " + std::to_string(other_rank) +
                   " were constructed differently: rank 0 has " + line(a) + ", rank " +
                   std::to_string(other_rank) + " has " + line(b);
  return failure;
}

}  // namespace

Status agree(ProcessGroup& group, const std::vector<std::string>& lines, std::int64_t& sequence) {
  const std::string text = join(lines);
  const Header mine{1, hash_of(text), lines.size(), text.size()};
  std::vector<std::byte> all;
  Work work;
  LOCKSTEP_RETURN_IF_ERROR(all_gather(group, &mine, sizeof mine, all, work));
  sequence = work.sequence();
  std::vector<Header> headers(static_cast<std::size_t>(group.size()));
  std::memcpy(headers.data(), all.data(), all.size());
  const auto odd = std::find_if(headers.begin(), headers.end(),
                                [&](const Header& h) { return h != headers[0]; });
  if (odd == headers.end()) return {};

  std::size_t longest = 0;
  for (const Header& header : headers) longest = std::max<std::size_t>(longest, header.bytes);
  std::string padded = text;
  padded.resize(longest, '\n');
  LOCKSTEP_RETURN_IF_ERROR(all_gather(group, padded.data(), longest, all, work));
  const auto text_of = [&](std::size_t rank) {
    return std::string(reinterpret_cast<const char*>(all.data()) + rank * longest,
                       headers[rank].bytes);
  };
  const auto other = static_cast<std::size_t>(odd - headers.begin());
  return difference(text_of(0), text_of(other), static_cast<int>(other), group.rank());
}

// Each rank is a random number to the others.
Status agree_on_ranks(ProcessGroup& first, ProcessGroup& second) {
  std::array<std::uint64_t, 2> mine{};
  if (::getrandom(mine.data(), sizeof mine, 0) != static_cast<ssize_t>(sizeof mine))
    return Status(Code::kInternal, "the system gives no random numbers");
  std::vector<std::byte> of_first;
  std::vector<std::byte> of_second;
  Work work;
  LOCKSTEP_RETURN_IF_ERROR(all_gather(first, mine.data(), sizeof mine, of_first, work));
  LOCKSTEP_RETURN_IF_ERROR(all_gather(second, mine.data(), sizeof mine, of_second, work));
  if (of_first == of_second) return {};
  return Status(Code::kInvalidArgument,
                "the backward group is not one of the same ranks in the same order");
}

}  // namespace lockstep::inline LOCKSTEP_NS
