// Processes for tests of recovery, which train and go on after each failure with whoever is left
// (F4, F9). Nobody coordinates them but the store.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "properties/hosts/test_namespace_ranks.h"
#include "reducer/comm/roster.h"

namespace lockstep::testing {

constexpr std::chrono::milliseconds kTimeout{800};
constexpr std::chrono::milliseconds kConnectTimeout{2000};
constexpr std::chrono::milliseconds kPatience{
    2500};  // more than the time in which all survivors notice a failure
constexpr std::size_t kGenerations = 4096;  // of which a Life keeps the times
constexpr int kEvents = 200;

// It holds what became of a process, and what the test asks of it, in memory that all share.
struct Life {
  std::atomic<bool> waits{false};         // it is a spare: it does not begin yet
  std::atomic<int> births{0};             // how often the process was started
  std::atomic<int> pace_ms{0};            // how long it pauses before each step
  std::atomic<bool> has_no_store{false};  // it cannot reach the store
  // It was stopped: it may have ended a step that it notes when it goes on.
  std::atomic<bool> was_stopped{false};
  std::atomic<bool> leaves_keys{false};          // a bug on purpose: a key in the store each step
  std::atomic<bool> contributes_wrongly{false};  // another one: gradients that are not its own
  std::atomic<bool> is_naive{false};         // where it cannot, it goes on alone: a bug on purpose
  std::atomic<int> generation{kNone};        // of its group; kNone: it has none
  std::atomic<int> size{0};                  // of its group
  std::atomic<int> steps{0};                 // that ended well
  std::atomic<int> of_generation{0};         // of them, in this generation
  std::atomic<int> wrong{0};                 // steps with wrong bits
  std::atomic<std::int64_t> collectives{0};  // that its reducer has started, in all generations
  std::atomic<int> in_flight{0};             // of these, after the last step
  std::atomic<std::int64_t> first_ms[kGenerations] = {};  // when it ended steps of a generation
  std::atomic<std::int64_t> last_ms[kGenerations] = {};
  std::atomic<int> size_of[kGenerations] = {};
  std::atomic<int> events{0};
  struct Event {
    std::int64_t ms = 0;
    char text[220] = {};
  } event[kEvents];

  void tell(const std::string& text) {
    Event& next = event[events++ % kEvents];  // the newest ones are kept
    strncpy(next.text, text.c_str(), sizeof next.text - 1);
    next.ms = now_ms();
  }
};

// The store, as long as the process can reach it.
class ReachedStore final : public Store {
 public:
  ReachedStore(std::shared_ptr<Store> inner, const Life& life)
      : inner_(std::move(inner)), life_(life) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    if (life_.has_no_store) return failed(gone());
    return inner_->set(key, value);
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    if (life_.has_no_store) return failed(gone());
    return inner_->get(key, deadline);
  }
  Result<bool> contains(std::string_view key) override {
    if (life_.has_no_store) return failed(gone());
    return inner_->contains(key);
  }

 private:
  static Status gone() { return {Code::kTransport, "the store cannot be reached"}; }

  const std::shared_ptr<Store> inner_;
  const Life& life_;
};

// A process that trains, and goes on after each failure with whoever is left.
class Trainer {
 public:
  Trainer(int process, std::shared_ptr<Store> store, Life& life, int most)
      : process_(process),
        life_(life),
        store_(std::make_shared<ReachedStore>(std::move(store), life)) {
    options_.name = "p" + std::to_string(process) + "." + std::to_string(life.births++);
    options_.most = most;
    options_.patience = kPatience;
    life.generation = kNone;
    p_ = replica_.add("p");
    q_ = replica_.add("q");
  }

  // A step, or the way into the next group.
  Status go_on() {
    while (life_.waits) pause_for(std::chrono::milliseconds(5));
    pause_for(std::chrono::milliseconds(life_.pace_ms));
    if (roster_.rank == kNone || !is_in_group_) {
      enter_group();
      return {};
    }
    const Status status = train();
    if (status.ok()) {
      note_step();
      return {};
    }
    leave(status);
    return {};
  }

 private:
  void enter_group() {
    auto next = agree_on_roster(*store_, roster_, options_,
                                platform::Deadline::in(std::chrono::seconds(8)));
    if (!next) {
      tell_once("no group: " + next.error().failure().detail);
      if (life_.is_naive) return go_on_alone();
      // Left out: it comes back as a process that joins.
      if (next.error().code() == Code::kAborted) {
        roster_ = Roster();
        options_.name = "p" + std::to_string(process_) + "." + std::to_string(life_.births++);
      }
      pause_for(std::chrono::milliseconds(200));
      return;
    }
    roster_ = *next;
    begin_group();
  }

  void begin_group() {
    const Status status = connect();
    if (!status.ok()) return leave(status);
    is_in_group_ = true;
    is_counted_ = false;
    step_ = 0;
    life_.of_generation = 0;
    life_.size = roster_.size();
    life_.generation = static_cast<int>(roster_.generation);
    life_.tell("in generation " + std::to_string(roster_.generation) + " as rank " +
               std::to_string(roster_.rank) + " of " + std::to_string(roster_.size()));
  }

  // The control: a process goes on with what it sees itself, without asking the store.
  void go_on_alone() {
    roster_.members = {options_.name};
    roster_.rank = 0;
    ++roster_.generation;
    keys_ = std::make_shared<HashStore>();
    begin_group();
  }

  void tell_once(const std::string& text) {
    if (text != told_) life_.tell(text);
    told_ = text;
  }

  Status connect() {
    GlooContextOptions connection;
    connection.share_memory = false;  // The ranks stand for machines.
    connection.timeout = kConnectTimeout;
    connection.address = data_address(static_cast<std::uint32_t>(process_));
    const auto keys = std::make_shared<PrefixStore>(roster_.prefix(), keys_);
    auto group = GlooProcessGroup::connect(keys, roster_.rank, roster_.size(),
                                           with_timeout(kTimeout), connection);
    if (!group) return group.error();
    group_ = std::shared_ptr<ProcessGroup>(std::move(*group));
    if (replica_.parallel) return replica_.parallel->reset({group_, keys});
    ReducerOptions options = quick_options(false);
    options.failure_grace = std::chrono::milliseconds(300);
    return replica_.create({group_, keys}, options);
  }

  void leave(const Status& status) {
    life_.generation = kNone;
    is_in_group_ = false;
    life_.tell("failed: " + std::string(name_of(status.code())) + ", suspect " +
               std::to_string(status.failure().suspect) + ": " + status.failure().detail);
    if (group_) group_->abort(status);
  }

  // A process contributes a number that makes the mean a whole one.
  double contribution(int process) const {
    return roster_.size() * (process + 1 + static_cast<double>(step_ % 5));
  }

  static Values values_at(double value) { return {value, 2 * value}; }

  Status train() {
    replica_.undefine_grads();
    const double mine = contribution(process_) + (life_.contributes_wrongly ? 1 : 0);
    LOCKSTEP_RETURN_IF_ERROR(replica_.backward(replica_.forward_of({p_, q_}), values_at(mine)));
    double mean = 0;
    for (const std::string& each : roster_.members)
      mean += contribution(std::stoi(each.substr(1))) / roster_.size();
    const Values expected = values_at(mean);
    if (values_of(p_->grad()) != expected || values_of(q_->grad()) != expected) ++life_.wrong;
    return {};
  }

  void note_step() {
    ++step_;
    ++life_.steps;
    ++life_.of_generation;
    const auto at = static_cast<std::size_t>(roster_.generation);
    if (at < kGenerations && !life_.was_stopped.exchange(false)) {
      if (life_.first_ms[at] == 0) life_.first_ms[at] = now_ms();
      life_.last_ms[at] = now_ms();
      life_.size_of[at] = roster_.size();
    }
    if (life_.leaves_keys) (void)store_->set("left/" + std::to_string(life_.steps), "");
    if (step_ % 10 == 0) count_collectives();
    // Rank 0 ends the group where somebody waits to join; the others learn it as a failure.
    if (roster_.rank != 0 || step_ % 10 != 0) return;
    const auto waits = somebody_waits(*store_, roster_);
    if (waits && *waits) leave(Status(Code::kAborted, "somebody waits to join"));
  }

  void count_collectives() {
    const FlightRecord record = replica_.parallel->flight_record();
    // Sequence numbers begin anew in each group.
    life_.collectives += record.next_sequence - (is_counted_ ? counted_ : 0);
    counted_ = record.next_sequence;
    is_counted_ = true;
    int in_flight = 0;
    for (const RecordedCollective& each : record.collectives)
      in_flight += each.state == RecordedCollective::State::kInFlight ? 1 : 0;
    life_.in_flight = in_flight;
  }

  const int process_;
  Life& life_;
  const std::shared_ptr<Store> store_;
  std::shared_ptr<Store> keys_ = store_;  // of the groups
  std::string told_;
  RosterOptions options_;
  Roster roster_;
  bool is_in_group_ = false;
  std::int64_t step_ = 0;
  bool is_counted_ = false;   // in this group
  std::int64_t counted_ = 0;  // collectives of the reducer, in life_.collectives
  TestRank replica_;
  Ref<Parameter> p_, q_;
  std::shared_ptr<ProcessGroup> group_;
};

// Tests with such processes, which need nft.
class TrainersTest : public NamespaceTest {
 protected:
  static constexpr std::size_t kMost = NamespaceRanks::kMost;

  TrainersTest() = default;
  ~TrainersTest() override {
    if (has_lives()) ::munmap(lives_, kMost * sizeof(Life));
  }
  void SetUp() override {
    NamespaceTest::SetUp();
    need_nft();
    if (IsSkipped() || HasFatalFailure()) return;
    void* memory = ::mmap(nullptr, kMost * sizeof(Life), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    lives_ = static_cast<Life*>(memory);
    for (std::size_t i = 0; i < kMost; ++i) new (&lives_[i]) Life;
    begin_ms_ = now_ms();
  }
  // False where the test is skipped, or could not begin.
  bool has_lives() const { return lives_ != nullptr; }

  Life* lives_ = nullptr;  // of the processes; memory that all share
  Life test_;              // what the test does
  std::int64_t begin_ms_ = 0;
};

// A generation that two groups have, or in which a step ended before the last one of an earlier
// generation; kNone if there is none.
inline int first_overlap(const Life* lives, std::size_t count) {
  std::int64_t last = 0;
  for (std::size_t g = 0; g < kGenerations; ++g) {
    std::int64_t first_here = 0;
    std::int64_t last_here = 0;
    int members = 0;
    int size = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t first = lives[i].first_ms[g];
      if (first == 0) continue;
      first_here = first_here == 0 ? first : std::min(first_here, first);
      last_here = std::max(last_here, lives[i].last_ms[g].load());
      size = std::max(size, lives[i].size_of[g].load());
      ++members;
    }
    if (members == 0) continue;
    if (first_here < last || members > size) return static_cast<int>(g);
    last = last_here;
  }
  return kNone;
}

// The newest events of all processes and of the test, in order of time, from `begin_ms` on.
inline void print_timeline(const Life* lives, std::size_t count, const Life& test,
                           std::int64_t begin_ms) {
  struct Line {
    std::int64_t ms;
    std::string text;
  };
  std::vector<Line> lines;
  const auto add = [&](const Life& life, const std::string& who) {
    for (int i = 0; i < std::min(life.events.load(), kEvents); ++i)
      if (life.event[i].ms >= begin_ms)
        lines.push_back({life.event[i].ms, who + life.event[i].text});
  };
  for (std::size_t i = 0; i < count; ++i) add(lives[i], "process " + std::to_string(i) + ": ");
  add(test, "the test: ");
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.ms < b.ms; });
  for (const Line& each : lines)
    std::printf("%7.3f s  %s\n", static_cast<double>(each.ms - begin_ms) / 1000, each.text.c_str());
}

}  // namespace lockstep::testing
