// Secret: what a controller and its ranks share, so that they know each other on a network. Both
// ends prove that they have it by an HMAC (OpenSSL's) of numbers that the other end has drawn; the
// secret itself is never sent.
//
// Threads: a Secret is a value.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "reducer/base/status.h"

namespace lockstep::properties::hosts {

constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kProofBytes = 32;  // of HMAC-SHA256
using Nonce = std::array<char, kNonceBytes>;
using Proof = std::array<char, kProofBytes>;

// Draws from the system's generator.
Result<Nonce> draw_nonce();

class Secret {
 public:
  // Reads the first line of a file that has 16 to 4096 bytes.
  static Result<Secret> read(const std::string& file);
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}

  Proof prove(std::string_view text) const;
  // Compares in a time that does not depend on the bytes.
  bool accepts(std::string_view text, const Proof& proof) const;

 private:
  std::string bytes_;
};

}  // namespace lockstep::properties::hosts
