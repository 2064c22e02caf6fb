#include "properties/subject/python_subject.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "properties/process/child.h"
#include "properties/process/process_end.h"
#include "properties/process/shell_word.h"
#include "properties/subject/declared_sums.h"
#include "properties/subject/torch_subject.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// What a Python answers: the version of the messages of
// properties/subject/python/lockstep/ranks.py.
constexpr int kMessages = 3;
constexpr const char* kBuffers = "buffers";
constexpr auto kLoadLimit = std::chrono::seconds(120);  // for a busy machine that loads torch
constexpr std::size_t kMaxAnswer = std::size_t{1} << 20;
// How a shell ends whose program cannot be run, or is not there.
constexpr int kNotRun = 126;
constexpr int kNotThere = 127;

// The file and the function of a subject's name.
struct Named {
  std::string file;
  std::string function;
};

tl::unexpected<Status> refuse_subject(std::string what) {
  for (char& c : what)
    if (c == '\n') c = ' ';
  return failed(Status(Code::kInvalidArgument, std::move(what)));
}

std::string interpreter() {
  const char* named = std::getenv("LOCKSTEP_PYTHON");
  return named != nullptr && *named != '\0' ? named : "python3";
}

// Returns what the command prints on standard output, or, without any, how it ended.
std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(("exec 2>/dev/null; exec " + command).c_str(), "r");
  if (pipe == nullptr) return "it cannot be started";
  std::array<char, 4096> part{};
  std::string out;
  while (out.size() < kMaxAnswer) {
    const std::size_t got = std::fread(part.data(), 1, part.size(), pipe);
    if (got == 0) break;
    out.append(part.data(), got);
  }
  const int status = ::pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (out.empty() && (code == kNotRun || code == kNotThere))
    return "it cannot be started: name the program of a Python in LOCKSTEP_PYTHON";
  return out.empty() ? "it " + describe_end(status) + " without an answer" : out;
}

// Runs the command in a child process, as a file may hang while it is loaded.
std::string ask(const std::string& command) {
  return ask_in_child([&] { return output_of(command); }, kLoadLimit,
                      fmt::format("it has not loaded the file within {} s", kLoadLimit.count()));
}

std::optional<Named> named(const std::string& which) {
  const std::size_t colon = which.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == which.size()) return std::nullopt;
  return Named{which.substr(0, colon), which.substr(colon + 1)};
}

// Reads the names of capabilities. Returns an error text if one is unknown.
std::string read_capabilities(const Json& declared, Capabilities& capabilities) {
  const Capabilities able = python_capabilities();
  for (const Json& each : declared) {
    const std::string name = each.get<std::string>();
    bool is_known = name == kBuffers;  // ranks have buffers of their own in such a case
    if (is_known) capabilities = capabilities.with(Capability::kState);
    for (int i = 0; i < kCapabilities; ++i) {
      const auto capability = static_cast<Capability>(i);
      if (!able.has(capability) || name != name_of(capability)) continue;
      capabilities = capabilities.with(capability);
      is_known = true;
    }
    if (!is_known)
      return fmt::format("it declares '{}', and a wrapper in Python can have: {}", name,
                         fmt::join(names(able), " "));
  }
  if (capabilities.has(Capability::kErrors) && !capabilities.has(Capability::kRecovery))
    return "it declares 'errors' without 'recovery': after an error ranks go on with a new wrapper";
  return {};
}

// Reads how the wrapper adds and scales. With a declared order values may round, and averages of
// three ranks, too. Returns an error text if something is not known.
std::string read_sums(const Json& json, Subject& subject) {
  const std::string order = json.at("order");
  const std::string scale = json.at("scale");
  if (order.empty() && scale.empty()) return {};
  if (subject.profile.is_torch())
    return "it declares an order or a scale, which the contract 'torch' says: leave one of them "
           "out";
  Result<reference::DeclaredSums> sums = declared_sums(order, scale);
  if (!sums) return sums.error().failure().detail;
  subject.profile.sums = *sums;
  if (sums->order) subject.capabilities = subject.capabilities.with(Capability::kRounding);
  return {};
}

// Reads what the Python said. Returns an error text if it is no answer, or says what is wrong.
std::string read_answer(const std::string& text, Subject& subject) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return text.substr(0, text.find('\n'));
  if (json.contains("error")) return json.at("error").get<std::string>();
  if (json.value("messages", 0) != kMessages)
    return "the Python package is not that of this program: install both from one tree";
  if (std::string wrong = read_capabilities(json.at("can"), subject.capabilities); !wrong.empty())
    return wrong;
  const std::string contract = json.at("contract");
  if (contract == "torch") {
    const auto version = torch_model::version_from(json.at("torch").get<std::string>());
    if (!version)
      return fmt::format("the version of torch cannot be read: {}", json.at("torch").dump());
    if (subject.capabilities.has(Capability::kRepeatedHooks))
      return "it declares 'repeated_hooks', which is an error in the contract 'torch': leave one "
             "of "
             "them out";
    subject.profile = Profile::torch(*version);
  } else if (contract != "lockstep") {
    return fmt::format("it declares the contract '{}': give 'lockstep' or 'torch'", contract);
  }
  subject.profile.gradients_alone = true;
  return read_sums(json, subject);
}

}  // namespace

Capabilities python_capabilities() {
  using enum Capability;
  return torch_capabilities()
      .with(kBFloat16)
      .with(kRepeatedHooks)
      .without(Capabilities::of({kSpecial, kHooks, kIgnored, kSparse, kRounding, kFaults}));
}

fs::path python_ranks(const fs::path& self) {
  std::error_code error;
  const fs::path folder = self.parent_path();
  for (const fs::path& root :
       {folder / "lockstep-python", folder / "../share/lockstep/python", folder / "../.."}) {
    const fs::path ranks = root / "lockstep" / "ranks.py";
    if (fs::exists(ranks, error)) return fs::canonical(ranks, error);
  }
  return {};
}

Result<std::string> describe_python() {
  const std::string python = interpreter();
  const std::string script =
      "import sys, platform, torch; print(sys.executable); print(platform.python_version()); "
      "print(torch.__version__)";
  const std::string answer = ask(command_line_of({python, "-c", script}));
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < answer.size();) {
    const std::size_t end = std::min(answer.find('\n', at), answer.size());
    lines.push_back(answer.substr(at, end - at));
    at = end + 1;
  }
  if (lines.size() != 3)
    return refuse_subject(fmt::format(
        "{} has no torch: ci/setup --torch installs one, and LOCKSTEP_PYTHON names another Python",
        python));
  return fmt::format("{} ({}), Python {}, torch {}", python, lines[0], lines[1], lines[2]);
}

Result<Subject> python_subject(const std::string& which) {
  const std::optional<Named> name = named(which);
  if (!name)
    return refuse_subject(
        fmt::format("'python:{}' does not name a function: give python:FILE.py:FUNCTION", which));
  std::error_code error;
  if (!fs::is_regular_file(name->file, error))
    return refuse_subject(
        fmt::format("there is no file '{}': give python:FILE.py:FUNCTION, with the "
                    "file that has the function",
                    name->file));
  const fs::path ranks = python_ranks(fs::read_symlink("/proc/self/exe", error));
  if (ranks.empty())
    return refuse_subject(
        "the Python part of this program is not beside it (lockstep-python): build "
        "the target lockstep, or install the program with cmake --install or pip");
  Subject subject;
  subject.kind = Subject::Kind::kPython;
  subject.id = which;
  subject.rank_program = interpreter();
  subject.rank_arguments = {ranks.string(), fs::absolute(name->file, error).string(),
                            name->function};
  subject.capabilities = {};
  std::vector<std::string> command = {subject.rank_program};
  command.insert(command.end(), subject.rank_arguments.begin(), subject.rank_arguments.end());
  const std::string wrong = read_answer(ask(command_line_of(command) + " probe"), subject);
  if (wrong.empty()) return subject;
  return refuse_subject(fmt::format("the subject '{}' cannot be used: {}: {}", subject.name(),
                                    subject.rank_program, wrong));
}

}  // namespace lockstep::properties
