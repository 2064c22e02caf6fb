#include "properties/hosts/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lockstep::properties::hosts {
namespace {

constexpr std::string_view kMark = "lockstp1";
constexpr std::size_t kWantedBytes = 1 + 4 + 8;
constexpr std::size_t kGreetingBytes = kMark.size() + kWantedBytes + kNonceBytes + kProofBytes;
constexpr std::size_t kMostReason = 500;

std::string wanted(const Greeting& greeting) {
  std::string out;
  put_number(out, static_cast<std::uint64_t>(greeting.role), 1);
  put_number(out, greeting.rank, 4);
  put_number(out, greeting.generation, 8);
  return out;
}

std::string_view view(const Nonce& nonce) { return {nonce.data(), nonce.size()}; }

// What each end proves. The first word keeps one end's proof from being taken for the other's.
std::string text_of_rank(const Nonce& theirs, const Nonce& mine, const Greeting& greeting) {
  return fmt::format("rank{}{}{}", view(theirs), view(mine), wanted(greeting));
}
std::string text_of_controller(const Nonce& mine, const Nonce& theirs) {
  return fmt::format("controller{}{}", view(mine), view(theirs));
}

Status refuse(const Line& line, const std::string& reason, Clock::time_point deadline) {
  std::string out(1, '\0');
  const std::string text = reason.substr(0, kMostReason);
  put_number(out, text.size(), 2);
  line.write(out + text, deadline).ignore();
  return {Code::kInvalidArgument, reason};
}

Status read_refusal(const Line& line, Clock::time_point deadline) {
  char bytes[2];
  LOCKSTEP_RETURN_IF_ERROR(line.read(bytes, sizeof bytes, deadline));
  std::string reason(std::min<std::size_t>(number_at(bytes, 2), kMostReason), '\0');
  LOCKSTEP_RETURN_IF_ERROR(line.read(reason.data(), reason.size(), deadline));
  return {Code::kInvalidArgument, "the controller refused this rank: " + reason};
}

}  // namespace

void put_number(std::string& out, std::uint64_t number, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(number >> (8 * i));
}

std::uint64_t number_at(const char* bytes, int count) {
  std::uint64_t number = 0;
  for (int i = 0; i < count; ++i) number = (number << 8) | static_cast<unsigned char>(bytes[i]);
  return number;
}

Status greet(const Line& line, const Secret& secret, const Greeting& greeting,
             Clock::time_point deadline) {
  char mark[kMark.size()];
  LOCKSTEP_RETURN_IF_ERROR(line.read(mark, sizeof mark, deadline));
  if (std::string_view(mark, sizeof mark) != kMark)
    return {Code::kInvalidArgument, "there is no controller of Lockstep at the address of --store"};
  Nonce theirs;
  LOCKSTEP_RETURN_IF_ERROR(line.read(theirs.data(), theirs.size(), deadline));
  const Result<Nonce> mine = draw_nonce();
  if (!mine) return mine.error();
  const Proof proof = secret.prove(text_of_rank(theirs, *mine, greeting));
  const std::string out = fmt::format("{}{}{}{}", kMark, wanted(greeting), view(*mine),
                                      std::string_view(proof.data(), proof.size()));
  LOCKSTEP_RETURN_IF_ERROR(line.write(out, deadline));
  char is_accepted = 0;
  LOCKSTEP_RETURN_IF_ERROR(line.read(&is_accepted, 1, deadline));
  if (is_accepted != 1) return read_refusal(line, deadline);
  Proof answer;
  LOCKSTEP_RETURN_IF_ERROR(line.read(answer.data(), answer.size(), deadline));
  if (secret.accepts(text_of_controller(*mine, theirs), answer)) return {};
  return {Code::kInvalidArgument, "the controller at the address of --store has another secret"};
}

Result<Greeting> answer(const Line& line, const Secret& secret,
                        const std::function<std::string(const Greeting&)>& judge,
                        Clock::time_point deadline) {
  const Result<Nonce> mine = draw_nonce();
  if (!mine) return failed(mine.error());
  if (Status sent = line.write(fmt::format("{}{}", kMark, view(*mine)), deadline); !sent.ok())
    return failed(sent);
  char bytes[kGreetingBytes];
  // The mark alone comes first: whoever speaks another protocol may send less than a greeting.
  if (Status got = line.read(bytes, kMark.size(), deadline); !got.ok()) return failed(got);
  if (std::string_view(bytes, kMark.size()) != kMark)
    return failed(Status(Code::kInvalidArgument, "it does not speak Lockstep's protocol"));
  const char* next = bytes + kMark.size();
  if (Status got = line.read(bytes + kMark.size(), kGreetingBytes - kMark.size(), deadline);
      !got.ok())
    return failed(got);
  Greeting greeting;
  const std::uint64_t role = number_at(next, 1);
  greeting.role = static_cast<Role>(role);
  greeting.rank = static_cast<std::uint32_t>(number_at(next + 1, 4));
  greeting.generation = number_at(next + 5, 8);
  Nonce theirs;
  Proof proof;
  std::memcpy(theirs.data(), next + kWantedBytes, theirs.size());
  std::memcpy(proof.data(), next + kWantedBytes + kNonceBytes, proof.size());
  if (!secret.accepts(text_of_rank(*mine, theirs, greeting), proof))
    return failed(refuse(line, "wrong secret", deadline));
  std::string reason =
      role == 1 || role == 2 ? judge(greeting) : fmt::format("there is no role {}", role);
  if (!reason.empty()) return failed(refuse(line, reason, deadline));
  const Proof own = secret.prove(text_of_controller(theirs, *mine));
  if (Status sent = line.write("\x01" + std::string(own.data(), own.size()), deadline); !sent.ok())
    return failed(sent);
  return greeting;
}

}  // namespace lockstep::properties::hosts
