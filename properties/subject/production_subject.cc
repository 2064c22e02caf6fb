#include <algorithm>
#include <optional>

#include "properties/observe/training_subject.h"
#include "properties/observe/user_hook.h"
#include "properties/subject/construction_disagreement.h"
#include "properties/subject/diagnosis_check.h"
#include "properties/subject/hosted_subject.h"
#include "properties/subject/join_check.h"
#include "properties/subject/reducer_check.h"
#include "properties/subject/refused_work.h"
#include "properties/subject/subject_factory.h"
#include "reducer/base/check.h"
#include "reducer/hooks/builtin_hooks.h"
#include "reducer/hooks/power_sgd_hook.h"
#include "reference/model/power_sgd.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using properties::ObservedCollective;
using reference::PassKind;

// The production reducer, or several of them (F7), in the class that users use.
class ProductionSubject final : public TrainingSubject, private SelfChecks {
 public:
  ProductionSubject(std::string pinned_layout, bool saves_layout)
      : pinned_layout_(std::move(pinned_layout)), saves_layout_(saves_layout) {}

  Status construct(const std::vector<Ref<Parameter>>& parameters,
                   const std::vector<Ref<Buffer>>& buffers, Engine& engine,
                   const reference::Program& program, RankEnvironment& environment,
                   Memberships memberships) override {
    users_.clear();
    manual_sync_ = program.options.manual_sync;
    compresses_ = program.options.hook == reference::Hook::kPowerSgd;
    meets_in_forwards_ = !program.buffers.empty() && !program.options.keep_buffers;
    reducers_ = reference::reducer_count(program);
    program_ = &program;
    buffers_ = buffers;
    store_ = memberships.front().store;
    for (std::uint32_t r = 0; r < reducers_; ++r) {
      Result<ConstructionInputs> inputs = inputs_of(r, parameters, buffers, program, engine,
                                                    environment, std::move(memberships[r]));
      if (!inputs) return inputs.error();
      auto made = make(std::move(*inputs), engine);
      if (!made) return made.error();
      users_.push_back({std::move(*made)});
      users_.back().see_all();
      users_.back().reducer_id = users_.back().parallel->flight_record().reducer_id;
    }
    return {};
  }

  bool has_failed_to_begin() const override { return users_.size() < reducers_; }

  // Tries the first reducer alone. A rank that does not fit its peers' reset is, as a rule, one
  // that is constructed beside it.
  Status attempt(const DisagreeingAttempt& a) override {
    const reference::DisagreementKind kind = a.program.disagreement.kind;
    Membership membership = a.memberships.front();
    if (a.disagrees && changes_group(kind)) membership = with_changed_group(a.program, membership);
    const bool is_reset = a.is_reset && !has_failed_to_begin();
    if (is_reset && (!a.disagrees || changes_group(kind)))
      return users_.front().parallel->reset(std::move(membership));
    if (is_reset) users_.clear();
    const std::uint32_t reducers = reference::reducer_count(a.program);
    const reference::Program share =
        reducers > 1 ? reference::share_of(a.program, 0) : reference::Program();
    Result<ConstructionInputs> inputs = inputs_of(0, a.parameters, a.buffers, a.program, a.engine,
                                                  a.environment, std::move(membership));
    if (!inputs) return inputs.error();
    if (a.disagrees && !changes_group(kind))
      disagree(a.program, reducers > 1 ? share : a.program, a.parameters, *inputs);
    auto made = make(std::move(*inputs), a.engine);
    return made ? Status() : made.error();
  }

  Status forward(PassKind kind, const DataParallel::Module& module,
                 std::vector<Edge>& outputs) override {
    return forward_through(0, kind, module, outputs);
  }

  Status sync_gradients(std::vector<Edge>& outputs) override {
    return each([&](User& user) { return user.parallel->sync_gradients(outputs); });
  }

  Status begin_join(const reference::Program& program) override {
    JoinOptions options;
    options.divide_by_active = program.options.join == reference::Join::kByActive;
    options.throw_on_early_termination = program.options.early_termination;
    return each([&](User& user) { return user.parallel->begin_join(options); });
  }
  Status end_join() override {
    return each([](User& user) { return user.parallel->end_join(); });
  }

  Status check_complete() override {
    return each([](User& user) { return user.parallel->check_complete(); });
  }
  void abort(const Status& cause) override {
    for (User& user : users_) {
      if (cause.code() == Code::kUnevenInputs && wrong_end_.empty())
        wrong_end_ = flaw_of_ended_join(*user.parallel);
      user.parallel->abort(cause);
    }
  }
  bool destroy_reducers() override {
    const bool is_amid = std::any_of(users_.begin(), users_.end(), [](const User& user) {
      return user.parallel->flight_record().doing == FlightRecord::Doing::kBetween &&
             user.parallel->reducer().launched_in_pass() > 0;
    });
    users_.clear();
    return is_amid;
  }

  Status reset(Memberships memberships) override {
    store_ = memberships.front().store;
    std::size_t next = 0;
    return each([&](User& user) {
      Status status = user.parallel->reset(std::move(memberships[next++]));
      user.see_all();
      user.reducer_id = user.parallel->flight_record().reducer_id;  // each group gives a new one
      return status;
    });
  }

  // This asks as a user would: the next forward is refused. If ranks may have to meet in a local
  // forward, only a reducer that reports its poisoned state can be asked; and so if a pass is open,
  // because a forward would give it up.
  bool poisoned() const override {
    return std::any_of(users_.begin(), users_.end(), [this](const User& user) {
      const bool may_ask = !meets_in_forwards_ &&
                           user.parallel->flight_record().doing != FlightRecord::Doing::kBetween;
      if (!may_ask && user.parallel->poisoned().ok()) return false;
      const DataParallel::NoSync guard(*user.parallel);
      std::vector<Edge> outputs;
      const Status status =
          user.parallel->forward([](std::vector<Edge>&) { return Status(); }, outputs);
      return status.code() == Code::kPoisoned;
    });
  }

  bool launched_in_pass() const override {
    return std::any_of(users_.begin(), users_.end(), [](const User& user) {
      return user.parallel->reducer().launched_in_pass() > 0;
    });
  }

  bool names_buckets() const override { return true; }

  SelfChecks* self_checks() override { return this; }

  bool is_amid_pass() const override {
    return std::any_of(users_.begin(), users_.end(), [](const User& user) {
      return user.parallel->flight_record().doing == FlightRecord::Doing::kBetween;
    });
  }

  std::string memory_flaw(const std::vector<Ref<Parameter>>& parameters,
                          std::uint64_t bytes) override {
    if (may_keep_more(*program_)) return {};
    std::vector<LaidOut> reducers;
    for (const User& user : users_) reducers.push_back(user.laid_out());
    const std::uint64_t most = most_memory(reducers, parameters, buffers_, *program_);
    if (bytes <= most) return {};
    return "after a pass the reducers have " + std::to_string(bytes) +
           " bytes of tensors, and their gradients and buckets need " + std::to_string(most);
  }

  std::string layout_flaw() override {
    if (program_ == nullptr) return {};
    const bool is_coalesced = program_->options.launch == reference::Launch::kAfterBackward &&
                              program_->options.pinned == 0;
    const std::vector<std::uint64_t> limits =
        is_coalesced ? std::vector<std::uint64_t>{program_->options.bucket_bytes}
                     : reference::bucket_limits(program_->options);
    for (const User& user : users_)
      if (std::string flaw = flaw_of_layout(user.laid_out(), limits, !pinned_layout_.empty());
          !flaw.empty())
        return flaw;
    return {};
  }

  std::uint32_t bucket_count() const override {
    std::size_t count = 0;
    for (const User& user : users_) count += user.parallel->reducer().layout().buckets.size();
    return static_cast<std::uint32_t>(count);
  }

  std::optional<FlightRecord> flight_record() const override {
    if (users_.empty()) return std::nullopt;
    return users_.front().parallel->flight_record();
  }

  std::string diagnosis_flaw(bool keeps_records) override {
    if (users_.empty()) return {};
    // The error of one reducer ends the others, which may leave no record.
    const bool is_alone = keeps_records && reducers_ == 1;
    std::string flaw = is_alone ? flaw_of_note(*users_.front().parallel, store_) : std::string();
    return flaw.empty() ? flaw_of_diagnosis(*users_.front().parallel, is_alone) : flaw;
  }

  std::string refusal_flaw() override {
    if (!wrong_end_.empty()) return wrong_end_;
    for (const User& user : users_)
      if (std::string flaw = flaw_of_refusals(*user.parallel, manual_sync_); !flaw.empty())
        return flaw;
    return {};
  }

  std::string join_flaw(const properties::Environment& environment) override {
    return users_.empty() ? std::string() : flaw_of_join(*users_.front().parallel, environment);
  }

  std::string trace_text() const override {
    if (users_.empty()) return {};
    const Reducer& reducer = users_.front().parallel->reducer();
    return reducer.trace().to_string(reducer.layout(), reducer.parameter_infos());
  }

  std::uint32_t reducer_of(const Collective& collective) const override {
    for (std::uint32_t r = 0; r < users_.size(); ++r)
      if (users_[r].reducer_id == collective.reducer_id) return r;
    return 0;
  }

  // Hooks that compress may send the bucket's elements in another dtype. What PowerSGD sends are no
  // elements of the bucket, and have no padding.
  std::string padding_flaw(const Collective& collective, std::uint32_t reducer) override {
    const bool is_on_host = collective.device == nullptr || collective.device->is_host();
    if (is_on_host && collective.op == lockstep::Op::kAllGather && collective.bucket != kNone)
      return users_[reducer].sparse.look_at(collective);
    if (!is_on_host || collective.op != lockstep::Op::kAllReduceSum || compresses_) return {};
    return flaw_of_padding(users_[reducer].laid_out(), collective);
  }

  void take_trace(std::vector<ObservedCollective>& out) override {
    for (std::size_t r = 0; r < users_.size(); ++r) {
      const Trace& trace = users_[r].parallel->reducer().trace();
      const std::vector<TraceEntry> entries = trace.entries(users_[r].seen);
      out.reserve(out.size() + entries.size());
      for (const TraceEntry& entry : entries) {
        ObservedCollective collective;
        collective.op = op_of(entry);
        collective.reducer = static_cast<std::uint32_t>(r);
        collective.bucket = entry.bucket;
        const bool is_sparse = collective.op == ObservedCollective::Op::kGatherSparse;
        collective.count = is_sparse ? entry.bytes() : static_cast<std::uint64_t>(entry.count);
        collective.dtype = entry.dtype;
        collective.sequence = entry.sequence;
        collective.launched_us = microseconds(entry.launched);
        collective.completed_us = microseconds(entry.completed);
        out.push_back(collective);
      }
      users_[r].see_all();
    }
  }

  void take_pass_times(std::vector<properties::ObservedPassTimes>& out) const override {
    const auto ns = [](platform::Duration time) { return std::int64_t{time.count()}; };
    for (std::size_t r = 0; r < users_.size(); ++r) {
      const Reducer& reducer = users_[r].parallel->reducer();
      const PassStatistics& last = reducer.last_pass();
      properties::ObservedPassTimes& times = out.emplace_back();
      times.reducer = static_cast<std::uint32_t>(r);
      times.pass = last.pass;
      const std::vector<BucketLayout>& layouts = reducer.layout().buckets;
      // A forward that has completed no pass may have rebuilt the buckets.
      if (last.pass == kNone || last.buckets.size() != layouts.size()) continue;
      std::vector<std::uint32_t> numbers;
      for (const ParameterInfo& info : reducer.parameter_infos())
        numbers.push_back(number_of(info.name));
      for (std::size_t i = 0; i < last.gradients.size(); ++i) {
        times.gradients_ns.resize(std::max<std::size_t>(times.gradients_ns.size(), numbers[i] + 1));
        times.gradients_ns[numbers[i]] = ns(last.gradients[i]);
      }
      for (std::size_t b = 0; b < last.buckets.size(); ++b) {
        const PassStatistics::Bucket& bucket = last.buckets[b];
        times.buckets.push_back({{}, ns(bucket.ready), ns(bucket.launched), ns(bucket.completed)});
        for (const BucketMember& member : layouts[b].members)
          times.buckets.back().parameters.push_back(numbers[member.parameter]);
      }
      times.backward_ended_ns = ns(last.backward_ended);
      times.finished_ns = ns(last.finished);
    }
  }

  std::string saved_layout() const override {
    const bool is_asked = saves_layout_ && !users_.empty();
    return is_asked ? save(users_.front().parallel->reducer().layout()) : std::string();
  }

  std::vector<std::uint32_t> rebuilt_order() const override {
    std::vector<std::uint32_t> order;
    for (const User& user : users_) {
      const auto& infos = user.parallel->reducer().parameter_infos();
      for (const std::size_t index : user.parallel->reducer().rebuilt_order())
        order.push_back(number_of(infos[index].name));
    }
    return order;
  }

 private:
  struct User {
    std::unique_ptr<DataParallel> parallel;
    std::int64_t seen = 0;  // how much of its trace was read
    std::int64_t reducer_id = kNone;
    SparsePadding sparse = {};
    LaidOut laid_out() const {
      return {parallel->reducer().layout(), parallel->reducer().parameter_infos()};
    }
    void see_all() { seen = parallel->reducer().trace().next_sequence(); }
  };

  // PowerSGD keeps matrices, the hooks that compress keep what they sent of a bucket that the
  // rebuild has replaced, and a sparse gradient that nobody used keeps what was gathered of it. A
  // view that nobody used may lie in a bucket of an earlier reducer, or, if it was swapped, of an
  // earlier layout.
  static bool may_keep_more(const reference::Program& program) {
    const reference::Replicated& options = program.options;
    const bool compresses =
        options.hook == reference::Hook::kFloat16 || options.hook == reference::Hook::kBFloat16;
    if (options.hook == reference::Hook::kPowerSgd || (compresses && options.rebuild)) return true;
    if (options.mode == reference::Mode::kPlain) return false;
    const auto is_sparse = [](const auto& each) { return each.sparse; };
    const auto swaps = [](const auto& each) {
      return each.zero_grad == reference::ZeroGrad::kSwap;
    };
    return std::any_of(program.parameters.begin(), program.parameters.end(), is_sparse) ||
           (options.views && (program.recreate_before_step > 0 ||
                              std::any_of(program.steps.begin(), program.steps.end(), swaps)));
  }

  Result<ConstructionInputs> inputs_of(std::uint32_t reducer,
                                       const std::vector<Ref<Parameter>>& parameters,
                                       const std::vector<Ref<Buffer>>& buffers,
                                       const reference::Program& program, Engine& engine,
                                       RankEnvironment& environment, Membership membership) const {
    const bool is_alone = reference::reducer_count(program) == 1;
    const reference::Program share =
        is_alone ? reference::Program() : reference::share_of(program, reducer);
    Result<ReducerOptions> options =
        options_of(parameters, buffers, is_alone ? program : share, engine, environment);
    if (!options) return failed(options.error());
    return ConstructionInputs{originals(parameters, program), std::move(*options),
                              std::move(membership)};
  }

  static Result<std::unique_ptr<DataParallel>> make(ConstructionInputs inputs, Engine& engine) {
    return DataParallel::create(std::move(inputs.parameters), engine, std::move(inputs.options),
                                std::move(inputs.membership));
  }

  // Calls each reducer; the first failure ends the loop.
  template <class Call>
  Status each(const Call& call) {
    for (User& user : users_) LOCKSTEP_RETURN_IF_ERROR(call(user));
    return {};
  }

  // The forward of each reducer is the module of the one before.
  Status forward_through(std::size_t at, PassKind kind, const DataParallel::Module& module,
                         std::vector<Edge>& outputs) {
    if (at == users_.size()) return module(outputs);
    DataParallel& parallel = *users_[at].parallel;
    const auto inner = [&](std::vector<Edge>& made) {
      return forward_through(at + 1, kind, module, made);
    };
    if (kind == PassKind::kNoGrad) return parallel.forward_without_gradients(inner);
    std::optional<DataParallel::NoSync> guard;
    if (kind == PassKind::kNoSync && !manual_sync_) guard.emplace(parallel);
    return parallel.forward(inner, outputs);
  }

  Result<ReducerOptions> options_of(const std::vector<Ref<Parameter>>& parameters,
                                    const std::vector<Ref<Buffer>>& buffers,
                                    const reference::Program& program, Engine& engine,
                                    RankEnvironment& environment) const {
    ReducerOptions options;
    options.find_unused_parameters = program.options.mode == reference::Mode::kDynamic;
    options.static_graph = program.options.mode == reference::Mode::kStatic;
    options.rebuild_buckets = program.options.rebuild;
    options.gradient_as_bucket_view = program.options.views;
    options.auto_sync = !program.options.manual_sync;
    if (program.options.launch == reference::Launch::kAfterBackward)
      options.schedule = Schedule::kAfterBackward;
    options.coalesced_bytes = program.options.bucket_bytes;
    if (program.options.order == reference::Order::kRankOrder)
      options.reduction = Reduction::kRankOrdered;
    options.verify_payload = program.options.verify;
    options.trace_capacity = std::max(options.trace_capacity, 4 * program.parameters.size());
    options.bucket_limits = reference::bucket_limits(program.options);
    add_replicas(parameters, buffers, program, options);
    options.broadcast_buffers = !program.options.keep_buffers;
    options.broadcast_chunk_bytes = program.options.chunk_bytes;
    options.ignored = ignored_names(program);
    options.hook = hook_of(parameters, program, engine, environment);
    options.failure_grace = environment.failure_grace();
    if (!pinned_layout_.empty() || program.options.pinned != 0) {
      const std::string text =
          pinned_layout_.empty() ? save(drawn_layout(parameters, program)) : pinned_layout_;
      Result<Layout> layout = load_layout(text);
      if (!layout) return failed(layout.error());
      if (load_layout(with_another_digit(text, program.options.pinned)))
        return failed(
            Status(Code::kInternal, "a layout was loaded of which a number had been changed"));
      options.pinned_layout = std::move(*layout);
    }
    return options;
  }

  // Changes one number of the buckets of a saved layout (B3).
  static std::string with_another_digit(std::string text, std::uint32_t which) {
    std::vector<std::size_t> digits;
    const std::size_t end = text.rfind("\nhash ");
    for (std::size_t i = text.find("\nbucket "); i < end; ++i)
      if (text[i] >= '0' && text[i] <= '9') digits.push_back(i);
    if (digits.empty()) return {};
    char& digit = text[digits[which % digits.size()]];
    digit = digit == '9' ? '1' : static_cast<char>(digit + 1);
    return text;
  }

  // Returns the parameters of the first replica (P15).
  static std::vector<Ref<Parameter>> originals(const std::vector<Ref<Parameter>>& parameters,
                                               const reference::Program& program) {
    std::vector<Ref<Parameter>> first;
    for (std::uint32_t i = 0; i < parameters.size(); ++i)
      if (reference::original_of(program, i) == reference::owner_of(program, i))
        first.push_back(parameters[i]);
    return first;
  }

  // Adds the other replicas, whose lists correspond to that of the originals.
  static void add_replicas(const std::vector<Ref<Parameter>>& parameters,
                           const std::vector<Ref<Buffer>>& buffers,
                           const reference::Program& program, ReducerOptions& options) {
    std::size_t listed = 0;
    std::vector<std::size_t> place(parameters.size());
    std::vector<std::uint32_t> copies(parameters.size());
    for (std::uint32_t i = 0; i < parameters.size(); ++i)
      if (reference::original_of(program, i) == reference::owner_of(program, i))
        place[i] = listed++;
    for (std::size_t b = 0; b < buffers.size(); ++b)
      if (program.buffers[b].copy_of == 0) options.buffers.push_back(buffers[b]);
    const auto replica = [&](std::uint32_t number) -> Replica& {
      while (options.replicas.size() <= number) {
        Replica& added = options.replicas.emplace_back();
        added.parameters.resize(listed);
        added.buffers.resize(options.buffers.size());
      }
      return options.replicas[number];
    };
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      const std::uint32_t original = i - program.parameters[i].copy_of;
      if (original == i) continue;
      Replica& of = replica(copies[original]++);
      of.parameters[place[original]] = parameters[i];
      // The index at which the first replica lists it again.
      std::uint32_t listed_again = original;
      for (std::uint32_t again = i + 1; again < parameters.size(); ++again) {
        if (reference::owner_of(program, again) != i) continue;
        do ++listed_again;
        while (listed_again < i && reference::owner_of(program, listed_again) != original);
        if (listed_again >= i) break;
        of.parameters[place[listed_again]] = parameters[i];
      }
    }
    std::vector<std::uint32_t> buffer_copies(buffers.size());
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const std::size_t original = b - program.buffers[b].copy_of;
      const auto at = std::find(options.buffers.begin(), options.buffers.end(), buffers[original]);
      const auto number = static_cast<std::size_t>(at - options.buffers.begin());
      if (original != b) replica(buffer_copies[original]++).buffers[number] = buffers[b];
    }
  }

  static std::vector<std::string> ignored_names(const reference::Program& program) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < program.parameters.size(); ++i)
      if (program.parameters[i].ignored && is_original(program.parameters[i]))
        names.push_back("p" + std::to_string(i));
    for (std::size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].ignored && program.buffers[i].copy_of == 0)
        names.push_back("b" + std::to_string(i));
    return names;
  }

  static UserHookSetup user_hook_of(const std::vector<Ref<Parameter>>& parameters,
                                    const reference::Program& program) {
    UserHookSetup setup;
    setup.result = program.options.hook_result;
    setup.completion = program.options.hook_completion;
    setup.backward = program.options.hook_backward;
    setup.has_gaps =
        std::any_of(program.parameters.begin(), program.parameters.end(),
                    [](const auto& each) { return each.sparse && reference::is_reduced(each); });
    for (std::uint32_t i = 0; i < parameters.size(); ++i)
      if (is_original(program.parameters[i]) && !program.parameters[i].ignored)
        setup.parameters.push_back(parameters[i]);
    return setup;
  }

  static std::shared_ptr<CommunicationHook> hook_of(const std::vector<Ref<Parameter>>& parameters,
                                                    const reference::Program& program,
                                                    Engine& engine, RankEnvironment& environment) {
    switch (program.options.hook) {
      case reference::Hook::kAllReduce:
        return make_all_reduce_hook();
      case reference::Hook::kFloat16:
        return make_fp16_compress_hook();
      case reference::Hook::kBFloat16:
        return make_bf16_compress_hook();
      case reference::Hook::kElsewhere:
        return make_user_hook(user_hook_of(parameters, program), engine, environment);
      case reference::Hook::kPowerSgd:
        return make_power_sgd_hook(
            {static_cast<int>(program.options.power_sgd_rank), reference::kPowerSgdSeed});
      case reference::Hook::kNone:
        break;
    }
    return nullptr;
  }

  // Returns the layout that a run with this order would have saved.
  static Layout drawn_layout(const std::vector<Ref<Parameter>>& parameters,
                             const reference::Program& program) {
    const std::vector<ParameterInfo> infos = infos_of(parameters, program);
    std::vector<std::size_t> number_of(parameters.size());
    std::size_t listed = 0;
    for (std::uint32_t i = 0; i < parameters.size(); ++i)
      if (is_original(program.parameters[i]) && !program.parameters[i].ignored)
        number_of[i] = listed++;
    std::vector<std::size_t> order;
    for (const std::uint32_t parameter : reference::construction_order(program))
      order.push_back(number_of[parameter]);
    Result<Layout> layout =
        assign_buckets_in_order(infos, reference::bucket_limits(program.options), order);
    LOCKSTEP_CHECK(layout.has_value());
    return std::move(*layout);
  }

  static ObservedCollective::Op op_of(const TraceEntry& entry) {
    switch (entry.what) {
      case TraceEntry::What::kBucket:
        return entry.op == lockstep::Op::kAllGather ? ObservedCollective::Op::kGatherSparse
                                                    : ObservedCollective::Op::kAllReduceBucket;
      case TraceEntry::What::kUsageMap:
        return ObservedCollective::Op::kAllReduceUsage;
      case TraceEntry::What::kOrder:
        return ObservedCollective::Op::kBroadcastOrder;
      case TraceEntry::What::kState:
        return ObservedCollective::Op::kBroadcastBuffers;
      case TraceEntry::What::kJoin:
        return ObservedCollective::Op::kAnnounce;
    }
    return ObservedCollective::Op::kOther;
  }

  // The parameters' names are p0, p1, ...
  static std::uint32_t number_of(const std::string& name) {
    return static_cast<std::uint32_t>(std::stoul(name.substr(1)));
  }

  static std::uint64_t microseconds(platform::Duration time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }

  std::vector<User> users_;
  std::uint32_t reducers_ = 0;                   // how many there are to be
  const reference::Program* program_ = nullptr;  // it outlives the subject
  std::vector<Ref<Buffer>> buffers_;
  std::shared_ptr<Store> store_;  // that of the first reducer
  const std::string pinned_layout_;
  const bool saves_layout_;
  bool manual_sync_ = false;
  std::string wrong_end_;    // of a join that an error has ended
  bool compresses_ = false;  // the hook is PowerSGD, whose collectives do not send buckets
  bool meets_in_forwards_ = false;
};

}  // namespace

SubjectFactory make_subject_factory(const properties::Subject& subject) {
  if (subject.kind == properties::Subject::Kind::kHosted)
    return [table = subject.table] { return make_hosted_subject(table); };
  return [layout = subject.pinned_layout, saves = subject.saves_layout] {
    return std::make_unique<ProductionSubject>(layout, saves);
  };
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
