#include "properties/cli/shell.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::properties {
namespace {

// A command of the program with the words that call it, such as {"corpus", "check"}.
struct Subcommand {
  std::vector<std::string> words;
  CLI::App* app = nullptr;
};

void add_commands(CLI::App& app, const std::vector<std::string>& words,
                  std::vector<Subcommand>& out) {
  for (CLI::App* each : app.get_subcommands([](CLI::App*) { return true; })) {
    std::vector<std::string> longer = words;
    longer.push_back(each->get_name());
    out.push_back({longer, each});
    add_commands(*each, longer, out);
  }
}

std::vector<Subcommand> commands_of(CLI::App& app) {
  std::vector<Subcommand> out;
  add_commands(app, {}, out);
  return out;
}

// Returns the options that --help lists; those without a name (the arguments) if `positional`.
std::vector<const CLI::Option*> options_of(CLI::App& app, bool positional) {
  std::vector<const CLI::Option*> out;
  for (const CLI::Option* each : app.get_options())
    if (each->get_positional() == positional && !each->get_group().empty()) out.push_back(each);
  return out;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.get_snames()) out.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Returns the words that the option accepts, if it accepts only these: its type is "TEXT:{a,b}".
std::vector<std::string> values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin);
  std::vector<std::string> out;
  if (begin == std::string::npos || end == std::string::npos) return out;
  std::string word;
  for (std::size_t i = begin + 1; i <= end; ++i) {
    if (i == end || type[i] == ',') {
      out.push_back(std::exchange(word, {}));
    } else {
      word += type[i];
    }
  }
  return out;
}

// Whether the option's value may be the name of a file. Numbers, and words that the program itself
// defines, are not.
bool may_be_file(const CLI::Option& option) {
  return option.get_type_name() == "TEXT" && option.get_name() != "--bugs" &&
         option.get_name() != "--faults";
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  return fmt::format("{}", fmt::join(words, between));
}

std::string replace_all(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

// ---- bash ----

std::vector<std::string> words_after(CLI::App& app) {
  std::vector<std::string> words;
  for (CLI::App* each : app.get_subcommands([](CLI::App*) { return true; }))
    words.push_back(each->get_name());
  for (const CLI::Option* each : options_of(app, false))
    for (const std::string& name : names_of(*each)) words.push_back(name);
  return words;
}

// Returns a line for each option with a value: it offers the known values, or files, or nothing.
std::string bash_values(CLI::App& app) {
  std::string out;
  for (const CLI::Option* each : options_of(app, false)) {
    if (!takes_value(*each)) continue;
    const std::vector<std::string> values = values_of(*each);
    std::string words = "return";  // nothing to complete
    if (!values.empty())
      words =
          fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\")); return", joined(values, " "));
    else if (may_be_file(*each))
      words = "COMPREPLY=($(compgen -f -- \"$word\")); return";
    out += fmt::format("        {}) {} ;;\n", joined(names_of(*each), "|"), words);
  }
  return out;
}

std::string bash_case(const std::string& words, CLI::App& app) {
  const bool has_files = !options_of(app, true).empty();
  return fmt::format(
      "    '{}')\n"
      "      case $before in\n{}"
      "      esac\n"
      "      COMPREPLY=($(compgen{} -W '{}' -- \"$word\")) ;;\n",
      words, bash_values(app), has_files ? " -f" : "", joined(words_after(app), " "));
}

// ---- zsh ----

std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '\'') {
      out += "'\\''";
      continue;
    }
    if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') out += '\\';
    out += letter;
  }
  return out;
}

std::string zsh_option(const CLI::Option& option) {
  const std::vector<std::string> values = values_of(option);
  std::string action = may_be_file(option) ? "_files" : "";
  if (!values.empty()) action = fmt::format("({})", joined(values, " "));
  std::string out;
  for (const std::string& name : names_of(option))
    out += fmt::format(" \\\n        '{}[{}]{}'", name, zsh_text(option.get_description()),
                       takes_value(option) ? ":value:" + action : "");
  return out;
}

std::string zsh_case(const std::string& words, CLI::App& app) {
  std::string arguments;
  for (const CLI::Option* each : options_of(app, false)) arguments += zsh_option(*each);
  std::vector<std::string> commands;
  for (CLI::App* each : app.get_subcommands([](CLI::App*) { return true; }))
    commands.push_back(each->get_name());
  if (!commands.empty())
    arguments += fmt::format(" \\\n        '1:command:({})'", joined(commands, " "));
  if (!options_of(app, true).empty()) arguments += " \\\n        '*:file:_files'";
  return fmt::format("    '{}')\n      _arguments{} ;;\n", words, arguments);
}

// ---- man ----

std::string roff(std::string text) {
  text = replace_all(std::move(text), "\\", "\\e");
  text = replace_all(std::move(text), "-", "\\-");
  text = replace_all(std::move(text), "\n", " ");
  if (!text.empty() && (text[0] == '.' || text[0] == '\'')) text = "\\&" + text;
  return text;
}

std::string roff_option(const CLI::Option& option) {
  std::string type = option.get_type_name();
  if (const std::size_t end = type.find(':'); end != std::string::npos) type.resize(end);
  if (const std::vector<std::string> values = values_of(option); !values.empty())
    type = joined(values, "|");
  const std::string value = takes_value(option) ? fmt::format(" \\fI{}\\fR", roff(type)) : "";
  std::vector<std::string> names;
  for (const std::string& name : names_of(option))
    names.push_back(fmt::format("\\fB{}\\fR", roff(name)));
  const std::string usual = option.get_default_str();
  return fmt::format(".TP\n{}{}\n{}{}\n", joined(names, ", "), value,
                     roff(option.get_description()),
                     usual.empty() ? "" : roff(fmt::format(" (default: {})", usual)));
}

std::string roff_command(const Subcommand& command) {
  std::string synopsis = fmt::format("\\fBlockstep {}\\fR", joined(command.words, " "));
  std::string details;
  for (const CLI::Option* each : options_of(*command.app, true)) {
    synopsis += fmt::format(" \\fI{}\\fR", roff(each->get_name(true)));
    details += fmt::format(".TP\n\\fI{}\\fR\n{}\n", roff(each->get_name(true)),
                           roff(each->get_description()));
  }
  for (const CLI::Option* each : options_of(*command.app, false))
    if (each->get_name() != "--help") details += roff_option(*each);
  return fmt::format(".SS {}\n{}.\n{}", synopsis, roff(command.app->get_description()), details);
}

}  // namespace

std::string bash_completion(CLI::App& app) {
  std::string cases = bash_case("", app);
  std::vector<std::string> all;
  for (const Subcommand& command : commands_of(app)) {
    all.push_back(joined(command.words, " "));
    cases += bash_case(all.back(), *command.app);
  }
  std::vector<std::string> quoted;
  for (const std::string& each : all) quoted.push_back("'" + each + "'");
  return fmt::format(
      "# Completion of lockstep for bash, made by `lockstep completion bash`.\n"
      "_lockstep() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command='' "
      "next i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    next=\"${{command:+$command }}${{COMP_WORDS[i]}}\"\n"
      "    case $next in {}) command=$next ;; esac\n"
      "  done\n"
      "  case $command in\n{}"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _lockstep lockstep\n",
      joined(quoted, "|"), cases);
}

std::string zsh_completion(CLI::App& app) {
  std::string cases = zsh_case("", app);
  std::vector<std::string> quoted;
  for (const Subcommand& command : commands_of(app)) {
    const std::string words = joined(command.words, " ");
    quoted.push_back("'" + words + "'");
    cases += zsh_case(words, *command.app);
  }
  return fmt::format(
      "#compdef lockstep\n"
      "# Completion of lockstep for zsh, made by `lockstep completion zsh`.\n"
      "_lockstep() {{\n"
      "  local command='' next i\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    next=\"${{command:+$command }}${{words[i]}}\"\n"
      "    case $next in ({}) command=$next ;; esac\n"
      "  done\n"
      "  # _arguments counts from the word of the command.\n"
      "  local -i skipped=${{#${{(z)command}}}}\n"
      "  words=(\"${{words[1]}}\" \"${{(@)words[2+skipped,-1]}}\")\n"
      "  ((CURRENT -= skipped))\n"
      "  case $command in\n{}"
      "  esac\n"
      "}}\n"
      "_lockstep \"$@\"\n",
      joined(quoted, "|"), cases);
}

std::string man_page(CLI::App& app, const std::string& version) {
  std::string commands;
  for (const Subcommand& command : commands_of(app)) commands += roff_command(command);
  return fmt::format(
      ".TH LOCKSTEP 1 \"\" \"lockstep {}\" \"User Commands\"\n"
      ".SH NAME\nlockstep \\- tests data\\-parallel gradient reducers\n"
      ".SH SYNOPSIS\n\\fBlockstep\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n"
      ".SH DESCRIPTION\n{}\n"
      ".SH COMMANDS\n{}"
      ".SH EXIT STATUS\n{}\n",
      version, roff(app.get_description()), commands, roff(app.get_footer()));
}

void group_commands(CLI::App& app) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> groups = {
      {"Find failures",
       {"new", "fuzz", "exhaust", "matrix", "campaign", "component", "gate", "eval"}},
      {"Work on a case", {"replay", "shrink", "fixed", "show", "generate", "export", "corpus"}},
      {"Explain what a job or a library did", {"diagnose", "explain-bits", "orders", "scaling"}},
      {"This machine and this program", {"demo", "doctor", "rank", "completion", "man"}}};
  for (CLI::App* const command : app.get_subcommands([](CLI::App*) { return true; }))
    for (const auto& [title, names] : groups)
      if (std::find(names.begin(), names.end(), command->get_name()) != names.end())
        command->group(title);
}

}  // namespace lockstep::properties
