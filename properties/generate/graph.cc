#include "properties/generate/graph.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

using reference::Forward;
using reference::Input;
using reference::Node;
using reference::PassKind;
using reference::Program;
using reference::RankPass;
using reference::Step;

constexpr std::uint32_t kMaxSegments = 3;
constexpr std::uint32_t kMaxTokens =
    200;  // of one forward: below kMaxDrawnNodes with joins and bodies
constexpr std::uint32_t kMaxDrawnNodes = 256;
// With this many parameters or more, no parameter is used twice in a graph.
constexpr std::uint32_t kManyParameters = 16;
constexpr std::uint32_t kMaxBodyDepth = 2;
constexpr std::uint32_t kMaxLoose = 3;  // outputs of one segment
static_assert(kMaxSegments * 2 <= reference::kMaxOutputs);

// A future node that has no position in the graph yet. Tokens are shuffled, then become nodes. The
// members have no initial values, because every pass creates an array of tokens.
struct Token {
  Node::Kind kind;
  std::uint8_t tensor;  // kUse
  ParameterSet body;    // kCheckpoint: the tensors that its body uses
  bool frozen_body;     // no tensor of the body trains
};

// A part of a forward's graph that is not connected to its other parts. One backward call reaches
// it.
struct Segment {
  std::uint32_t forward = 0;
  std::uint32_t call = 0;
  std::uint32_t tokens = 0;
};

std::uint8_t take_bit(ParameterSet& set) {
  const auto index = static_cast<std::uint8_t>(std::countr_zero(set));
  set &= set - 1;
  return index;
}

ParameterSet subset(Random& random, ParameterSet set, std::uint32_t percent) {
  ParameterSet out = 0;
  while (set != 0) {
    const std::uint8_t index = take_bit(set);
    if (random.percent(percent)) out |= ParameterSet{1} << index;
  }
  return out;
}

std::int32_t draw_factor(Random& random, bool zero) {
  if (zero && random.percent(30)) return 0;
  constexpr std::int32_t kFactors[] = {2, -1, 1, -2};
  return kFactors[random.below(4)];
}

// The nodes of one forward or of one body while they are drawn.
class GraphDrawer {
 public:
  GraphDrawer(Random& random, const GraphFeatures& features, const Names& names, bool strict,
              std::uint32_t room)
      : random_(random), features_(features), names_(names), strict_(strict) {
    nodes_.reserve(room);
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }

  void emit(const Token& token, std::uint32_t segment, std::uint32_t depth = 0);

  // Joins all nodes without a consumer into one node, or several nodes if they exceed a node's
  // inputs.
  void join(std::uint32_t segment) {
    while (parts_[segment].dangling_count > 1) join_once(parts_[segment]);
  }

  std::uint32_t dangling_count(std::uint32_t segment) const {
    return parts_[segment].dangling_count;
  }
  // Adds the nodes without a consumer as outputs.
  void add_outputs(std::uint32_t segment, std::vector<Input>& outputs) {
    const Part& part = parts_[segment];
    for (std::uint32_t i = 0; i < part.dangling_count; ++i)
      outputs.push_back(output_of(part.dangling[i]));
  }
  // Adds any node of the segment as a further output, unless it is an output already.
  bool add_spare_output(std::uint32_t segment, std::vector<Input>& outputs) {
    const Part& part = parts_[segment];
    const Input drawn = output_of(part.members[random_.below(part.member_count)]);
    for (const Input& known : outputs)
      if (known.back == drawn.back && known.slot == drawn.slot) return false;
    outputs.push_back(drawn);
    return true;
  }

  std::vector<Node> take() { return std::move(nodes_); }

 private:
  struct Part {
    std::uint32_t dangling_count = 0;
    std::uint32_t member_count = 0;
    std::uint8_t dangling[kMaxDrawnNodes];
    std::uint8_t members[kMaxDrawnNodes];
  };

  Node& append(Node::Kind kind) {
    Node& node = nodes_.emplace_back();
    node.kind = kind;
    node.key = random_.word();
    return node;
  }
  void add_member(Part& part, std::uint32_t index) {
    part.members[part.member_count++] = static_cast<std::uint8_t>(index);
    part.dangling[part.dangling_count++] = static_cast<std::uint8_t>(index);
  }
  void add_input(std::uint32_t index, std::uint32_t target) {
    const std::uint32_t slot = nodes_[target].kind == Node::Kind::kSplit ? random_.below(2) : 0;
    nodes_[index].inputs.push_back({index - 1 - target, slot});
  }
  Input output_of(std::uint32_t target) {
    const std::uint32_t slot = nodes_[target].kind == Node::Kind::kSplit ? random_.below(2) : 0;
    return {size() - 1 - target, slot};
  }
  void join_once(Part& part);
  void draw_inputs(Part& part, std::uint32_t index, Node::Kind kind);
  void draw_body(const Token& token, std::uint32_t depth);

  Random& random_;
  const GraphFeatures& features_;
  const Names& names_;
  bool strict_;
  std::vector<Node> nodes_;
  // Nodes that must get a defined gradient, because a checkpoint behind them trains.
  bool solid_[kMaxDrawnNodes] = {};
  Part parts_[kMaxSegments];
};

void GraphDrawer::join_once(Part& part) {
  append(Node::Kind::kSum);
  const std::uint32_t index = size() - 1;
  const std::uint32_t taken = std::min(part.dangling_count, reference::kMaxInputs);
  nodes_.back().inputs.reserve(taken);
  for (std::uint32_t i = 0; i < taken; ++i) {
    const std::uint8_t target = part.dangling[--part.dangling_count];
    add_input(index, target);
    solid_[index] = solid_[index] || solid_[target];
  }
  add_member(part, index);
}

void GraphDrawer::draw_inputs(Part& part, std::uint32_t index, Node::Kind kind) {
  if (part.member_count == 0) return;
  const std::uint32_t drawn = random_.below(100);
  std::uint32_t wanted = drawn < 80 ? 1 : 2;
  if (kind == Node::Kind::kUse && drawn < 25) wanted = 0;
  if (kind == Node::Kind::kCheckpoint && drawn < 15) wanted = 0;
  const bool extra = features_.fan_out && random_.percent(30);
  nodes_[index].inputs.reserve(wanted + (extra ? 1 : 0));
  for (; wanted > 0 && part.dangling_count > 0; --wanted) {
    const std::uint32_t place = random_.below(part.dangling_count);
    const std::uint8_t target = part.dangling[place];
    add_input(index, target);
    if (strict_ && kind == Node::Kind::kDetach) continue;  // another path must reach it
    if (strict_ && kind == Node::Kind::kStop && solid_[target]) continue;
    if (solid_[target]) solid_[index] = true;
    part.dangling[place] = part.dangling[--part.dangling_count];
  }
  if (extra) add_input(index, part.members[random_.below(part.member_count)]);
}

void GraphDrawer::draw_body(const Token& token, std::uint32_t depth) {
  const auto uses = static_cast<std::uint32_t>(std::popcount(token.body));
  GraphDrawer inner(random_, features_, names_, strict_, uses + 3);
  ParameterSet nested = 0;
  if (depth + 1 < kMaxBodyDepth && random_.percent(15)) nested = subset(random_, token.body, 50);
  ParameterSet rest = token.body & ~nested;
  while (rest != 0) inner.emit({Node::Kind::kUse, take_bit(rest), 0, false}, 0, depth + 1);
  if (nested != 0)
    inner.emit({Node::Kind::kCheckpoint, 0, nested, token.frozen_body}, 0, depth + 1);
  if (inner.size() == 0 || (features_.scale && random_.percent(20)))
    inner.emit({features_.scale ? Node::Kind::kScale : Node::Kind::kSum, 0, 0, false}, 0);
  inner.join(0);
  nodes_.back().body = inner.take();
}

void GraphDrawer::emit(const Token& token, std::uint32_t segment, std::uint32_t depth) {
  Node& node = append(token.kind);
  const std::uint32_t index = size() - 1;
  if (token.kind == Node::Kind::kUse) {
    const std::uint8_t count = names_.count[token.tensor];
    node.parameter = names_.of[token.tensor][count > 1 ? random_.below(count) : 0];
    node.row_major = features_.row_major && random_.percent(50);
  }
  if (token.kind == Node::Kind::kScale) node.factor = draw_factor(random_, features_.zero_scale);
  if (token.kind == Node::Kind::kCheckpoint) {
    draw_body(token, depth);
    solid_[index] = token.body != 0 && !token.frozen_body;
  }
  draw_inputs(parts_[segment], index, token.kind);
  add_member(parts_[segment], index);
}

// Draws one pass of one rank, from the plan of its segments to nodes, outputs and calls.
class PassDrawer {
 public:
  PassDrawer(Random& random, const GraphFeatures& features, const Names& names,
             const PassConstraints& constraints)
      : random_(random), features_(features), names_(names), constraints_(constraints) {}

  RankPass draw();

 private:
  void plan_segments();
  void place_tensors();
  void fill_segments();
  void place_checkpoints();
  void place_others();
  void add(std::uint32_t segment, const Token& token) {
    if (token_count_ == kMaxTokens) return;
    tokens_[token_count_] = token;
    segment_of_[token_count_++] = static_cast<std::uint8_t>(segment);
    ++segments_[segment].tokens;
  }
  void shuffle();
  std::uint32_t segment_of_call(std::uint32_t call) {
    // Segment s belongs to call s % calls_.
    const std::uint32_t count = (segment_count_ - call + calls_ - 1) / calls_;
    return call + calls_ * (count > 1 ? random_.below(count) : 0);
  }
  std::uint32_t any_segment() { return segment_count_ > 1 ? random_.below(segment_count_) : 0; }
  void draw_forward(std::uint32_t forward);
  Forward draw_discarded();
  void draw_calls();

  Random& random_;
  const GraphFeatures& features_;
  const Names& names_;
  const PassConstraints& constraints_;
  RankPass pass_;
  std::uint32_t forwards_ = 1;
  std::uint32_t calls_ = 1;
  std::uint32_t segment_count_ = 1;
  Segment segments_[kMaxSegments];
  std::uint32_t token_count_ = 0;
  Token tokens_[kMaxTokens];
  std::uint8_t segment_of_[kMaxTokens];
  // Which call starts from each output of the forwards that are not dropped, in order; kMaxSegments
  // for none.
  std::uint32_t output_count_ = 0;
  std::uint8_t call_of_output_[kMaxDrawnNodes * kMaxSegments];
  bool explicit_roots_ = false;
};

void PassDrawer::plan_segments() {
  if (features_.several_forwards && random_.percent(40)) forwards_ = random_.percent(85) ? 2 : 3;
  if (features_.several_backwards && !constraints_.single_backward && random_.percent(50))
    calls_ = random_.percent(85) ? 2 : 3;
  const auto tensors = static_cast<std::uint32_t>(std::popcount(constraints_.reach));
  if (constraints_.strict) calls_ = std::max(1u, std::min(calls_, tensors));
  segment_count_ = std::max(forwards_, calls_);
  for (std::uint32_t s = 0; s < segment_count_; ++s) segments_[s] = {s % forwards_, s % calls_, 0};
}

// Assigns every tensor that the pass must reach to one call (strict) or to any. The last call
// always has a tensor, because without one it would be a second backward of a complete pass. Where
// hooks may run again, further uses may belong to later calls.
void PassDrawer::place_tensors() {
  const bool many = std::popcount(constraints_.reach) > static_cast<int>(kManyParameters);
  ParameterSet rest = constraints_.reach;
  std::uint32_t placed = 0;
  const std::uint32_t shift = calls_ > 1 ? random_.below(calls_) : 0;
  while (rest != 0) {
    const std::uint8_t tensor = take_bit(rest);
    std::uint32_t call = 0;
    if (calls_ > 1) call = placed < calls_ ? (placed + shift) % calls_ : random_.below(calls_);
    ++placed;
    std::uint32_t uses = 1;
    if (features_.repeat && !many && random_.percent(30)) uses += random_.between(1, 2);
    for (; uses > 0; --uses) {
      add(constraints_.strict ? segment_of_call(call) : any_segment(),
          {Node::Kind::kUse, tensor, 0, false});
      if (constraints_.in_several_calls && call + 1 < calls_)
        call = call + random_.below(calls_ - call);
    }
  }
}

// A forward that uses nothing tests little, so mostly it uses a tensor of its call once more.
void PassDrawer::fill_segments() {
  const std::uint32_t placed = token_count_;
  for (std::uint32_t s = 0; s < segment_count_ && placed > 0; ++s) {
    if (segments_[s].tokens > 0 || random_.percent(20)) continue;
    const std::uint32_t start = random_.below(placed);
    for (std::uint32_t i = 0; i < placed; ++i) {
      const std::uint32_t t = (start + i) % placed;
      if (segments_[segment_of_[t]].call != segments_[s].call) continue;
      add(s, tokens_[t]);
      break;
    }
  }
}

// Moves some tensors into checkpoints. In a strict pass all uses of a tensor move, so that it is
// reached at one position.
void PassDrawer::place_checkpoints() {
  if (!features_.checkpoint || !random_.percent(60)) return;
  const ParameterSet trains =
      constraints_.bodies_train ? subset(random_, constraints_.reach, 40) : 0;
  ParameterSet rest = trains;
  std::uint32_t first = token_count_;
  do {
    Token token{Node::Kind::kCheckpoint, 0, 0, true};
    std::uint32_t segment = any_segment();
    if (rest != 0) {
      const std::uint8_t tensor = take_bit(rest);
      token.body = ParameterSet{1} << tensor;
      token.frozen_body = false;
      for (std::uint32_t i = 0; i < first; ++i)  // the call that the tensor belongs to
        if (tokens_[i].kind == Node::Kind::kUse && tokens_[i].tensor == tensor)
          segment = segment_of_[i];
      while (rest != 0 && segment_count_ == 1 && random_.percent(50))
        token.body |= ParameterSet{1} << take_bit(rest);
    } else if (constraints_.frozen != 0) {
      token.body = subset(random_, constraints_.frozen, 50);
    }
    add(segment, token);
  } while (rest != 0);
  const bool may_stay = !constraints_.strict || constraints_.several_hooks;
  if (trains == 0 || (may_stay && random_.percent(50))) return;
  std::uint32_t kept = 0;  // drops the uses outside
  for (std::uint32_t i = 0; i < token_count_; ++i) {
    const bool inside =
        tokens_[i].kind == Node::Kind::kUse && (trains >> tokens_[i].tensor & 1u) != 0;
    if (inside) {
      --segments_[segment_of_[i]].tokens;
      continue;
    }
    tokens_[kept] = tokens_[i];
    segment_of_[kept++] = segment_of_[i];
  }
  token_count_ = kept;
}

void PassDrawer::place_others() {
  ParameterSet rest = subset(random_, constraints_.frozen, 40);
  while (rest != 0) add(any_segment(), {Node::Kind::kUse, take_bit(rest), 0, false});
  const std::pair<bool, Node::Kind> kinds[] = {{features_.stop, Node::Kind::kStop},
                                               {features_.detach, Node::Kind::kDetach},
                                               {features_.split, Node::Kind::kSplit},
                                               {features_.scale, Node::Kind::kScale}};
  for (const auto& [enabled, kind] : kinds) {
    if (!enabled || !random_.percent(40)) continue;
    const std::uint32_t segment = any_segment();
    if (segments_[segment].tokens > 0) add(segment, {kind, 0, 0, false});
  }
  if (random_.percent(20)) add(any_segment(), {Node::Kind::kSum, 0, 0, false});
  for (std::uint32_t s = 0; s < segment_count_; ++s)
    if (segments_[s].tokens == 0) add(s, {Node::Kind::kSum, 0, 0, false});
}

void PassDrawer::shuffle() {
  for (std::uint32_t i = token_count_; i > 1; --i) {
    const std::uint32_t j = random_.below(i);
    std::swap(tokens_[i - 1], tokens_[j]);
    std::swap(segment_of_[i - 1], segment_of_[j]);
  }
  // The first node of a segment has no inputs, so it is preferably a use: other kinds do little
  // without inputs.
  bool begun[kMaxSegments] = {};
  for (std::uint32_t i = 0; i < token_count_; ++i) {
    const std::uint8_t segment = segment_of_[i];
    if (std::exchange(begun[segment], true) || tokens_[i].kind == Node::Kind::kUse) continue;
    for (std::uint32_t j = i + 1; j < token_count_; ++j) {
      if (segment_of_[j] != segment || tokens_[j].kind != Node::Kind::kUse) continue;
      std::swap(tokens_[i], tokens_[j]);
      break;
    }
  }
}

void PassDrawer::draw_forward(std::uint32_t forward) {
  std::uint32_t room = 2;
  for (std::uint32_t s = 0; s < segment_count_; ++s)
    if (segments_[s].forward == forward) room += segments_[s].tokens;
  GraphDrawer graph(random_, features_, names_, constraints_.strict, room);
  for (std::uint32_t i = 0; i < token_count_; ++i)
    if (segments_[segment_of_[i]].forward == forward) graph.emit(tokens_[i], segment_of_[i]);
  std::uint32_t here = 0;
  for (std::uint32_t s = 0; s < segment_count_; ++s) here += segments_[s].forward == forward;
  const bool tight = here * (kMaxLoose + 1) > reference::kMaxOutputs;
  for (std::uint32_t s = 0; s < segment_count_; ++s)
    if (segments_[s].forward == forward &&
        (tight || graph.dangling_count(s) > kMaxLoose || random_.percent(60)))
      graph.join(s);
  Forward& out = pass_.forwards.emplace_back();
  for (std::uint32_t s = 0; s < segment_count_; ++s) {
    if (segments_[s].forward != forward) continue;
    const std::size_t before = out.outputs.size();
    graph.add_outputs(s, out.outputs);
    for (std::size_t i = before; i < out.outputs.size(); ++i)
      call_of_output_[output_count_++] = static_cast<std::uint8_t>(segments_[s].call);
    if (!features_.unused_outputs || !random_.percent(40)) continue;
    if (!graph.add_spare_output(s, out.outputs)) continue;
    const bool root = random_.percent(30);
    explicit_roots_ = explicit_roots_ || !root;
    call_of_output_[output_count_++] =
        static_cast<std::uint8_t>(root ? segments_[s].call : kMaxSegments);
  }
  out.nodes = graph.take();
}

// Draws a forward whose outputs are dropped at once: a graph of its own, over any parameters.
Forward PassDrawer::draw_discarded() {
  ParameterSet rest = subset(random_, constraints_.reach | constraints_.frozen, 50);
  GraphDrawer graph(random_, features_, names_, false,
                    static_cast<std::uint32_t>(std::popcount(rest)) + 2);
  while (rest != 0) graph.emit({Node::Kind::kUse, take_bit(rest), 0, false}, 0);
  if (graph.size() == 0) graph.emit({Node::Kind::kSum, 0, 0, false}, 0);
  if (graph.dangling_count(0) > kMaxLoose || random_.percent(60)) graph.join(0);
  Forward out;
  out.discard = true;
  graph.add_outputs(0, out.outputs);
  out.nodes = graph.take();
  return out;
}

void PassDrawer::draw_calls() {
  // A pass that one call completes may leave some outputs out of the loss.
  const bool may_drop =
      features_.unused_outputs && constraints_.may_drop && (calls_ == 1 || !constraints_.strict);
  if (may_drop && output_count_ > 1 && random_.percent(50)) {
    explicit_roots_ = true;
    const std::uint32_t stays = random_.below(output_count_);
    for (std::uint32_t i = 0; i < output_count_; ++i)
      if (i != stays && random_.percent(40)) call_of_output_[i] = kMaxSegments;
  }
  if (calls_ == 1 && !explicit_roots_ && random_.percent(90)) return;  // every output
  pass_.backwards.resize(calls_);
  for (std::uint32_t i = 0; i < output_count_; ++i)
    if (call_of_output_[i] < calls_) pass_.backwards[call_of_output_[i]].roots.push_back(i);
  if (calls_ > 1 && !constraints_.strict && random_.percent(50))
    pass_.backwards.back() = pass_.backwards.front();  // through the same graph again
}

RankPass PassDrawer::draw() {
  pass_.keep_outputs = features_.keep_outputs && random_.percent(40);
  if (constraints_.discard_all) {
    pass_.forwards.push_back(draw_discarded());
    return std::move(pass_);
  }
  plan_segments();
  pass_.forwards.reserve(forwards_ + 1);
  place_tensors();
  fill_segments();
  place_checkpoints();
  place_others();
  shuffle();
  const bool discard_first = constraints_.extra_discard && random_.percent(70);
  if (discard_first) pass_.forwards.push_back(draw_discarded());
  for (std::uint32_t forward = 0; forward < forwards_; ++forward) draw_forward(forward);
  if (constraints_.extra_discard && !discard_first) pass_.forwards.push_back(draw_discarded());
  draw_calls();
  return std::move(pass_);
}

}  // namespace

void join_calls(RankPass& pass) {
  if (pass.backwards.size() < 2) return;
  std::vector<std::uint32_t>& roots = pass.backwards[0].roots;
  for (std::size_t call = 1; call < pass.backwards.size(); ++call)
    roots.insert(roots.end(), pass.backwards[call].roots.begin(), pass.backwards[call].roots.end());
  pass.backwards.resize(1);
}

RankPass draw_pass(Random& random, const GraphFeatures& features, const Names& names,
                   const PassConstraints& constraints) {
  return PassDrawer(random, features, names, constraints).draw();
}

// Outputs without a graph, and outputs that outlive the backward and the next step (P5, P11). The
// numbers are of their own, so that other choices stay what they are.
void draw_outputs(Random random, const Capabilities& can, Program& program) {
  const bool has_constants = random.percent(40) && can.has(Capability::kConstants);
  const bool holds = random.percent(40) && can.has(Capability::kHoldOutputs);
  const bool keeps = program.options.mode == reference::Mode::kStatic && random.percent(50) &&
                     can.has(Capability::kKeepOutputs);
  for (Step& step : program.steps) {
    if (step.kind == PassKind::kNoGrad) continue;
    for (RankPass& pass : step.variants) {
      for (reference::Forward& forward : pass.forwards) {
        const std::uint32_t constants = random.percent(60) ? random.between(1, 2) : 0;
        if (has_constants) forward.constants = constants;
      }
      const bool is_held = random.percent(50);
      if (keeps && step.kind == PassKind::kSynced) pass.keep_outputs = true;
      pass.hold_outputs = holds && is_held && pass.keep_outputs;
    }
  }
}

void draw_constant_roots(Random random, Program& program) {
  if (!random.percent(50)) return;
  for (Step& step : program.steps)
    for (RankPass& pass : step.variants) {
      const bool has_constants = std::ranges::any_of(pass.forwards, &reference::Forward::constants);
      if (!has_constants || pass.recompute != reference::Recompute::kNone) continue;
      if (pass.backwards.empty()) pass.backwards.emplace_back();
      for (reference::Backward& call : pass.backwards) call.with_constants = random.percent(50);
    }
  normalize(program);
}

}  // namespace lockstep::properties
