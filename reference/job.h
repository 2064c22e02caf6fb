// Job: what people do: their ranks, parameters, graphs and calls, as plain data. How gradients are
// reduced is said beside it (replicated.h), and a Program is both (program.h). No function here
// fails, and none keeps state: any thread may call them.
//
// Buffers and values are set before the reducer is made, and again before each reset, to what
// start_of_state() says (state.h). Each record carries a `key`, drawn at random, from which its
// values are hashed: deleting one record does not change the values of the others.
//
// How a job is run (the model follows this text, and so does the harness that drives a reducer):
//
// For each step, every rank r takes `variants[r % variants.size()]`, its RankPass, and
//   1. zeroes gradients as `zero_grad` says: before the step's first forward, or, if some of the
//      pass's calls have `zeroes`, just before each of these and not before the forward;
//   2. runs the forwards in order: under no_sync when kind is kNoSync or the forward is local,
//      without gradients when kind is kNoGrad. With Replicated::manual_sync it never uses no_sync;
//      after the last forward of a kSynced step, and only then, it calls sync_gradients with all
//      outputs that are kept (P13). A forward's graph is built from its nodes; a forward with
//      `discard` drops its outputs and graph at once;
//   3. (kSynced and kNoSync) calls backward for each element of `backwards` (an empty list means
//      one call with every output), as soon as Backward::forwards of the forwards have run; the
//      roots are indices, modulo, into the list of outputs of all kept forwards of the step, in
//      order; duplicates count once. Each root starts with the gradient 1. All calls but the last
//      retain the graph. With no output kept, no backward is called at all. Before a call the rank
//      does what the fields of Backward say; before the last call it lets go of every output that
//      is not a root of it, unless keep_outputs is set. A call with `held` starts from outputs of
//      the step before, and is left out if the rank holds none (held_outputs);
//   4. with keep_outputs, or if its last call starts from no output of a synced forward of the
//      step, calls check_complete(), then lets go of everything; with hold_outputs it lets go of
//      the outputs when the next step that it does not skip has ended, whatever comes of either.
//      No call starts from what it holds any more once the ranks have recovered.
// With several reducers (Parameter::reducer) a forward goes through all of them, the first one
// outermost, and every other call goes to each, the first one first; one backward serves all.
// With Replicated::join each rank calls begin_join before its first step, and again after a reset,
// and end_join after the last one that it has inputs for; with rejoin_step both once more from that
// step on. Before the step `recreate_before_step` all ranks let go of their reducers, and make new
// ones of the same parameters on the same groups. After each synced step in which it called
// backward and no call raised, a rank changes its values of parameters (state.h).
//
// The end of a step is nothing that a reducer sees, but for check_complete(). So a pass whose
// forward lies in one iteration of a training loop, and whose backward lies in the next one, is one
// step here, with the optimizer step and the zero_grad of that iteration before the backward.
//
// kNoGrad steps build no graph and call no backward; `skip` leaves the whole step out on that
// rank, its zero_grad included (kNoGrad, or an absent rank). A rank stops a step at its first call
// that raises.
//
// Gradient of a graph. Every edge carries one scalar (a double) or is undefined. A node with
// several consumers, or several uses of one node by a consumer, adds what arrives defined (a
// root's 1 first, the rest in the order of clause E; what arrives alone is the sum, so that -0
// stays -0); if nothing defined arrives, its gradient is undefined.
//   kUse         passes its scalar s to each input, and to its parameter (index modulo) the
//                tensor s*c, where c is hashed element by element from parameter key, rank, step
//                key and node key (values.h): the product is computed in double, then rounded once
//                to the parameter's dtype (to nearest, ties to even). An undefined s gives an
//                undefined tensor. As an output with no other consumer it still is a node.
//                To a sparse parameter (S1) it passes entries instead: sparse.h says which.
//   kSum         passes s to each input.
//   kScale       passes s * factor to each input. factor is an integer in [-2, 2]; 0 gives a
//                defined zero.
//   kStop        passes undefined to each input.
//   kDetach      has no inputs as far as gradients go: what lies behind is not reachable through
//                it.
//   kSplit       has two outputs, slots 0 and 1; passes s0 + 2*s1, an undefined part left out,
//                undefined if both are. All other kinds have one output; a slot is taken modulo
//                the node's number of outputs.
//   kCheckpoint  passes s to each input; besides, unless s is undefined, it runs a nested
//                backward over the graph `body`, built afresh at that moment, from slot 0 of the
//                body's last node, with gradient s. The forward's graph does not show the body.
// Scalars are sums and products of small integers: exact in double in every order, unless a graph
// makes them grow beyond 2^53; then the order above decides.
//
// A parameter that gets several tensors in one backward call adds them in its own dtype, folded
// from the left, in descending creation order of the nodes that sent them (the last created node
// first). Nodes are created in the order of the forwards' nodes. A nested backward is a backward
// call of its own for this purpose: its sum goes into the gradient when the nested call runs its
// accumulators. Nodes are visited in descending creation order, nested calls one after the other;
// but the outer call's accumulators run beside them. Synced programs in which one parameter is
// reached both inside and outside a checkpoint, or in two, end in an error (P6) in every mode but
// static; under no_sync they are legal, and of their bits nothing is expected where the order
// shows (ExpectedGradient::known).
// The gradient of the parameter then becomes: the sum, if it was undefined; otherwise old + sum,
// rounded to its dtype. Entries of a sparse parameter are put one after the other instead, in the
// same order; what is compared of such a gradient are its rows (ExpectedGradient::offset).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::reference {

// kComplex64: pairs of float32, the real part first, each part an element of its own wherever
// values are made, added, scaled and compared.
enum class DType : std::uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kComplex64 };
enum class PassKind : std::uint8_t { kSynced, kNoSync, kNoGrad };
// What a user does to the gradients before the step's first forward:
//   kUndefine  undefines them
//   kFill      fills them with zeros; an undefined gradient stays undefined
//   kKeep      leaves them as they are
//   kReplace   sets a new tensor with the same elements in other strides; this is no use (P10)
//   kSwap      swaps the gradients of two parameters that are alike (swapped_gradients); no use
// kReplace and kSwap leave sparse gradients as they are.
enum class ZeroGrad : std::uint8_t { kUndefine, kFill, kKeep, kReplace, kSwap };
// Which values the constants of uses have (values.h). Up to 8 ranks get different ones, except for
// kSpecial, where two ranks may get the same special value; with more ranks two of them may get the
// same value by chance.
//   kExact    integers of magnitude 1..8, times the world size: scaled by that world and summed
//             without rounding (but for fp32 and 7 ranks, where 1/7 as a float is too far off)
//   kGeneral  full mantissas, magnitudes from 2^-4 to 2^4
//   kSpecial  a mixture of kGeneral with NaN, infinities, subnormals, -0, +0, values near the
//             dtype's largest and smallest
//   kLargest  full mantissas, magnitudes from a quarter of the dtype's largest finite value up to
//             that value, all divided by 2^headroom. If each rank adds only a few of them, the mean
//             is finite, because contributions are scaled before they are added over ranks (G2).
enum class Values : std::uint8_t { kExact, kGeneral, kSpecial, kLargest };

// One bad number among all values: what a rank's uses of a parameter send in one step has it at one
// element, or as a factor of all elements (values.h). Unlike kSpecial it is alone.
struct BadNumber {
  enum class Kind : std::uint8_t { kNone, kInfinity, kMinusInfinity, kNaN };
  Kind kind = Kind::kNone;      // with kNone the rest is 0 after normalize()
  std::uint32_t rank = 0;       // modulo the ranks
  std::uint32_t step = 0;       // modulo the steps; steps of the same key have it, too
  std::uint32_t parameter = 0;  // modulo the parameters; the first owner of a shared tensor
  std::uint32_t element = 0;    // 0: the factor; k: the value with row-major index k - 1, if any
};

struct Parameter {
  std::uint32_t key = 0;
  DType dtype = DType::kFloat32;
  // At most kMaxDims sizes, each from 0 to kMaxSize. Without a size the parameter has one element.
  std::vector<std::uint32_t> sizes;
  bool column_major = false;  // dense strides in the reversed order of dimensions
  // If not 0, the parameter has dense strides in the order of dimensions that
  // dimensions_in_memory() gives for this number. After normalize() the number is below the number
  // of orders, and it is 0 if column_major or sparse is set.
  std::uint32_t permuted = 0;
  bool frozen = false;   // requires no gradient: it is not reduced, and uses pass nothing to it
  bool ignored = false;  // the reducer ignores it (S3): its gradient stays local
  bool sparse = false;   // has sparse gradients (S1); never without a dimension
  // 0: a parameter of its own. k: the same tensor as the parameter k places before. After
  // normalize() that parameter exists, and this one has the same fields, with copy_of = 0.
  std::uint32_t shared_with = 0;
  // Replicas (P15). k: this is the copy, in a further replica of the model in the same process, of
  // the parameter k places before. The first copy of a parameter belongs to replica 1, the next one
  // to replica 2. A copy has a gradient of its own. After normalize() what it copies is no copy
  // itself, is not shared with an earlier parameter, and has at most kMaxReplicas - 1 copies; and
  // all fields but key and device are those of what it copies.
  std::uint32_t copy_of = 0;
  std::uint32_t device = 0;   // one of the kMaxDevices host devices of every rank
  std::uint32_t reducer = 0;  // which reducer it is given to (F7), below kMaxReducers; 0 in a join
};

// A buffer (S3). Its elements are bits without a meaning (state.h), and each forward with gradients
// changes them in another way on each rank.
struct Buffer {
  std::uint32_t key = 0;
  DType dtype = DType::kFloat32;
  std::vector<std::uint32_t> sizes;  // as Parameter::sizes
  bool column_major = false;
  std::uint32_t device = 0;
  bool ignored = false;       // the reducer ignores it: each rank keeps its own
  bool replaced = false;      // every forward replaces its tensor by a new one
  std::uint32_t copy_of = 0;  // as Parameter::copy_of; dtype, sizes and ignored are the original's
};

struct Input {
  std::uint32_t back = 0;  // node i's input is node i - 1 - back % i; node 0 has no inputs
  std::uint32_t slot = 0;
};

struct Node {
  enum class Kind : std::uint8_t { kUse, kSum, kScale, kStop, kDetach, kSplit, kCheckpoint };
  std::uint32_t key = 0;
  Kind kind = Kind::kUse;
  std::uint32_t parameter = 0;
  std::int32_t factor = 0;
  // kUse: the gradient tensor comes in row-major strides whatever the parameter's are.
  bool row_major = false;
  // kUse: the memory of the gradient tensor has gaps, like that of a slice of a larger tensor.
  // There is a gap behind each run of the innermost dimension; with one dimension, behind each
  // element.
  bool gaps = false;
  bool requires_grad = false;  // kUse: the gradient tensor could be differentiated again (P16)
  // kUse of a sparse parameter: the most entries of the gradient; each rank has its own.
  std::uint32_t entries = 0;
  std::vector<Input> inputs;
  std::vector<Node> body;  // kCheckpoint only, and never empty there
};

struct Forward {
  bool discard = false;
  // In a synced step: the forward runs under no_sync, so that its outputs are not those of the
  // pass (P1, P9). Not with manual sync.
  bool local = false;
  std::vector<Node> nodes;
  // Here `back` counts from the end: node count - 1 - back % count. No two are the same slot of
  // the same node after normalize().
  std::vector<Input> outputs;
  // The number of outputs without a graph (constants, metrics) that follow these. Roots do not
  // count them; in all else they are outputs.
  std::uint32_t constants = 0;
};

struct Backward {
  std::vector<std::uint32_t> roots;  // empty: every output
  // How many forwards of the step have run when it is called; 0: all of them. After normalize() it
  // is 0 or less than their number, no less than that of the call before, and 0 in the last call;
  // where it is not 0, the roots are listed, and none is an output of a later forward.
  std::uint32_t forwards = 0;
  // The next four say what the rank does just before the call, in this order. After normalize()
  // they are false in calls that are not made. `zeroes` is true only in steps that undefine
  // gradients or fill them with zeros, and not after the first call of a pass. With replicas,
  // `evaluates` is not true after that call either.
  bool evaluates = false;  // it runs the step's first forward without gradients
  bool zeroes = false;     // it zeroes gradients as Step::zero_grad says
  bool updates = false;    // it takes an optimizer step: its values of parameters change (state.h)
  // It lets go of the outputs of each forward that has run and from which neither this call nor a
  // later one starts.
  bool drops = false;
  // The call starts from outputs that the rank holds from the step before (hold_outputs): `roots`
  // are indices, modulo, into the list that held_outputs() gives (model/engine.h). Without
  // `held_synced` the call is local.
  bool held = false;
  // With `held`, in synced steps alone, and not with early termination: the call starts from held
  // outputs of synced forwards. Their pass is complete, so the call is refused (P7).
  bool held_synced = false;
  // The outputs without a graph of the forwards that have run come before the roots. They change
  // nothing. After normalize() it is true only where the pass keeps one forward, which has such
  // outputs, and in calls of the pass, or of a step that is local as a whole: a constant of another
  // forward would bring that one into the backward.
  bool with_constants = false;
};

// Whether the rank runs its forward in a checkpoint around the whole model.
//   kNone        it does not
//   kOnce        it runs the forward without gradients, and then a backward of one node. That node
//                runs the forward again, as a synced one, and a nested backward from its outputs
//   kTwice       the backward has two such nodes, one after the other. The reducer refuses the
//                forward of the second node (P1), and the node ignores that
//   kTwiceFails  the same, but the second node returns the refusal, and the backward fails (P12)
// normalize() allows this only in passes with one forward, which is kept, and with one call of
// backward, which let go of their outputs; not with manual sync or early termination.
enum class Recompute : std::uint8_t { kNone, kOnce, kTwice, kTwiceFails };

struct RankPass {
  bool skip = false;
  // In a synced step: the rank takes no part in the pass, which the other ranks cannot know (P8).
  // It leaves the step out (`skip`), drops the outputs of all forwards (discard), or else runs the
  // step under no_sync. It starts nothing more until the other ranks have failed, and all recover.
  // normalize() allows it to one rank of a step, which is not alone in its group.
  bool absent = false;
  Recompute recompute = Recompute::kNone;
  bool keep_outputs = false;
  bool hold_outputs = false;  // not without keep_outputs
  std::vector<Forward> forwards;
  std::vector<Backward> backwards;
};

struct Step {
  std::uint32_t key = 0;
  PassKind kind = PassKind::kSynced;
  ZeroGrad zero_grad = ZeroGrad::kUndefine;
  std::vector<RankPass> variants;  // never empty after normalize()
};

struct Job {
  std::uint32_t world = 2;  // the number of ranks
  std::uint32_t key = 0;    // from which all values are hashed
  Values values = Values::kExact;
  // Values::kLargest: the values are divided by 2^headroom. At most kMaxHeadroom; 0 otherwise.
  std::uint32_t headroom = 0;
  BadNumber bad_number;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  // With a join (S2): for how many steps each rank has inputs, counted from the beginning of each
  // join. A rank that is not listed has inputs for all steps.
  std::vector<std::uint32_t> steps_per_rank;
  std::uint32_t rejoin_step = 0;  // if not 0, the step that a second join begins with
  // If not 0, all ranks make new reducers before this step; not with a join.
  std::uint32_t recreate_before_step = 0;
  std::vector<Step> steps;
};

// Whether an output of a forward of the pass is not dropped at once.
bool keeps_a_forward(const RankPass& pass);

// What kind of step this is for a rank with this pass: an absent rank runs it without gradients if
// it skips it, and else under no_sync, unless it drops all outputs.
PassKind kind_of(const Step& step, const RankPass& pass);

constexpr std::uint32_t kMaxWorld = 64;
constexpr std::uint32_t kMaxParameters = 384;
constexpr std::uint32_t kMaxBuffers = 16;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint32_t kMaxSize = 4096;       // of one dimension
constexpr std::uint32_t kMaxElements = 65536;  // of one parameter
constexpr std::uint32_t kMaxSteps = 64;
constexpr std::uint32_t kMaxNodes = 640;  // of one forward, bodies included
constexpr std::uint32_t kMaxDepth = 3;    // of checkpoints
constexpr std::uint32_t kMaxInputs = 8;   // of one node
constexpr std::uint32_t kMaxForwards = 4;
constexpr std::uint32_t kMaxOutputs = 8;  // of one forward
constexpr std::uint32_t kMaxConstants = 4;
constexpr std::uint32_t kMaxBackwards = 4;
constexpr std::uint32_t kMaxRoots = kMaxForwards * kMaxOutputs;
constexpr std::uint32_t kMaxDevices = 2;
constexpr std::uint32_t kMaxReplicas = 3;
constexpr std::uint32_t kMaxReducers = 2;
constexpr std::uint32_t kMaxEntries = 64;
constexpr std::uint32_t kMaxHeadroom = 6;

// Drops the steps from `count` on. The steps that stay do the same as before: a second join, new
// reducers, or a bad number, at a step that is dropped go, too.
void keep_first_steps(Job& job, std::uint32_t count);

// By output that the first `forwards` forwards of the pass keep: whether its forward is synced, and
// not a local one.
std::vector<bool> synced_outputs(const RankPass& pass, std::size_t forwards);

// Whether a backward call that comes after so many forwards starts at a synced output of the pass.
bool starts_synced(const RankPass& pass, const Backward& backward, std::size_t forwards);

// The number of parts of one element: 2 for a complex number.
constexpr std::uint32_t parts_of(DType dtype) { return dtype == DType::kComplex64 ? 2 : 1; }

std::uint64_t element_count(const std::vector<std::uint32_t>& sizes);
std::uint64_t element_count(const Parameter& parameter);

// The number of values of the parameter: its elements, or the parts of these if they are complex.
std::uint64_t value_count(const Parameter& parameter);

// How many numbers describe a gradient of the parameter: its values, and, if it is sparse, one
// number for each row, which is 1 if the gradient has that row and 0 if not. Elements of rows that
// the gradient does not have are 0.
std::uint64_t gradient_words(const Parameter& parameter);

// The number of reducers (F7), each of which has parameters. The buffers belong to the first one.
std::uint32_t reducer_count(const Job& job);

// Whether a reducer reduces the parameter's gradient.
inline bool is_reduced(const Parameter& parameter) {
  return !parameter.frozen && !parameter.ignored;
}

// The pairs of parameters whose gradients ZeroGrad::kSwap swaps: both are reduced by one reducer,
// are on one device, and have the same sizes, strides and dtype.
std::vector<std::pair<std::uint32_t, std::uint32_t>> swapped_gradients(const Job& job);

// The first owner of the tensor of parameter `index`, through chains of shared_with.
std::uint32_t owner_of(const Job& job, std::uint32_t index);

// The parameter of the first replica that owner_of(index) is, or is a copy of.
std::uint32_t original_of(const Job& job, std::uint32_t index);

// Whether the parameter is no copy, and not the same tensor as an earlier one.
inline bool is_original(const Parameter& parameter) {
  return parameter.shared_with == 0 && parameter.copy_of == 0;
}

// The dimensions in the order in which they lie in memory, the outermost one first: 0, 1, 2, ... by
// default; reversed if column_major is set; otherwise the permutation with the number `permuted`,
// where permutations are counted in lexicographic order from 0, modulo their number.
std::vector<std::uint32_t> dimensions_in_memory(const Parameter& parameter);

// In how many orders so many dimensions can lie in memory.
std::uint32_t memory_orders(std::size_t dims);

// Whether that order is 0, 1, 2, ...; for a normalized parameter.
inline bool is_row_major(const Parameter& parameter) {
  return !parameter.column_major && parameter.permuted == 0;
}

// Where the value with row-major index `element` lies in the parameter's own memory, in values.
std::uint64_t row_major_to_memory(const Parameter& parameter, std::uint64_t element);

}  // namespace lockstep::reference
