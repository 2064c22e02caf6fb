// The handshake of a rank and its controller on a new connection. The controller speaks first:
//
//   controller  a mark, and a number that it drew
//   rank        a mark, what it wants (role, rank, generation), a number that it drew, and the
//   proof
//               that it has the secret, over both numbers and all that it wants
//   controller  accepted, with a proof of its own; or refused, with a sentence
//
// All parts but the sentence have fixed sizes, so that a stranger cannot ask for memory. What
// follows on the line is neither encrypted nor signed: use a network that you trust.
//
// Threads: any. Failure: one sentence.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "properties/hosts/line.h"
#include "properties/hosts/secret.h"

namespace lockstep::properties::hosts {

enum class Role : std::uint8_t { kStore = 1, kRank = 2 };

// What a rank wants from its controller.
struct Greeting {
  Role role = Role::kStore;
  std::uint32_t rank = 0;
  std::uint64_t generation = 0;  // of the store; each case has a store of its own
};

// The rank's end.
Status greet(const Line& line, const Secret& secret, const Greeting& greeting,
             Clock::time_point deadline);

// The controller's end. `judge` returns why it refuses a greeting that has the secret, or nothing.
Result<Greeting> answer(const Line& line, const Secret& secret,
                        const std::function<std::string(const Greeting&)>& judge,
                        Clock::time_point deadline);

// Numbers on the wire: the highest byte first.
void put_number(std::string& out, std::uint64_t number, int bytes);
std::uint64_t number_at(const char* bytes, int count);

}  // namespace lockstep::properties::hosts
