#include "properties/process/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace lockstep::properties {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

bool follows(char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80; }

// The first character of a text that is not empty. Longer forms than are needed, surrogates and
// what lies beyond Unicode are no UTF-8.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
  if (bytes == 0 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!follows(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, bytes};
}

// Controls, and what changes the direction of text or ends a line elsewhere.
bool is_hostile(std::uint32_t code) {
  const auto in = [code](std::uint32_t first, std::uint32_t last) {
    return first <= code && code <= last;
  };
  return code < 0x20 || in(0x7f, 0x9f) || code == 0x061c || in(0x200e, 0x200f) ||
         in(0x2028, 0x202e) || in(0x2066, 0x2069) || code == 0xfeff || in(0xe0000, 0xe007f);
}

std::string spelled(std::string_view text, bool keeps_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_character(text);
    const bool is_space = next.code == '\n' || next.code == '\t';
    if (next.bytes == 0)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    else if (is_space && !keeps_lines)
      out += next.code == '\n' ? "\\n" : "\\t";
    else if (is_hostile(next.code) && !is_space)
      out += fmt::format("\\u{:04x}", next.code);
    else
      out += text.substr(0, next.bytes);
    text.remove_prefix(next.bytes == 0 ? 1 : next.bytes);
  }
  return out;
}

void write_raw(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace

std::string printable(std::string_view text) { return spelled(text, true); }
std::string printable_line(std::string_view text) { return spelled(text, false); }

void remark(std::string_view text) { write_raw("lockstep: " + printable_line(text) + "\n"); }

void write_aside(std::string_view text) { write_raw(printable(text)); }

void clear_aside() {
  if (::isatty(STDERR_FILENO) == 1) write_raw("\r\033[K");
}

void replace_aside(std::string_view text) {
  const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  write_raw(is_terminal ? "\r\033[K" + printable_line(text) : printable_line(text) + "\n");
  std::fflush(stderr);
}

}  // namespace lockstep::properties
