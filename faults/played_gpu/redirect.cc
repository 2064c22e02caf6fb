#include "faults/played_gpu/redirect.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

namespace lockstep::played {
namespace {

// x86-64: `call rel32` and `jmp rel32`; rel32 counts from the next instruction.
constexpr std::byte kCall{0xe8};
constexpr std::byte kJump{0xe9};
constexpr std::size_t kInstructionBytes = 5;
// The farthest that rel32 reaches, with room for the library itself.
constexpr std::uint64_t kReach = std::uint64_t{1} << 30;

// `jmp *[rip+0]` and the destination behind it.
struct [[gnu::packed]] FarJump {
  std::uint8_t instruction[6] = {0xff, 0x25, 0, 0, 0, 0};
  const void* destination = nullptr;
  std::uint8_t unused[2] = {0xcc, 0xcc};
};
static_assert(sizeof(FarJump) == 16);

Status cannot_redirect(const std::string& why) { return Status(Code::kInvalidArgument, why); }

bool is_wanted(const Symbol& symbol, const std::string& prefix) {
  return symbol.is_function && symbol.is_local && symbol.name.size() > prefix.size() &&
         symbol.name.starts_with(prefix) &&
         std::isupper(static_cast<unsigned char>(symbol.name[prefix.size()])) != 0;
}

// Memory for far jumps, near enough to the library.
Result<std::byte*> map_near(const std::byte* place, std::size_t bytes) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto library = reinterpret_cast<std::uintptr_t>(place) & ~(page - 1);
  for (std::uint64_t away = page << 4; away < kReach; away += page << 4) {
    void* const wanted = reinterpret_cast<void*>(library - away);
    void* const got = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) return static_cast<std::byte*>(got);
    if (got != MAP_FAILED) ::munmap(got, bytes);  // a kernel that does not know the flag
  }
  return failed(
      cannot_redirect("there is no free memory near the library, for its calls to go through"));
}

bool protect(std::byte* begin, const std::byte* end, int protection) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(begin) & ~(page - 1);
  return ::mprotect(reinterpret_cast<void*>(first), reinterpret_cast<std::uintptr_t>(end) - first,
                    protection) == 0;
}

// Returns where the runtime's functions begin and end. A function of such a name may stand far from
// all others, within NCCL's own code: NCCL 2.28.9 has cudaStreamGetCaptureInfo_v2 of a header. So
// the runtime is the largest group of functions without a large gap.
std::pair<std::uint64_t, std::uint64_t> range_of_runtime(
    const std::map<std::uint64_t, std::string>& functions) {
  constexpr std::uint64_t kGap = std::uint64_t{64} << 10;
  std::pair<std::uint64_t, std::uint64_t> largest{0, 0};
  std::size_t most = 0;
  for (auto begin = functions.begin(); begin != functions.end();) {
    std::size_t count = 1;
    auto last = begin;
    auto next = std::next(begin);
    for (; next != functions.end() && next->first - last->first <= kGap; last = next++) ++count;
    if (count > most) largest = {begin->first, last->first};
    most = std::max(most, count);
    begin = next;
  }
  return largest;
}

}  // namespace

Result<std::vector<Call>> find_calls(const Symbols& symbols, const std::byte* load_address,
                                     const std::string& prefix) {
#if !defined(__x86_64__)
  return failed(cannot_redirect("calls inside of a library are redirected on x86-64 alone"));
#endif
  std::map<std::uint64_t, std::string> functions;
  for (const Symbol& each : symbols.all())
    if (is_wanted(each, prefix)) functions.emplace(each.address, each.name);
  std::vector<Call> calls;
  if (functions.empty()) return calls;
  const auto [first, last] = range_of_runtime(functions);
  for (std::uint64_t at = symbols.code_begin(); at + kInstructionBytes <= symbols.code_end();
       ++at) {
    const std::byte* const code = load_address + at;
    if (*code != kCall && *code != kJump) continue;
    if (at >= first && at <= last) continue;
    std::int32_t distance = 0;
    std::memcpy(&distance, code + 1, sizeof distance);
    const auto callee =
        functions.find(at + kInstructionBytes + static_cast<std::uint64_t>(std::int64_t{distance}));
    if (callee != functions.end()) calls.push_back({at, callee->second});
  }
  return calls;
}

Result<std::size_t> redirect(std::byte* load_address, const std::vector<Call>& calls,
                             const std::function<const void*(const std::string&)>& destination) {
  std::map<std::string, std::size_t> numbers;
  for (const Call& each : calls) numbers.emplace(each.callee, numbers.size());
  if (numbers.empty()) return std::size_t{0};
  const auto [first, last] =
      std::minmax_element(calls.begin(), calls.end(),
                          [](const Call& a, const Call& b) { return a.address < b.address; });
  std::byte* const begin = load_address + first->address;
  std::byte* const end = load_address + last->address + kInstructionBytes;
  const std::size_t bytes = numbers.size() * sizeof(FarJump);
  const Result<std::byte*> jumps = map_near(load_address, bytes);
  if (!jumps) return failed(jumps.error());
  for (const auto& [name, number] : numbers) {
    FarJump jump;
    jump.destination = destination(name);
    std::memcpy(*jumps + number * sizeof jump, &jump, sizeof jump);
  }
  if (::mprotect(*jumps, bytes, PROT_READ | PROT_EXEC) != 0 ||
      !protect(begin, end, PROT_READ | PROT_WRITE))
    return failed(
        cannot_redirect(std::string("the library's calls cannot be redirected, as the system "
                                    "does not let its code be changed: ") +
                        std::strerror(errno)));
  for (const Call& each : calls) {
    std::byte* const code = load_address + each.address;
    const std::byte* const jump = *jumps + numbers[each.callee] * sizeof(FarJump);
    const auto distance = static_cast<std::int32_t>(jump - (code + kInstructionBytes));
    std::memcpy(code + 1, &distance, sizeof distance);
  }
  if (!protect(begin, end, PROT_READ | PROT_EXEC))
    return failed(cannot_redirect(std::string("the library's code cannot be protected again: ") +
                                  std::strerror(errno)));
  return numbers.size();
}

}  // namespace lockstep::played
