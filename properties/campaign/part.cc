#include "properties/campaign/part.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "properties/case/invalid.h"

namespace lockstep::properties {
namespace {

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || rest != text.data() + text.size()) return {};
  return value;
}

Result<CampaignPart> in_range(CampaignPart part, const std::string& where) {
  if (part.count < 1 || part.count > kMaxParts)
    return failed(invalid(
        fmt::format("{}: a campaign has 1 to {} parts, and not {}", where, kMaxParts, part.count)));
  if (part.number >= part.count)
    return failed(
        invalid(fmt::format("{}: there is no part {} of {}; they are numbered from 0 to {}", where,
                            part.number, part.count, part.count - 1)));
  return part;
}

Result<CampaignPart> parse_part(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto number = number_in(std::string_view(text).substr(0, slash));
  const auto count = slash == std::string::npos
                         ? std::nullopt
                         : number_in(std::string_view(text).substr(slash + 1));
  if (!number || !count)
    return failed(invalid(fmt::format(
        "--part: '{}' is neither auto nor a part such as 0/4, the first of four", text)));
  return in_range({*number, *count}, "--part");
}

// Reads variables, and keeps the first thing that is wrong with one.
class Variables {
 public:
  explicit Variables(const GetVariable& environment) : environment_(environment) {}

  bool has(const char* name) const { return environment_(name) != nullptr; }

  // Returns 0 after a failure.
  std::uint64_t number(const char* name) {
    const char* const text = environment_(name);
    const auto value = text == nullptr ? std::nullopt : number_in(text);
    if (!value && status_.ok())
      status_ =
          invalid(text == nullptr ? fmt::format("the environment has no {}: give --part I/N", name)
                                  : fmt::format("the environment has {}='{}', which is not a whole "
                                                "number: give --part I/N",
                                                name, text));
    return value.value_or(0);
  }
  const Status& status() const { return status_; }

 private:
  const GetVariable& environment_;
  Status status_;
};

// The ranks of one launch; nothing if no launcher has set its variables.
std::optional<CampaignPart> ranks_of(Variables& variables) {
  struct Launcher {
    const char* rank;
    const char* size;
  };
  constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                     {"PMI_RANK", "PMI_SIZE"},
                                     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                     {"SLURM_PROCID", "SLURM_NTASKS"}};
  const bool is_array = variables.has("SLURM_ARRAY_TASK_ID");
  for (const Launcher& each : kLaunchers) {
    // A batch script has SLURM_NTASKS as well, and is a single process.
    if (is_array && std::string_view(each.size) == "SLURM_NTASKS") continue;
    if (variables.has(each.rank) && variables.has(each.size))
      return CampaignPart{variables.number(each.rank), variables.number(each.size)};
  }
  return std::nullopt;
}

// The tasks of a job array.
Result<CampaignPart> array_of(Variables& variables, std::optional<std::uint64_t> parts) {
  const std::uint64_t id = variables.number("SLURM_ARRAY_TASK_ID");
  if (parts) return CampaignPart{id, *parts};
  const std::uint64_t count = variables.number("SLURM_ARRAY_TASK_COUNT");
  const std::uint64_t least = variables.number("SLURM_ARRAY_TASK_MIN");
  const std::uint64_t most = variables.number("SLURM_ARRAY_TASK_MAX");
  if (!variables.status().ok()) return failed(variables.status());
  if (most < least || most - least + 1 != count || id < least || id > most)
    return failed(invalid(fmt::format(
        "the job array has {} tasks from {} to {}, so the number of a task does not say which "
        "part it is: give --parts N, and tasks from 0 to N-1",
        count, least, most)));
  return CampaignPart{id - least, count};
}

}  // namespace

std::string CampaignPart::to_string() const { return fmt::format("{}/{}", number, count); }

Result<CampaignPart> resolve_part(const std::string& text, std::optional<std::uint64_t> parts,
                                  const GetVariable& environment) {
  if (text != "auto") {
    Result<CampaignPart> part = parse_part(text);
    if (part && parts && *parts != part->count)
      return failed(
          invalid(fmt::format("--part {} and --parts {} contradict each other: leave one "
                              "of them out",
                              text, *parts)));
    return part;
  }
  Variables variables(environment);
  CampaignPart part;
  std::string where;
  if (variables.has("JOB_COMPLETION_INDEX")) {
    if (!parts)
      return failed(
          invalid("Kubernetes does not say how many completions the job has: give "
                  "--parts N"));
    part = {variables.number("JOB_COMPLETION_INDEX"), *parts};
    where = "JOB_COMPLETION_INDEX";
  } else if (variables.has("SLURM_ARRAY_TASK_ID")) {
    const std::optional<CampaignPart> ranks = ranks_of(variables);
    Result<CampaignPart> array = array_of(variables, ranks ? std::nullopt : parts);
    if (!array) return array;
    part = ranks ? CampaignPart{array->number * ranks->count + ranks->number,
                                array->count * ranks->count}
                 : *array;
    where = "SLURM_ARRAY_TASK_ID";
  } else if (const std::optional<CampaignPart> ranks = ranks_of(variables)) {
    part = *ranks;
    where = "the rank in the environment";
  } else {
    return failed(
        invalid("nothing in the environment says which part this is (Slurm, Kubernetes, "
                "Open MPI, PMI): give --part I/N, such as 0/1 for one part alone"));
  }
  if (!variables.status().ok()) return failed(variables.status());
  if (parts && *parts != part.count)
    return failed(
        invalid(fmt::format("--parts {} contradicts the environment, which has {} "
                            "processes: leave it out",
                            *parts, part.count)));
  return in_range(part, where);
}

}  // namespace lockstep::properties
