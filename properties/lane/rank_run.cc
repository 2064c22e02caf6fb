#include "properties/lane/rank_run.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/lane/python_job.h"
#include "properties/lane/rank_host.h"
#include "properties/lane/rank_json.h"
#include "properties/lane/rank_server.h"
#include "properties/lane/time_limit.h"
#include "properties/observe/meeting.h"
#include "properties/process/message.h"

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kMessageLimit = std::chrono::seconds(10);
constexpr auto kEndLimit = std::chrono::milliseconds(500);  // of a rank that has hung up

// The run of one case.
class RankRun {
 public:
  RankRun(RankLines& lines, const RankRunOptions& options, const Case& c, Observation& observation)
      : lines_(lines),
        options_(options),
        case_(c),
        is_python_(options.subject->kind == Subject::Kind::kPython),
        observation_(observation),
        meeting_(c.program.world),
        waiting_(c.program.world),
        running_(c.program.world, true),
        stopped_(c.program.world),
        left_out_(c.program.world),
        stays_away_(c.program.world),
        wake_at_(c.program.world) {
    observation.ranks.resize(c.program.world);
  }

  void run() {
    const Result<std::string> store = lines_.make_store();
    if (!store) return give_up(Observation::End::kNotRun, store.error().failure().detail);
    store_ = *store;
    hand_out();
    limit_ = run_limit(options_.lane, *options_.subject, case_);
    const Clock::time_point limit = Clock::now() + limit_;
    while (is_running() && observation_.end == Observation::End::kFinished) {
      if (Clock::now() >= limit) give_up(Observation::End::kHung, describe_missing());
      step();
      lines_.watch();
    }
    observation_.recoveries = meeting_.recoveries();
    end_faults();
    lines_.remove_store();
  }

 private:
  bool is_running() const {
    return std::find(running_.begin(), running_.end(), true) != running_.end();
  }

  void hand_out() {
    case_text_ = to_json(case_);
    // All are there before the first begins: the time to connect is limited.
    for (std::uint32_t rank = 0; rank < case_.program.world; ++rank)
      if (!start(rank)) return;
    for (std::uint32_t rank = 0; rank < case_.program.world; ++rank)
      if (!request(rank, std::nullopt)) return crashed(rank);
  }

  bool start(std::uint32_t rank) {
    const Status status = lines_.start(rank);
    if (!status.ok())
      give_up(
          status.code() == Code::kPeerLost ? Observation::End::kCrashed : Observation::End::kNotRun,
          status.failure().detail);
    return status.ok();
  }

  bool request(std::uint32_t rank, std::optional<Joining> joining) {
    const RankRequest job = {case_text_,
                             rank,
                             store_,
                             options_.subject->name(),
                             observation_.detailed,
                             options_.lane == LaneKind::kNccl,
                             options_.net_plan,
                             lines_.address(rank),
                             std::move(joining),
                             options_.subject->rank_program};
    return lines_.send_request(
        rank,
        is_python_ ? python_job(case_, expectation(), job, lines_.group_name()) : to_text(job));
  }

  // The model's expectation after the recoveries up to now.
  Expected expectation() const {
    return expectation_of(case_, options_.subject->profile, meeting_.recoveries());
  }

  void step() {
    std::vector<pollfd> entries;
    std::vector<std::uint32_t> owners;
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank) {
      if (!running_[rank]) continue;
      entries.push_back({lines_.fd(rank), POLLIN, 0});
      owners.push_back(rank);
    }
    wake_stopped();
    wake_left_out();
    wake_paused();
    if (::poll(entries.data(), entries.size(), 2) <= 0) return;
    for (std::size_t i = 0; i < entries.size() && observation_.end == Observation::End::kFinished;
         ++i)
      if (entries[i].revents != 0) hear(owners[i]);
  }

  // Continues ranks that are stopped permanently, once no other rank has work left.
  void wake_stopped() {
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      if (is_working(rank) && !waiting_[rank] && !stopped_[rank]) return;
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      if (stopped_[rank]) wake_at_[rank] = Clock::now();
    stopped_.assign(stopped_.size(), false);
  }

  bool is_working(std::uint32_t rank) const { return running_[rank] && !left_out_[rank]; }

  // Continues ranks that the others left out, once all of these are done.
  void wake_left_out() {
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      if (is_working(rank)) return;
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      if (left_out_[rank] && stays_away_[rank]) wake_at_[rank] = Clock::now();
    stays_away_.assign(stays_away_.size(), false);
  }

  void wake_paused() {
    for (std::uint32_t rank = 0; rank < wake_at_.size(); ++rank) {
      if (wake_at_[rank] == Clock::time_point() || Clock::now() < wake_at_[rank]) continue;
      if (!lines_.resume(rank)) continue;
      wake_at_[rank] = {};
    }
  }

  void hear(std::uint32_t rank) {
    std::string text;
    const Receive got = receive_message(lines_.fd(rank), text, kMessageLimit);
    if (got == Receive::kClosed) return crashed(rank);
    if (got != Receive::kMessage || text.empty()) return sent_nonsense(rank, text);
    const std::string body = text.substr(1);
    switch (text[0]) {
      case kMeet: {
        const std::optional<Arrival> arrival = arrival_from(body);
        if (!arrival) return sent_nonsense(rank, text);
        if (left_out_[rank]) return send_home(rank);
        meeting_.arrive(rank, arrival->finished, arrival->next_step);
        waiting_[rank] = true;
        return decide();
      }
      case kPause: {
        std::uint32_t duration_us = 0;
        const auto read = std::from_chars(body.data(), body.data() + body.size(), duration_us);
        if (read.ec != std::errc()) return sent_nonsense(rank, text);
        wake_at_[rank] = Clock::now() + std::chrono::microseconds(duration_us);
        return;
      }
      case kStop:
        stopped_[rank] = true;
        return;
      case kFaults: {
        const auto faults = faults_from(body);
        if (!faults) return sent_nonsense(rank, text);
        return lines_.begin_store_faults(rank, *faults);
      }
      case kLeave:
        return leave_out(rank, body);
      case kExit:
        return exited(rank, body);
      case kDone:
        return done(rank, body);
      case kEnded:
        if (lines_.has_ended_by_fault(rank, observation_)) return exited_by_host(rank);
        return give_up(Observation::End::kCrashed, fmt::format("rank {} {}", rank, body));
      case kHealed:  // an answer for which nobody waits any more
        return;
      default:
        return sent_nonsense(rank, text);
    }
  }

  void decide() {
    const std::optional<Resume> resume = meeting_.decide();
    if (!resume) return;
    end_faults();
    const std::string text = is_python_ ? python_resume(expectation(), *resume) : to_text(*resume);
    // Those that join begin first, as it takes a while to start a process.
    std::vector<std::uint32_t> members = resume->roster.members;
    const auto joins = std::stable_partition(members.begin(), members.end(),
                                             [&](std::uint32_t rank) { return running_[rank]; });
    for (auto rank = joins; rank != members.end(); ++rank)
      if (!let_join(*rank, *resume)) return;
    for (auto rank = members.begin(); rank != joins; ++rank) {
      waiting_[*rank] = false;
      if (!lines_.send_answer(*rank, text)) return crashed(*rank);
    }
  }

  // A rank that was left out may be saying something.
  void end_faults() {
    lines_.end_store_faults(observation_);
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      if (!running_[rank] || !left_out_[rank]) lines_.end_host_faults(rank, observation_);
  }

  // Another process takes the place of one that has ended.
  bool let_join(std::uint32_t rank, const Resume& resume) {
    if (!start(rank)) return false;
    running_[rank] = true;
    observation_.ranks[rank] = {};
    observation_.ranks[rank].was_replaced = true;
    if (request(rank, Joining{meeting_.recoveries(), resume})) return true;
    crashed(rank);
    return false;
  }

  // The others go on without a rank whose process lives.
  void leave_out(std::uint32_t rank, const std::string& how) {
    const auto& plan = case_.faults.faults;
    const auto fault = std::find_if(plan.begin(), plan.end(), [&](const faults::Fault& each) {
      return each.kind == faults::Kind::kRankLeftOut && each.rank == rank;
    });
    if (fault == plan.end()) return sent_nonsense(rank, how);
    left_out_[rank] = fault->step;
    if (how != std::string_view(kGoesOn)) {
      std::uint32_t duration_us = 0;
      std::from_chars(how.data(), how.data() + how.size(), duration_us);
      stays_away_[rank] = duration_us == 0;
      if (duration_us != 0) wake_at_[rank] = Clock::now() + std::chrono::microseconds(duration_us);
    }
    meeting_.leave(rank);
    decide();
  }

  // A rank that was left out belongs to no group any more: there is nothing that it could go on
  // with.
  void send_home(std::uint32_t rank) {
    if (!lines_.send_answer(rank, to_text(Resume()))) crashed(rank);
  }

  // Handles a planned exit: the process has announced it, and kills itself.
  void exited(std::uint32_t rank, const std::string& bytes) {
    RankObservation seen;
    gather(rank, bytes, seen);
    observation_.ranks[rank].exited = true;
    (void)lines_.end(rank, {});
    for (const faults::Fault& fault : case_.faults.faults)
      if (fault.kind == faults::Kind::kRankReplaced && fault.rank == rank)
        meeting_.replace(rank, fault.at);
    leave(rank);
  }

  // A fault on its host has ended the process, which left no word.
  void exited_by_host(std::uint32_t rank) {
    observation_.ranks[rank].exited = true;
    leave(rank);
  }

  void done(std::uint32_t rank, const std::string& bytes) {
    RankObservation& seen = observation_.ranks[rank];
    gather(rank, bytes, seen);
    observation_.leaked_bytes += seen.leaked_bytes;
    if (left_out_[rank]) {
      seen.exited = true;
      seen.left_out_in = left_out_[rank];
      running_[rank] = false;
      return;
    }
    leave(rank);
  }

  void gather(std::uint32_t rank, const std::string& bytes, RankObservation& seen) {
    faults::Fired fired;
    const bool is_read = is_python_ ? read_python_report(bytes, case_.program, seen)
                                    : from_bytes(bytes, seen, fired);
    if (!is_read) return sent_nonsense(rank, bytes);
    observation_.fired.add_counts(fired);
    observation_.planted += seen.planted;
    observation_.waited_s = std::max(observation_.waited_s, seen.waited_s);
  }

  void leave(std::uint32_t rank) {
    running_[rank] = false;
    meeting_.leave(rank);
    decide();
  }

  void crashed(std::uint32_t rank) {
    const std::string how = lines_.end(rank, kEndLimit);
    const std::string cause = lines_.cause_outside();
    if (!cause.empty())
      return give_up(Observation::End::kNotRun, fmt::format("rank {} {}: {}", rank, how, cause));
    give_up(Observation::End::kCrashed, fmt::format("rank {} {}", rank, how));
  }

  void sent_nonsense(std::uint32_t rank, std::string_view message) {
    constexpr std::size_t kShown = 40;
    std::string shown;
    for (const char c : message.substr(0, kShown))
      shown += c >= ' ' && c <= '~' ? std::string(1, c)
                                    : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    give_up(Observation::End::kCrashed,
            fmt::format("rank {} sent what is no message of ours: something in it wrote to a "
                        "descriptor that is not the subject's ({} bytes: '{}')",
                        rank, message.size(), shown));
  }

  void give_up(Observation::End end, const std::string& why) {
    observation_.end = end;
    observation_.wait_graph = why;
    for (std::uint32_t rank = 0; rank < case_.program.world; ++rank) (void)lines_.end(rank, {});
  }

  std::string describe_missing() const {
    std::vector<std::uint32_t> ended;
    std::vector<std::uint32_t> running;
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      (!running_[rank] || waiting_[rank] ? ended : running).push_back(rank);
    const auto ranks = [](const std::vector<std::uint32_t>& list) {
      return fmt::format("{} {}", list.size() == 1 ? "rank" : "ranks", fmt::join(list, ", "));
    };
    std::string out = fmt::format("after {} s {} still {} in a call of the subject",
                                  static_cast<double>(limit_.count()) / 1000, ranks(running),
                                  running.size() == 1 ? "is" : "are");
    if (!ended.empty())
      out += fmt::format(
          "; {} {} ended the steps: if the others wait for a collective, it is "
          "missing there",
          ranks(ended), ended.size() == 1 ? "has" : "have");
    return out;
  }

  RankLines& lines_;
  const RankRunOptions& options_;
  const Case& case_;
  const bool is_python_;  // the ranks speak JSON (python_job.h)
  Observation& observation_;
  std::string store_;
  std::string case_text_;
  std::chrono::milliseconds limit_{0};  // for the whole case
  Meeting meeting_;
  std::vector<bool> waiting_;
  std::vector<bool> running_;
  std::vector<bool> stopped_;
  std::vector<std::optional<std::uint32_t>> left_out_;  // the step
  std::vector<bool> stays_away_;                        // until the others are done
  std::vector<Clock::time_point> wake_at_;
};

}  // namespace

void run_ranks(RankLines& lines, const RankRunOptions& options, const Case& c,
               Observation& observation) {
  RankRun(lines, options, c, observation).run();
}

}  // namespace lockstep::properties
