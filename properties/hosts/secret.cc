#include "properties/hosts/secret.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "properties/case/case_json.h"
#include "properties/process/shell_word.h"
#include "reducer/base/check.h"

namespace lockstep::properties::hosts {
namespace {

constexpr std::size_t kLeastBytes = 16;
constexpr std::size_t kMostBytes = 4096;
constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;

}  // namespace

Result<Nonce> draw_nonce() {
  Nonce nonce{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) ==
      1)
    return nonce;
  return failed(Status(Code::kInternal, "OpenSSL could not draw a random number"));
}

Result<Secret> Secret::read(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0)
    return failed(
        Status(Code::kInvalidArgument, fmt::format("cannot read the secret of {}: {}; name a file "
                                                   "with --secret-file",
                                                   file, std::strerror(errno))));
  if (S_ISREG(info.st_mode) && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return failed(Status(Code::kInvalidArgument,
                         fmt::format("other users may read the secret of {} (mode {:03o}): make it "
                                     "yours alone with: chmod 600 {}",
                                     file, info.st_mode & 0777u, shell_word(file))));
  Result<std::string> text = read_file(file, kMostFileBytes);
  if (!text) return failed(text.error());
  std::string bytes = std::move(*text);
  const bool is_long = bytes.size() > kMostBytes;
  bytes.resize(std::min(bytes.size(), bytes.find('\n')));
  if (bytes.size() >= kLeastBytes && !is_long) return Secret(std::move(bytes));
  return failed(Status(Code::kInvalidArgument,
                       fmt::format("the secret in {} must have {} to {} bytes; make one with: "
                                   "(umask 077; openssl rand -hex 32 > FILE)",
                                   file, kLeastBytes, kMostBytes)));
}

Proof Secret::prove(std::string_view text) const {
  Proof proof{};
  unsigned int bytes = 0;
  const auto* made = HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          reinterpret_cast<unsigned char*>(proof.data()), &bytes);
  LOCKSTEP_CHECK(made != nullptr);
  LOCKSTEP_CHECK_EQ(bytes, kProofBytes);
  return proof;
}

bool Secret::accepts(std::string_view text, const Proof& proof) const {
  const Proof expected = prove(text);
  return CRYPTO_memcmp(expected.data(), proof.data(), proof.size()) == 0;
}

}  // namespace lockstep::properties::hosts
