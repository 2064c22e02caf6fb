#include "benchmarks/measure.h"

#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <span>

#include "benchmarks/program.h"
#include "benchmarks/ranks.h"
#include "reducer/base/check.h"

namespace lockstep::benchmarks {
namespace {

constexpr int kWarmUpSteps = 3;

struct Sample {
  std::int64_t begin_ns;
  std::int64_t end_ns;
  std::int64_t cpu_ns;  // of the rank's whole process
  StepNotes notes;
  std::uint64_t wrong;
};

// The samples by contender, repetition and rank, in memory that the parent sees.
class Samples {
 public:
  explicit Samples(const Plan& plan)
      : plan_(plan),
        memory_(sizeof(Sample) * plan.contenders * static_cast<std::size_t>(plan.repetitions) *
                static_cast<std::size_t>(plan.ranks)),
        samples_(reinterpret_cast<Sample*>(memory_.data())) {}
  std::span<Sample> of(std::size_t contender, int repetition) {
    const auto ranks = static_cast<std::size_t>(plan_.ranks);
    const std::size_t row = contender * static_cast<std::size_t>(plan_.repetitions) +
                            static_cast<std::size_t>(repetition);
    return {samples_ + row * ranks, ranks};
  }

 private:
  const Plan plan_;
  SharedMemory memory_;
  Sample* samples_;
};

class Directory {
 public:
  Directory() {
    std::string pattern = std::filesystem::temp_directory_path() / "lockstep-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path = pattern;
  }
  ~Directory() {
    std::error_code error;
    if (!path.empty()) std::filesystem::remove_all(path, error);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string path;  // empty if it could not be created
};

std::int64_t processor_time_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Status run_rank(const Plan& plan, const Place& place, const MakeContenders& make,
                MeetingPoint& meeting, Samples& samples) {
  Result<Contenders> contenders = make(place);
  if (!contenders) return contenders.error();
  LOCKSTEP_CHECK_EQ(contenders->size(), plan.contenders);
  for (int repetition = 0; repetition < plan.repetitions; ++repetition) {
    const Values values(place.ranks, kWarmUpSteps + repetition);
    for (std::size_t i = 0; i < plan.contenders; ++i) {
      const std::size_t turn = (i + static_cast<std::size_t>(repetition)) % plan.contenders;
      Contender& contender = *(*contenders)[turn];
      Sample& sample = samples.of(turn, repetition)[static_cast<std::size_t>(place.rank)];
      LOCKSTEP_RETURN_IF_ERROR(contender.prepare(values));
      meeting.meet();
      const std::int64_t cpu_before = processor_time_ns();
      sample.begin_ns = platform::now().count();
      LOCKSTEP_RETURN_IF_ERROR(contender.step());
      sample.end_ns = platform::now().count();
      sample.cpu_ns = processor_time_ns() - cpu_before;
      meeting.meet();  // comparing now would take processor time from slower ranks
      if (plan.spoil && place.rank == 0) *contender.first_result() += 1;
      sample.wrong = contender.wrong(values);
      sample.notes = contender.notes();
    }
  }
  return {};
}

Summary summarize(const Plan& plan, Samples& samples, std::size_t contender) {
  Summary summary;
  std::vector<double> cpu_ms;
  std::vector<double> delays;
  std::vector<double> exposed;
  for (int repetition = 0; repetition < plan.repetitions; ++repetition) {
    std::int64_t begin = INT64_MAX;
    std::int64_t end = 0;
    std::int64_t longest = 0;
    std::int64_t cpu = 0;
    for (const Sample& sample : samples.of(contender, repetition)) {
      begin = std::min(begin, sample.begin_ns);
      end = std::max(end, sample.end_ns);
      longest = std::max(longest, sample.notes.exposed_ns);
      delays.push_back(static_cast<double>(sample.notes.launch_delay_ns) * 1e-3);
      cpu += sample.cpu_ns;
      summary.wrong += sample.wrong;
    }
    summary.each_ms.push_back(static_cast<double>(end - begin) * 1e-6);
    cpu_ms.push_back(static_cast<double>(cpu) * 1e-6);
    exposed.push_back(static_cast<double>(longest) * 1e-6);
  }
  summary.ms = median(summary.each_ms);
  summary.cpu_ms = median(cpu_ms);
  summary.launch_delay_us = median(delays);
  summary.exposed_ms = median(exposed);
  return summary;
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Status warm_up(const Place& place, Contender& contender) {
  for (int step = 0; step < kWarmUpSteps; ++step) {
    LOCKSTEP_RETURN_IF_ERROR(contender.prepare(Values(place.ranks, step)));
    LOCKSTEP_RETURN_IF_ERROR(contender.step());
  }
  return {};
}

int measure(const Plan& plan, const MakeContenders& make, std::vector<Summary>& summaries) {
  const Directory directory;
  if (directory.path.empty()) return complain("cannot make a folder for temporary files");
  Samples samples(plan);
  MeetingPoint meeting(plan.ranks);
  const int code = run_ranks(plan.ranks, [&](int rank) {
    Status status;
    try {
      Result<Place> place = take_place(rank, plan.ranks, directory.path);
      status = place ? run_rank(plan, *place, make, meeting, samples) : place.error();
    } catch (const std::exception& error) {
      status = Status(Code::kTransport, error.what());
    }
    if (status.ok()) return 0;
    return complain("rank " + std::to_string(rank) + ": " + status.to_string());
  });
  if (code != 0) return code;
  summaries.clear();
  for (std::size_t i = 0; i < plan.contenders; ++i)
    summaries.push_back(summarize(plan, samples, i));
  return 0;
}

}  // namespace lockstep::benchmarks
