#include "properties/shrink/edits.h"

#include <algorithm>
#include <array>

#include "properties/shrink/rewrite.h"
#include "properties/shrink/walk.h"

namespace lockstep::properties {
namespace {

using reference::Node;
using reference::Parameter;
using reference::Program;
using reference::RankPass;
using reference::Step;

// Divides a list into chunks: level 0 is the whole list, level 1 its halves, and so on down to
// single items. Chunk 0 is the last one.
std::size_t chunk_size(std::size_t count, std::uint32_t level) {
  return std::max<std::size_t>(1, (count + (std::size_t{1} << level) - 1) >> level);
}
Range chunk(std::size_t count, std::uint32_t level, std::uint32_t index) {
  const std::size_t size = chunk_size(count, level);
  const std::size_t gone = std::min(count, size * index);
  const std::size_t last = count - gone;
  return {last - std::min(last, size), last};
}

// Lists the choices for one field, simplest first. Choices that are no simpler are rejected by
// size.
constexpr std::uint32_t kChoices = 3;
template <typename T>
T choice_of(const T& now, const T& simplest, std::uint32_t choice) {
  if (choice == 0) return simplest;
  if constexpr (std::is_same_v<T, bool>) {
    return now;
  } else if constexpr (std::is_enum_v<T>) {
    const auto index = static_cast<std::uint32_t>(now);
    return choice == 1 ? static_cast<T>(std::min(index, 1u))
                       : static_cast<T>(index > 0 ? index - 1 : 0);
  } else if constexpr (std::is_signed_v<T>) {
    return choice == 1 ? T{1} : static_cast<T>(now / 2);
  } else {
    if (choice == 1) return simplest == 0 ? static_cast<T>(now / 2) : T{1};
    return now > 0 ? static_cast<T>(now - 1) : now;
  }
}

// The choices are one element, all elements in one dimension, or a change of one dimension.
constexpr std::size_t shape_choices(std::size_t dims) { return 2 + 4 * dims; }
std::vector<std::uint32_t> reshaped(const std::vector<std::uint32_t>& sizes, std::uint32_t choice) {
  std::vector<std::uint32_t> out = sizes;
  if (choice == 0 || sizes.empty()) return {};
  if (choice == 1) {
    std::uint32_t elements = 1;
    for (const std::uint32_t size : sizes) elements *= size;
    return {std::min(elements, reference::kMaxSize)};
  }
  const std::uint32_t dim = (choice - 2) / 4;
  if (dim >= sizes.size()) return out;
  switch ((choice - 2) % 4) {
    case 0:
      out.erase(out.begin() + dim);
      break;
    case 1:
      out[dim] = 1;
      break;
    case 2:
      out[dim] /= 2;
      break;
    default:
      out[dim] = out[dim] > 0 ? out[dim] - 1 : 0;
  }
  return out;
}

class Lister {
 public:
  explicit Lister(const Case& value) : case_(value), copy_(value) {}

  std::vector<Edit> list() {
    whole();
    steps();
    nodes();
    details();
    std::stable_sort(edits_.begin(), edits_.end());
    return std::move(edits_);
  }

 private:
  void add(Move move, std::size_t a = 0, std::size_t b = 0, std::size_t c = 0) {
    edits_.push_back({move, static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b),
                      static_cast<std::uint32_t>(c)});
  }
  // Adds the chunks of a list. The chunk is the third index of an edit, or the second for whole
  // lists.
  template <typename Add>
  void chunks(std::size_t count, const Add& add_chunk) {
    for (std::uint32_t level = 0; count > 0; ++level) {
      const std::size_t size = chunk_size(count, level);
      for (std::uint32_t i = 0; size * i < count; ++i) add_chunk(level, i);
      if (size == 1) return;
    }
  }
  void whole();
  void steps();
  void pass(std::size_t step, std::size_t variant);
  void nodes();
  void details();

  const Case& case_;
  Case copy_;  // node_lists() and the walk need a mutable case
  std::vector<Edit> edits_;
};

void Lister::whole() {
  const Program& program = case_.program;
  const Schedule& schedule = case_.schedule;
  if (schedule.policy != Schedule::Policy::kDefault || !schedule.deviations.empty())
    add(Move::kDefaultSchedule);
  chunks(program.steps.size(), [&](auto level, auto i) { add(Move::kDropSteps, level, i); });
  for (std::uint32_t world = 1; world < program.world; ++world) add(Move::kSetWorld, world);
  for (std::uint32_t i = 0; program.world > 1 && i < program.world; ++i) add(Move::kDropRank, i);
  chunks(case_.faults.faults.size(), [&](auto level, auto i) { add(Move::kDropFaults, level, i); });
  const std::size_t parameters = program.parameters.size();
  if (parameters > 1) {
    chunks(parameters, [&](auto level, auto i) {
      if (level > 0) add(Move::kDropParameters, level, i);
    });
    for (std::size_t i = 0; i < parameters; ++i) add(Move::kMergeParameter, i);
  }
  for (std::size_t i = 0; i < program.buffers.size(); ++i) add(Move::kDropBuffer, i);
  if (!program.steps_per_rank.empty()) add(Move::kDropInputs);
  if (!program.steps.empty()) {
    add(Move::kPlainProgram);
    add(Move::kUnifyProgram);
  }
  const auto any = [](const Parameter& parameter) { return !is_original(parameter); };
  for (std::size_t i = 0; i < parameters; ++i)
    if (any(program.parameters[i])) add(Move::kUnshare, i);
  chunks(schedule.deviations.size(),
         [&](auto level, auto i) { add(Move::kDropDeviations, level, i); });
}

void Lister::steps() {
  const std::size_t count = case_.program.steps.size();
  for (std::size_t back = 0; back < count; ++back) {
    const std::size_t variants = case_.program.steps[count - 1 - back].variants.size();
    add(Move::kPlainStep, back);
    for (std::size_t variant = 0; variant < variants; ++variant) {
      if (variants > 1) {
        add(Move::kUnifyStep, back, variant);
        add(Move::kPlainPass, back, variant);
      }
      pass(back, variant);
    }
  }
}

void Lister::pass(std::size_t back, std::size_t variant) {
  const Program& program = case_.program;
  const RankPass& each = program.steps[program.steps.size() - 1 - back].variants[variant];
  if (each.forwards.size() > 1)
    for (std::size_t i = 0; i < each.forwards.size(); ++i)
      add(Move::kDropForward, back, variant, i);
  for (std::size_t i = 1; i < each.forwards.size(); ++i) add(Move::kMergeForward, back, variant, i);
  for (std::size_t stay = 0; stay < each.backwards.size(); ++stay)
    add(Move::kDropBackwards, back, variant, stay);
}

void Lister::nodes() {
  const std::vector<NodeList> lists = node_lists(copy_.program);
  std::size_t forward = 0;
  for (std::size_t l = 0; l < lists.size(); ++l) {
    const std::vector<Node>& list = *lists[l].nodes;
    if (list.size() > 1)
      chunks(list.size(), [&](auto level, auto i) {
        if (level > 0) add(Move::kDropNodes, l, level, i);
      });
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].body.empty()) {
        add(Move::kDropBody, l, i);
        add(Move::kInlineBody, l, i);
      }
      for (std::size_t k = 0; k < list[i].inputs.size(); ++k) add(Move::kDropInput, l, i, k);
    }
    if (lists[l].outputs == nullptr) continue;
    const std::size_t outputs = lists[l].outputs->size();
    for (std::size_t i = 0; outputs > 1 && i < outputs; ++i) add(Move::kDropOutput, forward, i);
    ++forward;
  }
  std::size_t backward = 0;
  for (const Step& step : case_.program.steps)
    for (const RankPass& each : step.variants)
      for (const reference::Backward& call : each.backwards) {
        for (std::size_t i = 0; i < call.roots.size(); ++i) add(Move::kDropRoot, backward, i);
        ++backward;
      }
}

void Lister::details() {
  const auto reshape = [this](Move move, const auto& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::size_t dims = tensors[i].sizes.size();
      for (std::size_t choice = 0; dims > 0 && choice < shape_choices(dims); ++choice)
        add(move, i, choice);
    }
  };
  reshape(Move::kReshape, case_.program.parameters);
  reshape(Move::kReshapeBuffer, case_.program.buffers);
  std::array<bool, kFieldNumbers> seen{};
  std::uint32_t place = 0;
  walk_fields(copy_, [&](std::uint32_t number, auto& field, const auto& simplest) {
    ++place;
    if (field == simplest) return;
    if (!seen[number]) add(Move::kDefaultEverywhere, number);
    seen[number] = true;
    for (std::uint32_t choice = 0; choice < kChoices; ++choice) add(Move::kSimplify, place, choice);
  });
  add(Move::kSmallKeys, 0);
  add(Move::kSmallKeys, 1);
  for (std::uint32_t seed = 0; seed < 4; ++seed)
    if (case_.schedule.seed > seed) add(Move::kSeed, seed);
}

class Applier {
 public:
  Applier(const Edit& edit, Case& value) : edit_(edit), case_(value), program_(value.program) {}
  void apply();

 private:
  bool apply_to_whole();
  bool apply_to_steps();
  bool apply_to_nodes();
  void apply_to_details();
  void set_everywhere();
  void simplify();
  void small_keys();
  Step* step() {
    return edit_.a < program_.steps.size() ? &program_.steps[program_.steps.size() - 1 - edit_.a]
                                           : nullptr;
  }

  const Edit& edit_;
  Case& case_;
  Program& program_;
};

template <typename T>
void drop(std::vector<T>& list, Range range) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(range.first),
             list.begin() + static_cast<std::ptrdiff_t>(range.last));
}

bool Applier::apply_to_whole() {
  switch (edit_.move) {
    case Move::kDefaultSchedule:
      case_.schedule = {Schedule::Policy::kDefault, case_.schedule.seed, {}};
      return true;
    case Move::kDropSteps:
      drop_steps(case_, chunk(program_.steps.size(), edit_.a, edit_.b));
      return true;
    case Move::kSetWorld:
      program_.world = edit_.a;
      return true;
    case Move::kDropRank:
      drop_rank(case_, program_.world - 1 - std::min(edit_.a, program_.world - 1));
      return true;
    case Move::kDropFaults: {
      std::vector<faults::Fault>& list = case_.faults.faults;
      drop(list, chunk(list.size(), edit_.a, edit_.b));
      return true;
    }
    case Move::kDropParameters:
      drop_parameters(program_, chunk(program_.parameters.size(), edit_.a, edit_.b));
      return true;
    case Move::kDropInputs:
      program_.steps_per_rank.clear();
      return true;
    case Move::kDropBuffer: {
      std::vector<reference::Buffer>& list = program_.buffers;
      if (edit_.a < list.size()) drop_buffer(list, list.size() - 1 - edit_.a);
      return true;
    }
    case Move::kMergeParameter: {
      const auto count = static_cast<std::uint32_t>(program_.parameters.size());
      merge_parameter(program_, count - 1 - std::min(edit_.a, count - 1));
      return true;
    }
    case Move::kUnshare:
      unshare(program_, edit_.a);
      return true;
    case Move::kDropDeviations: {
      std::vector<Schedule::Deviation>& list = case_.schedule.deviations;
      drop(list, chunk(list.size(), edit_.a, edit_.b));
      return true;
    }
    case Move::kSeed:
      case_.schedule.seed = edit_.a;
      return true;
    default:
      return false;
  }
}

bool Applier::apply_to_steps() {
  if (edit_.move == Move::kPlainProgram || edit_.move == Move::kUnifyProgram) {
    for (Step& each : program_.steps) {
      if (edit_.move == Move::kPlainProgram) each.variants = {plain_pass(program_)};
      each.variants.resize(1);
    }
    return true;
  }
  if (edit_.move < Move::kPlainStep || edit_.move > Move::kDropBackwards) return false;
  Step* const step = this->step();
  if (step == nullptr) return true;
  if (edit_.move == Move::kPlainStep) {
    step->variants = {plain_pass(program_)};
    return true;
  }
  if (edit_.b >= step->variants.size()) return true;
  RankPass& pass = step->variants[edit_.b];
  if (edit_.move == Move::kUnifyStep) step->variants = {RankPass(pass)};
  if (edit_.move == Move::kPlainPass) pass = plain_pass(program_);
  if (edit_.move == Move::kDropForward && edit_.c < pass.forwards.size())
    drop(pass.forwards, {edit_.c, edit_.c + 1});
  if (edit_.move == Move::kMergeForward) merge_forward(pass, edit_.c);
  if (edit_.move == Move::kDropBackwards && edit_.c < pass.backwards.size())
    pass.backwards.resize(edit_.c);
  return true;
}

bool Applier::apply_to_nodes() {
  if (edit_.move == Move::kDropRoot) {
    std::uint32_t index = 0;
    for (Step& step : program_.steps)
      for (RankPass& pass : step.variants)
        for (reference::Backward& call : pass.backwards)
          if (index++ == edit_.a && edit_.b < call.roots.size())
            drop(call.roots, {edit_.b, edit_.b + 1});
    return true;
  }
  if (edit_.move < Move::kDropNodes || edit_.move > Move::kDropOutput) return false;
  std::vector<NodeList> lists = node_lists(program_);
  if (edit_.move == Move::kDropOutput)
    std::erase_if(lists, [](const NodeList& list) { return list.outputs == nullptr; });
  if (edit_.a >= lists.size()) return true;
  const NodeList& list = lists[edit_.a];
  if (edit_.move == Move::kDropOutput) {
    if (edit_.b < list.outputs->size()) drop(*list.outputs, {edit_.b, edit_.b + 1});
    return true;
  }
  if (edit_.move == Move::kDropNodes) {
    drop_nodes(list, chunk(list.nodes->size(), edit_.b, edit_.c));
    return true;
  }
  if (edit_.b >= list.nodes->size()) return true;
  Node& node = (*list.nodes)[edit_.b];
  if (edit_.move == Move::kInlineBody) inline_body(list, edit_.b);
  if (edit_.move == Move::kDropBody) {
    node.kind = Node::Kind::kSum;
    node.body.clear();
  }
  if (edit_.move == Move::kDropInput && edit_.c < node.inputs.size())
    drop(node.inputs, {edit_.c, edit_.c + 1});
  return true;
}

void Applier::set_everywhere() {
  walk_fields(case_, [&](std::uint32_t number, auto& field, const auto& simplest) {
    if (number == edit_.a) field = simplest;
  });
}

void Applier::simplify() {
  std::uint32_t place = 0;
  walk_fields(case_, [&](std::uint32_t, auto& field, const auto& simplest) {
    if (++place == edit_.a) field = choice_of(field, simplest, edit_.b);
  });
}

void Applier::small_keys() {
  std::uint32_t next = 0;
  const auto take = [&] { return edit_.a == 0 ? 0 : next++; };
  program_.key = 0;
  for (Parameter& parameter : program_.parameters) parameter.key = take();
  next = 0;
  for (reference::Buffer& buffer : program_.buffers) buffer.key = take();
  next = 0;
  for (Step& step : program_.steps) step.key = take();
  for (const NodeList& list : node_lists(program_)) {
    if (list.outputs != nullptr) next = 0;
    for (Node& node : *list.nodes) node.key = take();
  }
}

void Applier::apply_to_details() {
  if (edit_.move == Move::kDefaultEverywhere) set_everywhere();
  if (edit_.move == Move::kSimplify) simplify();
  if (edit_.move == Move::kSmallKeys) small_keys();
  const auto reshape = [this](Move move, auto& tensors) {
    if (edit_.move != move || edit_.a >= tensors.size()) return;
    tensors[edit_.a].sizes = reshaped(tensors[edit_.a].sizes, edit_.b);
  };
  reshape(Move::kReshape, program_.parameters);
  reshape(Move::kReshapeBuffer, program_.buffers);
}

void Applier::apply() {
  if (!apply_to_whole() && !apply_to_steps() && !apply_to_nodes()) apply_to_details();
}

}  // namespace

std::vector<Edit> edits_of(const Case& value) { return Lister(value).list(); }

void apply(const Edit& edit, Case& value) {
  Applier(edit, value).apply();
  normalize(value);
}

}  // namespace lockstep::properties
