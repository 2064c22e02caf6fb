#include "properties/subject/hosted_subject.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "properties/subject/hosted_calls.h"
#include "properties/subject/hosted_pass.h"
#include "reducer/autograd/node_map.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using properties::HostedErrors;
using properties::ObservedCollective;
using reference::PassKind;

std::uint32_t to_c(PassKind kind) {
  switch (kind) {
    case PassKind::kSynced:
      return LOCKSTEP_SYNCED;
    case PassKind::kNoSync:
      return LOCKSTEP_NO_SYNC;
    case PassKind::kNoGrad:
      break;
  }
  return LOCKSTEP_NO_GRAD;
}

std::vector<std::string> names_of(const std::vector<Ref<Parameter>>& parameters) {
  std::vector<std::string> names;
  for (const Ref<Parameter>& parameter : parameters) names.push_back(parameter->name());
  return names;
}

class HostedSubject final : public TrainingSubject, private GradientHook, private HostedBackwards {
 public:
  explicit HostedSubject(const lockstep_subject* table) : table_(*table) {}
  ~HostedSubject() override;

  Status construct(const std::vector<Ref<Parameter>>& parameters,
                   const std::vector<Ref<Buffer>>& buffers, Engine& engine,
                   const reference::Program& program, RankEnvironment& environment,
                   Memberships memberships) override;
  Status forward(PassKind kind, const DataParallel::Module& module,
                 std::vector<Edge>& outputs) override;
  Status check_complete() override;
  void abort(const Status& cause) override;
  Status reset(Memberships memberships) override;
  bool poisoned() const override {
    return table_.poisoned != nullptr && table_.poisoned(self_) != 0;
  }
  bool launched_in_pass() const override { return calls_->launched() > 0; }
  void take_trace(std::vector<ObservedCollective>& out) override { calls_->take_trace(out); }
  std::optional<FlightRecord> flight_record() const override {
    return at_failure_ ? *at_failure_ : record_now();
  }

 private:
  Status gradient_ready(Parameter& parameter, std::size_t index, GraphTask& task) override;
  Status backward_begins(HostedPass& pass, GraphTask& task) override;
  Status backward_succeeded(HostedPass& pass) override;
  Status backward_failed(HostedPass& pass, Status failure) override;

  // Calls the subject with an empty error, and converts the result to a Status.
  template <class F>
  Status call(F function) {
    lockstep_error error = HostedErrors::nothing(calls_->pass());
    const std::int32_t code = function(&error);
    return code == LOCKSTEP_OK ? Status() : errors_->to_status(code, error, calls_->group().rank());
  }
  // Returns one byte per parameter, or null if the mode does not need it.
  const std::uint8_t* reachable_from(const std::vector<Node*>& roots);
  Status create();
  void destroy();
  void end_passes();
  std::uint32_t outputs_left(HostedPass& pass);
  FlightRecord record_now() const;
  Status recorded(Status status);  // keeps the record of the first failure

  const lockstep_subject& table_;
  void* self_ = nullptr;
  Engine* engine_ = nullptr;
  platform::Duration failure_grace_{};
  std::optional<HostedParameters> parameters_;
  std::optional<HostedErrors> errors_;
  std::optional<HostedCalls> calls_;
  std::unique_ptr<HostedSetup> setup_;

  std::vector<Ref<HostedPass>> passes_;  // passes whose outputs may live; the last may be open
  std::int64_t next_pass_ = 0;
  // The outermost backward that was announced to the subject. The training thread writes it before
  // and after the backward's nodes run; hooks read it.
  GraphTask* running_task_ = nullptr;
  ParameterSearch search_;
  NodeMap numbers_;  // the parameters' numbers
  std::vector<std::uint8_t> reachable_;
  std::vector<std::uint8_t> had_hook_;  // by parameter, in the current pass
  std::vector<Node*> roots_;
  std::optional<FlightRecord> at_failure_;  // the rank's first one in its group
};

Status HostedSubject::construct(const std::vector<Ref<Parameter>>& parameters,
                                const std::vector<Ref<Buffer>>&, Engine& engine,
                                const reference::Program& program, RankEnvironment& environment,
                                Memberships memberships) {
  engine_ = &engine;
  failure_grace_ = environment.failure_grace();
  parameters_.emplace(parameters, program);
  errors_.emplace(names_of(parameters_->distinct));
  calls_.emplace(*parameters_, *errors_);
  calls_->enter_group(std::move(memberships.front()));
  setup_ = std::make_unique<HostedSetup>(*parameters_, calls_->group(), failure_grace_);
  LOCKSTEP_RETURN_IF_ERROR(create());
  for (std::size_t i = 0; i < parameters_->distinct.size(); ++i) {
    Parameter& parameter = *parameters_->distinct[i];
    numbers_.insert(&parameter, static_cast<std::uint32_t>(i));
    if (parameter.requires_grad()) parameter.add_hook(this, i);
  }
  return {};
}

Status HostedSubject::create() {
  return call([&](lockstep_error* error) {
    self_ = table_.create(setup_->get(), calls_->get(), error);
    if (self_ != nullptr) return std::int32_t{LOCKSTEP_OK};
    return error->code != LOCKSTEP_OK ? error->code : std::int32_t{LOCKSTEP_INTERNAL};
  });
}

void HostedSubject::destroy() {
  if (self_ != nullptr) table_.destroy(std::exchange(self_, nullptr));
}

HostedSubject::~HostedSubject() {
  if (!calls_) return;
  for (const Ref<Parameter>& parameter : parameters_->distinct) parameter->remove_hook(this);
  end_passes();
  calls_->quiesce();
  destroy();
}

void HostedSubject::end_passes() {
  for (const Ref<HostedPass>& pass : passes_) pass->close();
  passes_.clear();
  running_task_ = nullptr;
  calls_->set_pass(kNone);
}

Status HostedSubject::forward(PassKind kind, const DataParallel::Module& module,
                              std::vector<Edge>& outputs) {
  const std::uint32_t c_kind = to_c(kind);
  LOCKSTEP_RETURN_IF_ERROR(recorded(
      call([&](lockstep_error* error) { return table_.forward_begin(self_, c_kind, error); })));
  std::vector<Edge> made;
  LOCKSTEP_RETURN_IF_ERROR(module(made));
  if (kind == PassKind::kNoGrad) made.clear();
  if (kind == PassKind::kSynced && !made.empty()) {
    std::erase_if(passes_, [](const Ref<HostedPass>& pass) { return pass->usable_outputs() == 0; });
    if (passes_.empty() || passes_.back()->has_begun())
      passes_.push_back(Ref<HostedPass>(new HostedPass(this)));
    const bool shared = parameters_->mode == reference::Mode::kDynamic;
    HostedOutput::put_in_front(passes_.back(), shared, *engine_, made);
  }
  if (table_.forward_end != nullptr) {
    roots_.clear();
    for (const Edge& edge : made)
      if (edge.node) roots_.push_back(edge.node.get());
    const std::uint8_t* reachable = reachable_from(roots_);
    LOCKSTEP_RETURN_IF_ERROR(recorded(call([&](lockstep_error* error) {
      return table_.forward_end(self_, c_kind, reachable, error);
    })));
  }
  for (Edge& output : made) outputs.push_back(std::move(output));
  return {};
}

const std::uint8_t* HostedSubject::reachable_from(const std::vector<Node*>& roots) {
  if (parameters_->mode == reference::Mode::kPlain) return nullptr;
  reachable_.assign(parameters_->distinct.size(), 0);
  for (const Node* node : search_.reachable_from(roots)) {
    const std::uint32_t number = numbers_.number_or(node, ~std::uint32_t{0});
    if (number < reachable_.size()) reachable_[number] = 1;
  }
  return reachable_.data();
}

// The engine calls this before any node of the backward has run.
Status HostedSubject::backward_begins(HostedPass& pass, GraphTask& task) {
  if (running_task_ == &task.outermost()) return {};  // a nested backward
  const bool is_first = !pass.has_begun();
  if (is_first) {
    pass.number = next_pass_++;
    calls_->forget_launched();
    had_hook_.assign(parameters_->distinct.size(), 0);
  }
  roots_.clear();
  pass.append_outputs(roots_);
  const std::uint8_t* reachable = reachable_from(roots_);
  calls_->set_pass(pass.number);
  Status status = recorded(call([&](lockstep_error* error) {
    return table_.backward_begin(self_, pass.number, is_first ? 1 : 0, reachable, error);
  }));
  if (!status.ok()) {
    calls_->set_pass(kNone);
    return status;
  }
  running_task_ = &task.outermost();
  task.outermost().at_end(&pass);
  return {};
}

Status HostedSubject::gradient_ready(Parameter&, std::size_t index, GraphTask& task) {
  const bool is_local = running_task_ != &task.outermost();
  if (!is_local) had_hook_[index] = 1;
  return call([&](lockstep_error* error) {
    const std::int64_t pass = is_local ? std::int64_t{LOCKSTEP_LOCAL} : calls_->pass();
    return table_.gradient_ready(self_, static_cast<std::uint32_t>(index), pass, error);
  });
}

Status HostedSubject::backward_succeeded(HostedPass& pass) {
  running_task_ = nullptr;
  const std::uint32_t left = outputs_left(pass);
  Status status = recorded(call(
      [&](lockstep_error* error) { return table_.backward_end(self_, pass.number, left, error); }));
  calls_->set_pass(kNone);
  return status;
}

// Counts the outputs that lead to a parameter without a hook call so far. What a checkpoint reaches
// is not visible here.
std::uint32_t HostedSubject::outputs_left(HostedPass& pass) {
  roots_.clear();
  pass.append_outputs(roots_);
  return static_cast<std::uint32_t>(
      std::count_if(roots_.begin(), roots_.end(), [this](Node* const& output) {
        const std::span<Node* const> reached = search_.reachable_from({&output, 1});
        if (search_.met_nested_backward()) return true;
        return std::any_of(reached.begin(), reached.end(), [this](const Node* node) {
          const std::uint32_t number = numbers_.number_or(node, ~std::uint32_t{0});
          return number < had_hook_.size() && had_hook_[number] == 0;
        });
      }));
}

Status HostedSubject::backward_failed(HostedPass& pass, Status failure) {
  FlightRecord record = record_now();
  running_task_ = nullptr;
  lockstep_error error = errors_->to_c(failure.failure());
  if (error.pass == kNone) error.pass = pass.number;
  const std::int32_t code = table_.backward_failed(self_, pass.number, &error);
  calls_->set_pass(kNone);
  if (code != LOCKSTEP_OK) failure = errors_->to_status(code, error, calls_->group().rank());
  if (!at_failure_) at_failure_.emplace(std::move(record)).failure = failure.failure();
  return failure;
}

// Tells from hooks and collectives what the rank is doing. Buckets are launched in their order.
FlightRecord HostedSubject::record_now() const {
  using Doing = FlightRecord::Doing;
  const bool is_plain = parameters_->mode == reference::Mode::kPlain;
  const auto is_missing = [&](std::size_t parameter) {
    return parameters_->distinct[parameter]->requires_grad() && had_hook_[parameter] == 0 &&
           (is_plain || reachable_[parameter] != 0);
  };
  bool is_all_ready = true;
  for (std::size_t p = 0; p < had_hook_.size(); ++p) is_all_ready = is_all_ready && !is_missing(p);
  const bool is_running = calls_->pass() != kNone;
  const bool is_armed = !is_running && !passes_.empty() && !passes_.back()->has_begun();
  ProgressSnapshot progress;
  if (running_task_ != nullptr)
    progress.doing = Doing::kBackward;
  else if (is_armed)
    progress.doing = Doing::kArmed;
  else if (next_pass_ > 0 && !is_all_ready && is_plain)
    progress.doing = Doing::kBetween;
  else if (is_running)
    progress.doing = Doing::kFinishing;
  const bool is_open = progress.doing != Doing::kIdle;
  progress.pass = is_open && !is_armed ? next_pass_ - 1 : next_pass_;
  FlightRecord record = calls_->flight_record(progress);
  const auto next = static_cast<std::size_t>(is_armed ? 0 : calls_->launched());
  if (!is_open || next >= parameters_->buckets.size()) return record;
  record.next_bucket = static_cast<int>(next);
  for (const std::uint32_t member : parameters_->buckets[next].parameters)
    if (is_armed || is_missing(member)) record.missing.add(errors_->names()[member]);
  return record;
}

Status HostedSubject::recorded(Status status) {
  if (!status.ok() && !at_failure_) at_failure_.emplace(record_now()).failure = status.failure();
  return status;
}

Status HostedSubject::check_complete() {
  if (table_.check_complete == nullptr) return {};
  return recorded(call([&](lockstep_error* error) { return table_.check_complete(self_, error); }));
}

// The group of a subject without abort() ends as that of a process that ends.
void HostedSubject::abort(const Status& cause) {
  LOCKSTEP_CHECK(!cause.ok());
  if (table_.abort == nullptr) return calls_->group().abort(cause);
  const lockstep_error error = errors_->to_c(cause.failure());
  table_.abort(self_, &error);
}

// A subject without reset() is replaced by a new one, as in a restarted job.
Status HostedSubject::reset(Memberships memberships) {
  end_passes();
  next_pass_ = 0;
  at_failure_.reset();
  calls_->quiesce();
  if (table_.reset == nullptr) destroy();
  calls_->enter_group(std::move(memberships.front()));
  auto setup = std::make_unique<HostedSetup>(*parameters_, calls_->group(), failure_grace_);
  const std::unique_ptr<HostedSetup> old = std::exchange(setup_, std::move(setup));
  if (table_.reset == nullptr) return create();
  return call([&](lockstep_error* error) { return table_.reset(self_, setup_->get(), error); });
}

}  // namespace

std::unique_ptr<TrainingSubject> make_hosted_subject(const lockstep_subject* table) {
  LOCKSTEP_CHECK(table != nullptr);
  return std::make_unique<HostedSubject>(table);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
