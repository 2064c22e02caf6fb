#include "properties/process/shell_word.h"

#include <string_view>

namespace lockstep::properties {

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char each : word) quoted += each == '\'' ? "'\\''" : std::string(1, each);
  return quoted + "'";
}

std::string command_line_of(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

bool hands_to_shell(const std::string& program) {
  const std::string_view name = std::string_view(program).substr(program.rfind('/') + 1);
  return name == "ssh" || name == "rsh" || name == "remsh" || name == "dbclient";
}

}  // namespace lockstep::properties
