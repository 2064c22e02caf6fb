#include "properties/cli/usage.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/case/nearest.h"
#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

// The options whose values are files to write.
constexpr std::string_view kReports[] = {"--json",  "--junit",    "--html",
                                         "--trace", "--markdown", "--output"};

// Returns the command that was given: "campaign report" below "campaign" below the program.
const CLI::App& given_command(const CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  return given.empty() ? app : given_command(*given.front());
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(each->get_name());
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* each : app.get_options())
    if (!each->get_lnames().empty() && !each->get_group().empty())
      names.push_back("--" + each->get_lnames().front());
  return names;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string best = nearest(word, known);
  return best.empty() ? "" : fmt::format(": did you mean {}?", best);
}

bool is_option(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

// Returns what is wrong with the words that the parser could not use, or nothing if there are none.
std::string wrong_word(const CLI::App& app, const CLI::App& command) {
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return {};
  // A word behind an unknown option is the value of that.
  const auto option = std::find_if(words.begin(), words.end(), is_option);
  if (option != words.end()) {
    const std::string name = option->substr(0, option->find('='));
    const std::vector<std::string> known = names_of_options(command);
    if (std::find(known.begin(), known.end(), name) != known.end())
      return fmt::format("{} must come after the command", name);
    return fmt::format("there is no option {}{}", name, did_you_mean(name, known));
  }
  const std::vector<std::string> commands = names_of_commands(command);
  if (commands.empty()) return fmt::format("'{}' was not expected", words.front());
  return fmt::format("there is no command '{}'{}", words.front(),
                     did_you_mean(words.front(), commands));
}

}  // namespace

std::string usage_error(const CLI::App& app, const std::string& otherwise,
                        const std::string& program) {
  const CLI::App& command = given_command(app);
  const std::string wrong = wrong_word(app, command);
  std::string names;
  for (const CLI::App* each = &command; each != &app; each = each->get_parent())
    names.insert(0, " " + each->get_name());
  return fmt::format("{}; see {}{} --help", wrong.empty() ? otherwise : wrong, program, names);
}

// A page with charts needs files of this program's.
static Status check_page() {
  Page trial("", "");
  trial.add_chart("", "{}");
  const Result<std::string> page = trial.html();
  return page ? Status() : page.error();
}

Status check_reports(const CLI::App& app) {
  for (const CLI::Option* option : given_command(app).get_options()) {
    const std::string name =
        option->get_lnames().empty() ? "" : "--" + option->get_lnames().front();
    if (option->count() == 0 ||
        std::find(std::begin(kReports), std::end(kReports), name) == std::end(kReports))
      continue;
    if (name == "--html") LOCKSTEP_RETURN_IF_ERROR(check_page());
    for (const std::string& path : option->results())
      LOCKSTEP_RETURN_IF_ERROR(check_can_write(path));
  }
  return {};
}

}  // namespace lockstep::properties
