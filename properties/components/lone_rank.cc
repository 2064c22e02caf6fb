// This component checks one rank's reducer when its user goes on after an event that no program
// of a case contains. All ranks of a case recover from every failure; here another pass follows
// one that failed and left the reducer clean (P12), a working reducer is reset on a new group or
// its own (F4), and one call in some steps fails: memory is refused, a collective, a
// communication hook or a second group of other processes fails. Only this rank runs: it is rank
// 0 of two, and the group knows what the other rank contributes.
//
// The component judges that no call swallows a failure (F1), what its error names (F2), whether
// the reducer refuses work afterwards (P12), what its flight record says (T1), and that the
// gradients of all steps that end well are those of the contract, in all modes, also in passes
// that the rank shadows (S2).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "properties/components/lone_rank_model.h"
#include "properties/components/lone_rank_peer.h"
#include "reducer/base/check.h"
#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using namespace lone_rank;

class LoneRank {
 public:
  explicit LoneRank(Choices& choices) : chance_(choices), host_(mishap_), engine_(0) { draw(); }

  // Returns what is wrong, or an empty text.
  std::string judge() {
    draw_mishap();
    std::string flaw = construct();
    for (std::uint32_t step = 0; step < kSteps && flaw.empty(); ++step) flaw = take_step();
    if (flaw.empty()) flaw = flaw_of_hook_;
    return flaw.empty() ? flaw : flaw + describe();
  }

 private:
  // The groups of the reducer, and their store.
  struct Groups {
    std::shared_ptr<PeerGroup> first;
    std::shared_ptr<PeerGroup> second;
    std::shared_ptr<Store> store;
  };

  std::uint32_t below(std::size_t limit) {
    return chance_.below(static_cast<std::uint32_t>(limit));
  }
  bool draws(std::uint32_t percent) { return chance_.percent(percent); }

  void draw() {
    setup_.mode = static_cast<Mode>(below(3));
    setup_.is_view = draws(50);
    setup_.is_after_backward = draws(25);
    setup_.has_second_group = setup_.is_after_backward && draws(60);
    setup_.rebuilds = draws(50);
    setup_.is_hooked = draws(30);
    setup_.limit = std::array<std::uint64_t, 3>{1, 40, 1u << 20}[below(3)];
    const std::uint32_t count = 1 + below(kMostParameters);
    for (std::uint32_t i = 0; i < count; ++i) add_parameter(i, draws(15));
    if (model_.known.empty()) add_parameter(count, false);
    if (draws(40)) buffers_.push_back(make_ref<Buffer>("b", tensor({1, 2, 3})));
    peer_.uses.assign(model_.known.size(), true);
  }

  void draw_mishap() {
    using Kind = Mishap::Kind;
    const auto last = static_cast<std::size_t>(Kind::kStrangers);
    mishap_.kind = draws(40) ? static_cast<Kind>(1 + below(last)) : Kind::kNone;
    mishap_.left = 1 + below(5);
    mishap_.hook_flaw = static_cast<HookFlaw>(below(static_cast<std::size_t>(HookFlaw::kCount)));
  }

  void add_parameter(std::uint32_t number, bool is_frozen) {
    const bool is_sparse = !is_frozen && draws(20);
    const auto elements = static_cast<std::int64_t>(1 + below(2));
    const Shape shape = is_sparse ? Shape::row_major({3, elements}) : Shape::row_major({elements});
    const Ref<Parameter> parameter = make_ref<Parameter>(
        "p" + std::to_string(number), host_, DType::kFloat32, shape, !is_frozen,
        engine_.next_sequence(),
        is_sparse ? Parameter::Gradients::kSparse : Parameter::Gradients::kDense);
    if (draws(50)) {
      Result<Tensor> value = Tensor::empty(host_, DType::kFloat32, shape);
      LOCKSTEP_CHECK(value.has_value());
      parameter->set_value(std::move(*value));
    }
    all_.push_back(parameter);
    if (is_frozen) return;
    Known& known = model_.known.emplace_back();
    known.parameter = parameter;
    known.is_sparse = is_sparse;
    known.listed = all_.size() - 1;
  }

  ReducerOptions options() {
    ReducerOptions options;
    options.find_unused_parameters = setup_.mode == Mode::kDynamic;
    options.static_graph = setup_.mode == Mode::kStatic;
    options.gradient_as_bucket_view = setup_.is_view;
    options.rebuild_buckets = setup_.rebuilds;
    options.bucket_limits = {setup_.limit};
    options.coalesced_bytes = setup_.limit;
    if (setup_.is_after_backward) options.schedule = Schedule::kAfterBackward;
    if (setup_.is_hooked)
      options.hook = std::make_shared<ForgetfulHook>(host_, other_, mishap_, flaw_of_hook_);
    options.buffers = buffers_;
    options.failure_grace = std::chrono::milliseconds(1);
    return options;
  }

  Membership new_membership() {
    Membership membership;
    groups_.first = std::make_shared<PeerGroup>(mishap_, peer_, false);
    groups_.second =
        setup_.has_second_group ? std::make_shared<PeerGroup>(mishap_, peer_, true) : nullptr;
    membership.group = groups_.first;
    membership.backward_group = groups_.second;
    membership.store = groups_.store = std::make_shared<HashStore>();
    return membership;
  }

  // ---- Calls, and what their results must be ----

  // Makes a call, in which the mishap may happen.
  template <class Make>
  Status attempt(const Make& make) {
    started_ = started();
    mishap_.is_on = true;
    Status status = make();
    mishap_.is_on = false;
    return status;
  }
  std::uint32_t started() const {
    return (groups_.first ? groups_.first->started() : 0) +
           (groups_.second ? groups_.second->started() : 0);
  }

  std::string construct() {
    parallel_.reset();
    const auto make = [&]() -> Status {
      auto made = DataParallel::create(all_, engine_, options(), new_membership());
      if (!made) return made.error();
      parallel_ = std::move(*made);
      return {};
    };
    const Status status = attempt(make);
    begin_group();
    return judge(Call::kConstruct, status);
  }

  // A new group knows nothing of the passes of the one before.
  void begin_group() {
    if (mishap_.kind == Mishap::Kind::kStrangers && setup_.has_second_group)
      mishap_.has_happened = std::exchange(mishap_.left, 0) > 0;
    user_.is_window_open = false;
    model_.begin_group();
  }

  // Judges the result of a call. Where it failed as it had to, the user goes on.
  std::string judge(Call call, const Status& status, Code planned = Code::kOk) {
    const bool has_happened = std::exchange(mishap_.has_happened, false);
    failed_ = !status.ok();
    if (!has_happened && planned == Code::kOk)
      return status.ok() ? "" : "a call fails: " + status.to_string();
    if (status.ok()) return "a call ends well in which something failed";
    std::string flaw = flaw_of_error(call, status, has_happened, planned);
    if (flaw.empty() && call != Call::kConstruct) flaw = flaw_of_state(call, status, has_happened);
    if (!flaw.empty()) return flaw + ": " + status.to_string();
    flaw = go_on(call);
    failed_ = true;
    return flaw;
  }

  bool has_ended_group(bool has_happened) const {
    return has_happened &&
           (mishap_.kind == Mishap::Kind::kEndsBefore || mishap_.kind == Mishap::Kind::kEndsIn);
  }

  std::string flaw_of_error(Call call, const Status& status, bool has_happened,
                            Code planned) const {
    const Failure& failure = status.failure();
    // What the user does, and the mishap: either of them may be the first.
    if (planned != Code::kOk && failure.code == planned) return {};
    if (!has_happened) return "the user does something wrong, and this is reported";
    switch (mishap_.kind) {
      case Mishap::Kind::kMemory:
        return failure.code == Code::kOutOfMemory ? "" : "memory is refused, and this is reported";
      case Mishap::Kind::kStrangers:
        return failure.code == Code::kInvalidArgument
                   ? ""
                   : "the second group has other processes, and this is reported";
      case Mishap::Kind::kHook:
        return flaw_of_hooks_error(mishap_, failure);
      default: {
        const bool is_labelled = call != Call::kConstruct && call != Call::kReset;
        return flaw_of_groups_error(mishap_, is_labelled, failure);
      }
    }
  }

  // A backward that has started nothing leaves the reducer clean (P12); whatever else a group takes
  // part in does not.
  std::string flaw_of_state(Call call, const Status& status, bool has_happened) const {
    const bool has_started = started() > started_;
    const bool is_poisoned = !parallel_->poisoned().ok();
    bool expected = true;
    // The peer waits for the announcement of a rank that joins.
    if (call == Call::kBackward)
      expected = has_started || has_ended_group(has_happened) || user_.is_joining;
    if (call == Call::kModule) expected = has_happened;
    if (call == Call::kLocalBackward) expected = false;
    if (is_poisoned != expected)
      return expected ? "the reducer goes on after this error"
                      : "the reducer refuses work after this error";
    const FlightRecord record = parallel_->flight_record();
    if (is_poisoned && (!record.failure || record.failure->code != status.code()))
      return "the flight record has another failure";
    if (call == Call::kForward && record.doing != Doing::kIdle)
      return fmt::format("a forward fails, and the flight record says {}", name_of(record.doing));
    if (call == Call::kBackward && record.doing == Doing::kIdle)
      return "a backward fails, and the flight record says idle";
    if ((call == Call::kForward || call == Call::kBackward) && record.pass != model_.passes)
      return fmt::format("the flight record says pass {}, and not {}", record.pass, model_.passes);
    return {};
  }

  // The user zeroes the gradients, and resets a reducer that refuses work.
  std::string go_on(Call call) {
    for (Known& each : model_.known) {
      each.parameter->undefine_grad();
      each.forget();
    }
    user_.is_joining = false;
    peer_.next.clear();
    user_.tells_failure = user_.tells_failure || call != Call::kModule;
    if (call == Call::kBackward) ++model_.passes;  // It has its number.
    if (call == Call::kConstruct) return construct();
    if (parallel_->poisoned().ok()) return {};
    return reset(new_membership());
  }

  std::string reset(const Membership& membership) {
    const Status status = attempt([&] { return parallel_->reset(membership); });
    begin_group();
    user_.is_joining = user_.tells_failure = false;
    std::string flaw = judge(Call::kReset, status);
    if (!flaw.empty() || failed_) return flaw;
    if (parallel_->flight_record().doing != Doing::kIdle)
      flaw = "a reducer has been reset, and is in a pass";
    if (parallel_->reducer().launched_in_pass() != 0)
      flaw = "a reducer has been reset, and counts what it launched before";
    return flaw;
  }

  // ---- What the user does ----

  std::string take_step() {
    draw_mishap();
    if (std::exchange(user_.has_swapped, false) && setup_.is_view && draws(50)) {
      // The pass has to move the gradients out of the buckets (B7).
      mishap_.kind = Mishap::Kind::kMemory;
      mishap_.left = 1 + below(2);
      return pass({}, false);
    }
    switch (below(10)) {
      case 0:
        return reset_that_works();
      case 1:
        change_gradients();
        return {};
      case 2:
        return pass({}, true);
      case 3:
        return pass({.is_synced = false}, false);
      case 4:
        return train_unevenly();
      case 5:
        return buffers_.empty() ? spoil_value() : spoil_buffer();
      case 6:
        return fail_in_module();
      default:
        return pass({}, false);
    }
  }

  // A group that the reducer leaves ends, and one that it keeps goes on.
  std::string reset_that_works() {
    const Groups before = groups_;
    const bool stays = draws(40);
    Membership membership{groups_.first, groups_.store, groups_.second};
    if (!stays) {
      membership = new_membership();
      if (before.second && draws(40)) membership.backward_group = groups_.second = before.second;
    }
    std::string flaw = reset(membership);
    if (!flaw.empty() || failed_) return flaw;
    for (const auto& group : {before.first, before.second}) {
      if (!group) continue;
      const bool is_kept = group == groups_.first || group == groups_.second;
      if (!is_kept && !group->has_ended())
        return "a reducer has left its group, which does not end";
      if (is_kept && group->has_ended()) return "a reducer that stays with its group has ended it";
    }
    return {};
  }

  // A buffer is replaced by one that does not fit: the next broadcast fails, and the group with it.
  std::string spoil_buffer() {
    const Ref<Buffer>& buffer = buffers_.front();
    const Tensor before = buffer->value();
    const Shape& shape = before.shape();
    const std::array<Result<Tensor>, 4> wrong{
        Tensor(), Tensor::empty(host_, before.dtype(), Shape::row_major({shape.sizes[0] + 1})),
        Tensor::empty(host_, DType::kFloat64, shape), Tensor::empty(other_, before.dtype(), shape)};
    buffer->set_value(*wrong[below(wrong.size())]);
    const bool is_forward = !user_.is_window_open && draws(50);
    const Membership membership = is_forward ? Membership() : new_membership();
    const Status status = attempt([&] {
      std::vector<Edge> none;
      const auto module = [](std::vector<Edge>&) { return Status(); };
      return is_forward ? parallel_->forward(module, none) : parallel_->reset(membership);
    });
    buffer->set_value(before);
    if (!is_forward) begin_group();
    return judge(is_forward ? Call::kForward : Call::kReset, status, Code::kInvalidArgument);
  }

  // A value is lost, or put on another device, which fails a reset.
  std::string spoil_value() {
    const Ref<Parameter>& parameter = all_[below(all_.size())];
    const Tensor before = parameter->value();
    if (!before.defined()) return {};
    Result<Tensor> elsewhere = Tensor::empty(other_, before.dtype(), before.shape());
    parameter->set_value(draws(50) ? Tensor() : *elsewhere);
    const Membership membership = new_membership();
    const Status status = attempt([&] { return parallel_->reset(membership); });
    parameter->set_value(before);
    begin_group();
    return judge(Call::kReset, status, Code::kInvalidArgument);
  }

  // The user's module fails, which is none of the reducer's failures.
  std::string fail_in_module() {
    std::vector<Edge> outputs;
    const bool throws = draws(50);
    const Status status = attempt([&] {
      return parallel_->forward(
          [&](std::vector<Edge>& made) -> Status {
            made.push_back({model_.known.front().parameter, 0});
            if (throws) throw std::bad_alloc();
            return Status(Code::kInternal, "the module fails");
          },
          outputs);
    });
    if (!outputs.empty()) return "a forward that fails has outputs";
    user_.is_window_open = true;
    return judge(Call::kModule, status, throws ? Code::kOutOfMemory : Code::kInternal);
  }

  void change_gradients() {
    Known& one = model_.known[below(model_.known.size())];
    Known& other = model_.known[below(model_.known.size())];
    const bool can_swap = &one != &other && !one.is_sparse && !other.is_sparse &&
                          one.parameter->shape().elements() == other.parameter->shape().elements();
    if (can_swap && draws(70)) {
      const Tensor kept = one.parameter->grad();
      one.parameter->set_grad(other.parameter->grad());
      other.parameter->set_grad(kept);
      std::swap(one.gradient, other.gradient);
      one.is_used = other.is_used = false;
      user_.has_swapped = true;
    } else {
      one.parameter->undefine_grad();
      one.forget();
    }
  }

  // Every rank joins; then this one is out of inputs, and the peer may train on.
  std::string train_unevenly() {
    JoinOptions options;
    options.divide_by_active = draws(50);
    if (const Status begun = parallel_->begin_join(options); !begun.ok())
      return "a call fails: " + begun.to_string();
    user_.is_joining = true;
    for (std::uint32_t i = below(2); i > 0 && user_.is_joining; --i)
      if (std::string flaw = pass({}, false); !flaw.empty()) return flaw;
    if (!user_.is_joining) return {};
    if (draws(50)) change_gradients();
    if (draws(30)) require_grad(model_.known[below(model_.known.size())]);
    const std::uint32_t passes = below(3);
    for (std::uint32_t i = 0; i < passes; ++i) {
      peer_.next.push_back(UnevenInputs::Event::kPass);
      if (!buffers_.empty()) peer_.next.push_back(UnevenInputs::Event::kBuffers);
    }
    draw_uses();
    const Status status = attempt([&] { return parallel_->end_join(); });
    if (std::string flaw = judge(Call::kEndJoin, status); !flaw.empty() || failed_) return flaw;
    user_.is_joining = user_.is_window_open = false;
    if (!peer_.next.empty()) return "a rank without inputs leaves before its peer";
    for (std::uint32_t i = 0; i < passes; ++i) {
      model_.reduce(peer_, true);
      user_.tells_failure = false;
    }
    if (std::string flaw = flaw_of_gradients(); !flaw.empty()) return flaw;
    for (Known& each : model_.known)
      if (each.requires_grad) {
        each.parameter->undefine_grad();
        each.forget();
      }
    // The group's first pass is not the rank's own then (P11).
    return setup_.mode == Mode::kStatic && passes > 0 ? reset(new_membership()) : std::string();
  }

  static void require_grad(Known& known) {
    if (!known.parameter->grad().defined()) return;
    Tensor gradient = known.parameter->grad();
    gradient.set_requires_grad(true);
    known.parameter->set_grad(std::move(gradient));
    known.is_used = false;
    known.requires_grad = true;
  }

  void draw_uses() {
    for (std::size_t i = 0; i < peer_.uses.size(); ++i) peer_.uses[i] = draws(50);
  }

  struct PassKind {
    bool is_synced = true;
  };

  // The parameters that a pass uses, in the order of their nodes.
  std::vector<std::size_t> outputs_of(PassKind kind) {
    std::vector<std::size_t> numbers(model_.known.size());
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    for (std::size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[below(i)]);
    if (setup_.mode == Mode::kStatic && model_.has_completed) return model_.outputs;
    const bool needs_all = setup_.mode == Mode::kPlain && kind.is_synced;
    if (!needs_all) numbers.resize(1 + below(numbers.size()));
    if (kind.is_synced) model_.outputs = numbers;
    return numbers;
  }

  std::string pass(PassKind kind, bool throws) {
    const std::vector<std::size_t> outputs = outputs_of(kind);
    const std::size_t thrower = throws ? below(outputs.size() + 1) : outputs.size() + 1;
    std::vector<Edge> roots;
    const auto module = [&](std::vector<Edge>& made) {
      for (std::size_t i = 0; i <= outputs.size(); ++i) {
        if (i == thrower) made.push_back({Ref<Node>(new UserNode(engine_, {}, true)), 0});
        if (i == outputs.size()) break;
        const Edge edge{model_.known[outputs[i]].parameter, 0};
        made.push_back({Ref<Node>(new UserNode(engine_, {edge}, false)), 0});
      }
      return Status();
    };
    draw_uses();
    Status status = attempt([&] {
      std::optional<DataParallel::NoSync> guard;
      if (!kind.is_synced) guard.emplace(*parallel_);
      return parallel_->forward(module, roots);
    });
    user_.is_window_open = true;
    if (std::string flaw = judge(Call::kForward, status); !flaw.empty() || failed_) return flaw;
    if (std::string flaw = flaw_of_order(kind); !flaw.empty()) return flaw;
    std::vector<Floats> arrived;
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (i == thrower) gradients.push_back(tensor({1}));
      gradients.push_back(draw_gradient(model_.known[outputs[i]], arrived.emplace_back()));
    }
    if (thrower == outputs.size()) gradients.push_back(tensor({1}));
    status = attempt([&] { return engine_.backward(roots, gradients, false); });
    roots.clear();
    const Call call = kind.is_synced ? Call::kBackward : Call::kLocalBackward;
    std::string flaw = judge(call, status, throws ? Code::kUserFailure : Code::kOk);
    if (!flaw.empty() || failed_) return flaw;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      model_.known[outputs[i]].accumulate(arrived[i]);
    if (kind.is_synced) {
      model_.complete_pass(outputs, peer_);
      user_.tells_failure = user_.is_window_open = false;
    }
    return flaw_of_gradients();
  }

  // ---- The results ----

  std::string flaw_of_gradients() {
    if (!flaw_of_hook_.empty()) return flaw_of_hook_;
    for (const Known& each : model_.known) {
      const Tensor& gradient = each.parameter->grad();
      const std::string name = "the gradient of " + each.parameter->name();
      if (gradient.defined() != each.gradient.has_value())
        return name + (gradient.defined() ? " is defined" : " is undefined");
      if (!gradient.defined()) continue;
      if (gradient.requires_grad() != each.requires_grad)
        return name + (each.requires_grad ? " has lost its graph" : " is a result with a graph");
      if (const Floats values = values_of(gradient, each); values != *each.gradient)
        return fmt::format("{} is {}, and not {}", name, fmt::join(values, " "),
                           fmt::join(*each.gradient, " "));
    }
    if (user_.tells_failure) return {};
    const FlightRecord record = parallel_->flight_record();
    if (record.doing != Doing::kIdle || record.pass != model_.passes)
      return fmt::format("after a step the flight record says {} in pass {}, and {} are complete",
                         name_of(record.doing), record.pass, model_.passes);
    return {};
  }

  // The buckets are rebuilt in the forward behind the first complete pass (B2).
  std::string flaw_of_order(PassKind kind) const {
    if (!model_.order || !kind.is_synced) return {};
    const std::vector<std::size_t> order = parallel_->reducer().rebuilt_order();
    if (order == *model_.order) return {};
    return fmt::format("the buckets follow the order {}, and not {}", fmt::join(order, " "),
                       fmt::join(*model_.order, " "));
  }

  Tensor tensor(const Floats& values) {
    Result<Tensor> made = Tensor::empty(
        host_, DType::kFloat32, Shape::row_major({static_cast<std::int64_t>(values.size())}));
    LOCKSTEP_CHECK(made.has_value());
    std::memcpy(made->data(), values.data(), values.size() * sizeof(float));
    return std::move(*made);
  }

  // Small whole numbers, which no sum rounds.
  Tensor draw_gradient(const Known& known, Floats& values) {
    values.resize(static_cast<std::size_t>(known.parameter->shape().elements()), 0.0f);
    if (!known.is_sparse) {
      for (float& value : values) value = static_cast<float>(1 + below(20));
      return tensor(values);
    }
    const Shape& shape = known.parameter->shape();
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < shape.sizes[0]; ++row)
      if (draws(50)) rows.push_back(row);
    Result<Tensor> made = empty_sparse(host_, DType::kFloat32, shape, rows);
    LOCKSTEP_CHECK(made.has_value());
    auto* at = reinterpret_cast<float*>(made->data());
    const auto width = static_cast<std::size_t>(shape.sizes[1]);
    for (const std::int64_t row : rows)
      for (std::size_t w = 0; w < width; ++w)
        values[static_cast<std::size_t>(row) * width + w] = *at++ =
            static_cast<float>(2 * (1 + below(20)));
    return std::move(*made);
  }

  std::string describe() const {
    constexpr std::array<const char*, 3> kModes{"plain", "dynamic", "static"};
    std::string text =
        fmt::format(" ({} mode{}{}{}{}{}{}, mishap {}, parameters",
                    kModes[static_cast<std::size_t>(setup_.mode)], setup_.is_view ? ", views" : "",
                    setup_.is_after_backward ? ", after backward" : "",
                    setup_.has_second_group ? ", second group" : "",
                    setup_.rebuilds ? ", rebuild" : "", setup_.is_hooked ? ", hook" : "",
                    buffers_.empty() ? "" : ", buffer", static_cast<int>(mishap_.kind));
    for (const Known& each : model_.known)
      text += " " + each.parameter->name() + (each.is_sparse ? "s" : "");
    return text + ")";
  }

  Choices& chance_;
  Mishap mishap_;
  HostOfRank host_;
  HostDevice other_{1};
  Engine engine_;
  std::vector<Ref<Parameter>> all_;  // frozen ones included
  std::vector<Ref<Buffer>> buffers_;
  Setup setup_;
  Model model_{setup_};
  Peer peer_;
  Groups groups_;
  std::unique_ptr<DataParallel> parallel_;
  std::string flaw_of_hook_;
  std::uint32_t started_ = 0;  // collectives, when the last call began
  bool failed_ = false;        // the last call
  UserState user_;
};

}  // namespace

std::string check_lone_rank(Choices& choices) { return LoneRank(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
