#include <algorithm>
#include <optional>

#include "properties/lane/hosted_subject.h"
#include "properties/lane/subject.h"
#include "properties/lane/user_hook.h"
#include "reducer/base/check.h"
#include "reducer/hooks/builtin_hooks.h"
#include "reducer/hooks/power_sgd_hook.h"
#include "reference/power_sgd.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

using properties::ObservedCollective;
using reference::PassKind;

// The production reducer, held by its users' class.
class ProductionSubject final : public TrainingSubject {
 public:
  ProductionSubject(std::string pinned_layout, bool saves_layout)
      : pinned_layout_(std::move(pinned_layout)), saves_layout_(saves_layout) {}

  Status construct(const std::vector<Ref<Parameter>>& parameters,
                   const std::vector<Ref<Buffer>>& buffers, Engine& engine,
                   const reference::Program& program, RankEnvironment& environment,
                   Membership membership) override {
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
    options.bucket_limits = {program.options.first_bucket_bytes, program.options.bucket_bytes};
    std::vector<Ref<Parameter>> first = split_replicas(parameters, buffers, program, options);
    options.broadcast_buffers = !program.options.keep_buffers;
    options.broadcast_chunk_bytes = program.options.chunk_bytes;
    options.ignored = ignored_names(program);
    options.hook = hook_of(program, environment);
    options.failure_grace = environment.failure_grace();
    if (!pinned_layout_.empty() || program.options.pinned != 0) {
      Result<Layout> layout = load_layout(
          pinned_layout_.empty() ? save(drawn_layout(parameters, program)) : pinned_layout_);
      if (!layout) return layout.error();
      options.pinned_layout = std::move(*layout);
    }
    auto parallel =
        DataParallel::create(std::move(first), engine, std::move(options), std::move(membership));
    if (!parallel) return parallel.error();
    parallel_ = std::move(*parallel);
    seen_ = parallel_->reducer().trace().next_sequence();
    manual_sync_ = program.options.manual_sync;
    meets_in_forwards_ = !program.buffers.empty() && !program.options.keep_buffers;
    return {};
  }

  Status forward(PassKind kind, const DataParallel::Module& module,
                 std::vector<Edge>& outputs) override {
    if (kind == PassKind::kNoGrad) return parallel_->forward_without_gradients(module);
    std::optional<DataParallel::NoSync> guard;
    if (kind == PassKind::kNoSync && !manual_sync_) guard.emplace(*parallel_);
    return parallel_->forward(module, outputs);
  }

  Status sync_gradients(std::vector<Edge>& outputs) override {
    return parallel_->sync_gradients(outputs);
  }

  Status begin_join(const reference::Program& program) override {
    JoinOptions options;
    options.divide_by_active = program.options.join == reference::Join::kByActive;
    options.throw_on_early_termination = program.options.early_termination;
    return parallel_->begin_join(options);
  }
  Status end_join() override { return parallel_->end_join(); }

  Status check_complete() override { return parallel_->check_complete(); }
  void abort(const Status& cause) override { parallel_->abort(cause); }

  Status reset(Membership membership) override {
    Status status = parallel_->reset(std::move(membership));
    seen_ = parallel_->reducer().trace().next_sequence();
    return status;
  }

  // Asks the way a user would find out: the next forward is refused. Where ranks may have to meet
  // in a local forward, only one that says that it is poisoned can be asked.
  bool poisoned() const override {
    if (meets_in_forwards_ && parallel_->poisoned().ok()) return false;
    const DataParallel::NoSync guard(*parallel_);
    std::vector<Edge> outputs;
    const Status status = parallel_->forward([](std::vector<Edge>&) { return Status(); }, outputs);
    return status.code() == Code::kPoisoned;
  }

  bool launched_in_pass() const override { return parallel_->reducer().launched_in_pass() > 0; }

  std::optional<Account> account() const override {
    if (!parallel_) return std::nullopt;
    return parallel_->account();
  }

  void take_trace(std::vector<ObservedCollective>& out) override {
    const Trace& trace = parallel_->reducer().trace();
    const std::vector<TraceEntry> entries = trace.entries(seen_);
    out.reserve(out.size() + entries.size());
    for (const TraceEntry& entry : entries) {
      ObservedCollective collective;
      collective.op = op_of(entry);
      collective.bucket = entry.bucket;
      const bool is_sparse = collective.op == ObservedCollective::Op::kGatherSparse;
      collective.count = is_sparse ? entry.bytes() : static_cast<std::uint64_t>(entry.count);
      collective.dtype = entry.dtype;
      collective.sequence = entry.sequence;
      collective.launched_us = microseconds(entry.launched);
      collective.completed_us = microseconds(entry.completed);
      out.push_back(collective);
    }
    seen_ = trace.next_sequence();
  }

  std::string saved_layout() const override {
    return saves_layout_ ? save(parallel_->reducer().layout()) : std::string();
  }

  std::vector<std::uint32_t> rebuilt_order() const override {
    std::vector<std::uint32_t> order;
    const auto& infos = parallel_->reducer().parameter_infos();
    for (const std::size_t index : parallel_->reducer().rebuilt_order())
      order.push_back(number_of(infos[index].name));
    return order;
  }

 private:
  // P15: what the first replica has; the rest goes to the options.
  static std::vector<Ref<Parameter>> split_replicas(const std::vector<Ref<Parameter>>& parameters,
                                                    const std::vector<Ref<Buffer>>& buffers,
                                                    const reference::Program& program,
                                                    ReducerOptions& options) {
    std::vector<Ref<Parameter>> first;
    std::vector<std::size_t> place(parameters.size());
    std::vector<std::uint32_t> copies(parameters.size());
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      if (reference::original_of(program, i) != reference::owner_of(program, i)) continue;
      place[i] = first.size();
      first.push_back(parameters[i]);
    }
    for (std::size_t b = 0; b < buffers.size(); ++b)
      if (program.buffers[b].copy_of == 0) options.buffers.push_back(buffers[b]);
    const auto replica = [&](std::uint32_t number) -> Replica& {
      while (options.replicas.size() <= number) {
        Replica& added = options.replicas.emplace_back();
        added.parameters.resize(first.size());
        added.buffers.resize(options.buffers.size());
      }
      return options.replicas[number];
    };
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      const std::uint32_t original = i - program.parameters[i].copy_of;
      if (original != i) replica(copies[original]++).parameters[place[original]] = parameters[i];
    }
    std::vector<std::uint32_t> buffer_copies(buffers.size());
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const std::size_t original = b - program.buffers[b].copy_of;
      const auto at = std::find(options.buffers.begin(), options.buffers.end(), buffers[original]);
      const auto number = static_cast<std::size_t>(at - options.buffers.begin());
      if (original != b) replica(buffer_copies[original]++).buffers[number] = buffers[b];
    }
    return first;
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

  static std::shared_ptr<CommunicationHook> hook_of(const reference::Program& program,
                                                    RankEnvironment& environment) {
    const bool has_gaps =
        std::any_of(program.parameters.begin(), program.parameters.end(),
                    [](const auto& each) { return each.sparse && reference::is_reduced(each); });
    switch (program.options.hook) {
      case reference::Hook::kAllReduce:
        return make_all_reduce_hook();
      case reference::Hook::kFloat16:
        return make_fp16_compress_hook();
      case reference::Hook::kBFloat16:
        return make_bf16_compress_hook();
      case reference::Hook::kElsewhere:
        return make_user_hook(environment, has_gaps);
      case reference::Hook::kPowerSgd:
        return make_power_sgd_hook({reference::kPowerSgdRank, reference::kPowerSgdSeed});
      case reference::Hook::kNone:
        break;
    }
    return nullptr;
  }

  // What a run that had this order would have saved.
  static Layout drawn_layout(const std::vector<Ref<Parameter>>& parameters,
                             const reference::Program& program) {
    std::vector<ParameterInfo> infos;
    std::vector<std::size_t> number_of(parameters.size());
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      if (!is_original(program.parameters[i]) || program.parameters[i].ignored) continue;
      const Parameter& each = *parameters[i];
      number_of[i] = infos.size();
      infos.push_back({each.name(), each.dtype(), each.device().index(), each.shape().elements(),
                       each.requires_grad(), each.has_sparse_gradients()});
    }
    std::vector<std::size_t> order;
    for (const std::uint32_t parameter : reference::pinned_order(program))
      order.push_back(number_of[parameter]);
    std::vector<std::uint64_t> limits = {program.options.first_bucket_bytes,
                                         program.options.bucket_bytes};
    if (program.options.launch == reference::Launch::kAfterBackward) limits.erase(limits.begin());
    Result<Layout> layout = assign_buckets_in_order(infos, limits, order);
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
      case TraceEntry::What::kRebuild:
        return ObservedCollective::Op::kBroadcastOrder;
      case TraceEntry::What::kState:
        return ObservedCollective::Op::kBroadcastBuffers;
      case TraceEntry::What::kJoin:
        return ObservedCollective::Op::kAnnounce;
    }
    return ObservedCollective::Op::kOther;
  }

  // Parameters are called p0, p1, ...
  static std::uint32_t number_of(const std::string& name) {
    return static_cast<std::uint32_t>(std::stoul(name.substr(1)));
  }

  static std::uint64_t microseconds(platform::Duration time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }

  std::unique_ptr<DataParallel> parallel_;
  const std::string pinned_layout_;
  const bool saves_layout_;
  bool manual_sync_ = false;
  bool meets_in_forwards_ = false;
  std::int64_t seen_ = 0;
};

}  // namespace

SubjectFactory make_subject_factory(const properties::Subject& subject) {
  if (subject.kind == properties::Subject::Kind::kHosted)
    return [table = subject.table] { return make_hosted_subject(table); };
  return [layout = subject.pinned_layout, saves = subject.saves_layout] {
    return std::make_unique<ProductionSubject>(layout, saves);
  };
}

}  // namespace lockstep::inline LOCKSTEP_NS
