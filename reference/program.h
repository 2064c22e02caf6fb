// Program: what every rank trains, as plain data. It says nothing about schedules or faults (see
// faults/plan.h). No function here fails, and none keeps state: any thread may call them.
//
// Buffers and values are set before the reducer is made, and again before each reset, to what
// start_of_state() says (state.h).
//
// A Program is total: any field values are a valid program. Indices are taken modulo what they
// index, counts are clamped to the limits below by normalize(). Zero is the simplest choice of
// every field, so that shrinking goes to zero. Each record carries a `key`, drawn at random, from
// which its values are hashed: deleting one record does not change the values of the others.
//
// How a Program is run (the model follows this text, and so does the harness that drives a
// reducer):
//
// For each step, every rank r takes `variants[r % variants.size()]`, its RankPass, and
//   1. zeroes gradients as `zero_grad` says (before the step's first forward);
//   2. runs the forwards in order: under no_sync when kind is kNoSync, without gradients when
//      kNoGrad. With Options::manual_sync it never uses no_sync; after the last forward of a
//      kSynced step, and only then, it calls sync_gradients with all outputs that are kept (P13),
//      which must come to the same. A forward's graph is built from its nodes; a forward with
//      `discard` drops its outputs and graph at once;
//   3. (kSynced and kNoSync) calls backward for each element of `backwards` (an empty list means
//      one call with every output); the roots are indices, modulo, into the list of outputs of
//      all kept forwards of the step, in order; duplicates count once. Each root starts with the
//      gradient 1. All calls but the last retain the graph. With no output kept, no backward is
//      called at all. Before the last call the rank lets go of every output that is not a root of
//      it, unless keep_outputs is set.
//   4. with keep_outputs calls check_complete(), then lets go of everything; with hold_outputs it
//      lets go of the outputs when the next step that it does not skip has ended, whatever comes
//      of either.
// With several reducers (Parameter::reducer) a forward goes through all of them, the first one
// outermost, and every other call goes to each, the first one first; one backward serves all.
// With Options::join each rank calls begin_join before its first step, and again after a reset, and
// end_join after the last one that it has inputs for; with second_join both once more from that
// step on. Before the step `renewed` all ranks let go of their reducers, and make new ones of the
// same parameters on the same groups. After each synced step in which it called backward and no
// call raised, a rank changes its values of parameters (state.h).
//
// kNoGrad steps build no graph and call no backward; `skip` leaves the whole step out on that
// rank, its zero_grad included (kNoGrad only). A rank stops a step at its first call that raises.
//
// Gradient of a graph. Every edge carries one scalar (a double) or is undefined. A node with
// several consumers, or several uses of one node by a consumer, adds what arrives defined (a
// root's 1 first, the rest in the order of clause E; what arrives alone is the sum, so that -0
// stays -0); if nothing defined arrives, its gradient is undefined.
//   kUse         passes its scalar s to each input, and to its parameter (index modulo) the
//                tensor s*c, where c is value_of(parameter key, rank, step key, node key) element
//                by element: the product is computed in double, then rounded once to the
//                parameter's dtype (to nearest, ties to even). An undefined s gives an undefined
//                tensor. As an output with no other consumer it still is a node of its own.
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

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::reference {

// kComplex64: pairs of float32, the real part first, each part an element of its own wherever
// values are made, added, scaled and compared.
enum class DType : std::uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kComplex64 };
enum class Mode : std::uint8_t { kPlain, kDynamic, kStatic };  // static: P11
enum class PassKind : std::uint8_t { kSynced, kNoSync, kNoGrad };
// What a user does to the gradients before the step's first forward. Undefine them; fill them with
// zeros (one that is undefined stays so); leave them. Or set others, which counts as no use (P10):
// each a tensor of its own that has the same elements in other strides; or those of two parameters
// that are alike change places (swapped_gradients). Sparse ones are left by these two.
enum class ZeroGrad : std::uint8_t { kUndefine, kFill, kKeep, kReplace, kSwap };
enum class Values : std::uint8_t { kExact, kGeneral, kSpecial, kLargest };
// Contract G3: the ring of what moves the gradients, Gloo's or NCCL's; Gloo's bcube; or the order
// of the ranks.
enum class Order : std::uint8_t { kRing, kBcube, kRankOrder };
// What reduces a bucket (S4): no hook; the built-in ones; a hook of the user's own that does what
// kAllReduce does, but leaves the result in other storage than the bucket's, and fails when it is
// not called as S4 says; PowerSGD, with the rank and the seed of power_sgd.h.
enum class Hook : std::uint8_t { kNone, kAllReduce, kFloat16, kBFloat16, kElsewhere, kPowerSgd };
// Where parameters lie, and what moves their gradients: on the host, over its network; on a GPU,
// over the host's network by way of copies; on a GPU, by NCCL. A GPU is one device: all numbers
// of devices are 0 there, and there is no PowerSGD; NCCL has no bcube.
enum class Transport : std::uint8_t { kHost, kStaged, kNccl };
// When buckets are reduced (P14).
enum class Launch : std::uint8_t { kOverlapped, kAfterBackward };

// S2: all ranks have all inputs; or Program::inputs, with the mean over all, or over those that
// train.
enum class Join : std::uint8_t { kNone, kByAll, kByActive };

struct Parameter {
  std::uint32_t key = 0;
  DType dtype = DType::kFloat32;
  // At most kMaxDims, each at most kMaxSize; empty: one element; 0 allowed.
  std::vector<std::uint32_t> sizes;
  bool column_major = false;  // dense strides in reversed order of dimensions
  // Not 0: dense strides in another order of dimensions, see dimensions_in_memory(). After
  // normalize() it is below the number of orders, and 0 with column_major and with sparse.
  std::uint32_t permuted = 0;
  bool frozen = false;   // requires no gradient: not reduced, uses of it pass nothing to it
  bool ignored = false;  // the reducer leaves it alone (S3): its gradient stays local
  bool sparse = false;   // its gradients are (S1); not without a dimension
  // 0: a parameter of its own; k: the same tensor as the one k places before. After normalize()
  // that one exists, and all other fields but copy_of, which is 0, are equal to its fields.
  std::uint32_t shared_with = 0;
  // P15. k: of a further replica of the model in the same process, whose copy it is of the one k
  // places before; the first copy belongs to replica 1, the next one to replica 2. Its gradient is
  // its own. After normalize() what it copies is no copy and not shared with one before, has at
  // most kMaxReplicas - 1 of them, and all fields but key and device are equal to its fields.
  std::uint32_t copy_of = 0;
  std::uint32_t device = 0;   // of kMaxDevices host devices of every rank
  std::uint32_t reducer = 0;  // F7: of kMaxReducers, which one it is given to. Not with a join
};

// S3. Its elements are bits without a meaning (state.h), and each forward with gradients changes
// them in a way of its rank's own.
struct Buffer {
  std::uint32_t key = 0;
  DType dtype = DType::kFloat32;
  std::vector<std::uint32_t> sizes;  // as of a parameter
  bool column_major = false;
  std::uint32_t device = 0;
  bool ignored = false;       // stays each rank's own
  bool replaced = false;      // every forward makes a new tensor of it
  std::uint32_t copy_of = 0;  // as of a parameter, which it shares with: dtype, sizes, ignored
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
  // kUse: the memory of the gradient tensor has holes, as that of a slice of a larger tensor has:
  // after each run of the innermost dimension, or, of one dimension, after each element.
  bool gaps = false;
  bool requires_grad = false;  // kUse: the gradient tensor could be differentiated again (P16)
  std::uint32_t entries = 0;   // kUse of a sparse parameter: at most so many, each rank its own
  std::vector<Input> inputs;
  std::vector<Node> body;  // kCheckpoint only, and never empty there
};

struct Forward {
  bool discard = false;
  std::vector<Node> nodes;
  // Here `back` counts from the end: node count - 1 - back % count. No two are the same slot of
  // the same node after normalize().
  std::vector<Input> outputs;
  // So many outputs without a graph stand behind these (constants, metrics). No backward call
  // starts from them, and roots do not count them; in all else they are outputs.
  std::uint32_t constants = 0;
};

struct Backward {
  std::vector<std::uint32_t> roots;  // empty: every output
};

struct RankPass {
  bool skip = false;
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

struct Options {
  Mode mode = Mode::kPlain;
  Order order = Order::kRing;
  bool verify = false;   // F3: what travels is checked on arrival. Of the order of ranks alone
  bool rebuild = false;  // buckets follow the ready order of rank 0 from the second pass on (B2)
  bool views = false;    // gradients are views of their buckets once they were reduced (B7)
  Hook hook = Hook::kNone;
  bool manual_sync = false;  // no forward is synced by itself (P13)
  // Not 0: the layout is pinned (B3). It has the order that pinned_order() draws from this number,
  // and the limits below.
  std::uint32_t pinned = 0;
  // After backward: there is no rebuild, and the limit of every bucket is bucket_bytes.
  Launch launch = Launch::kOverlapped;
  bool own_group = false;  // with kAfterBackward: on a second group of the same ranks
  // With several reducers (F7): each has process groups of its own, or else they share theirs.
  bool group_each = false;
  // Ranks of even and of odd numbers train apart, at the same time, in groups of their own.
  bool two_groups = false;
  // S3: parameters have values, which the reducer keeps equal; buffers are not broadcast but at
  // construction and after a recovery; a chunk of a broadcast closes at this many bytes.
  bool with_values = false;
  bool keep_buffers = false;
  std::uint64_t chunk_bytes = 250 * 1024 * 1024;
  Join join = Join::kNone;
  bool early_termination = false;  // with a join: as soon as some ranks have no inputs, all raise
  Transport transport = Transport::kHost;
  std::uint64_t first_bucket_bytes = 1024 * 1024;
  std::uint64_t bucket_bytes = 25 * 1024 * 1024;
  // Not 0: the limit of the third bucket and of those behind it, unless after backward.
  std::uint64_t last_bucket_bytes = 0;
};

// The limits of buckets of one dtype and device, in their order; the last one is that of all
// others.
std::vector<std::uint64_t> bucket_limits(const Options& options);

struct Program {
  std::uint32_t world = 2;
  std::uint32_t key = 0;  // of the values
  Values values = Values::kExact;
  std::uint32_t headroom = 0;  // kLargest: how many doublings below the largest values they are
  Options options;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  // With Options::join: how many of the steps each rank has inputs for, the first ones of each
  // join; a rank that is not listed has all.
  std::vector<std::uint32_t> inputs;
  std::uint32_t second_join = 0;  // not 0: the step that a second join begins with
  std::uint32_t renewed = 0;      // not 0: the step before which reducers are made anew. No join
  std::vector<Step> steps;
};

constexpr std::uint32_t kMaxWorld = 64;
constexpr std::uint32_t kMaxParameters = 64;
constexpr std::uint32_t kMaxBuffers = 16;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint32_t kMaxSize = 4096;       // of one dimension
constexpr std::uint32_t kMaxElements = 65536;  // of one parameter
constexpr std::uint32_t kMaxSteps = 64;
constexpr std::uint32_t kMaxNodes = 256;  // of one forward, bodies included
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

// Brings every field within its limits, and gives an empty list its simplest element where one is
// needed: world 1..64, at least one parameter, one to `world` variants per step, at least one
// forward per pass, one node per forward, one output per forward. A checkpoint with an empty
// body, or one deeper than kMaxDepth, becomes a kSum. Enumerators that do not exist are taken
// modulo their number. A rank that calls no backward in a synced pass would rightly hang the
// others (P8), so: in a synced step either every variant has a kept forward, or none has; where
// some have, the last forward of each variant that has none is kept. What is within limits
// already is left alone.
void normalize(Program& program);

// The first owners of all that is trained, in an order drawn from Options::pinned.
std::vector<std::uint32_t> pinned_order(const Program& program);

// Of one element.
constexpr std::uint32_t parts_of(DType dtype) { return dtype == DType::kComplex64 ? 2 : 1; }

std::uint64_t element_count(const std::vector<std::uint32_t>& sizes);
std::uint64_t element_count(const Parameter& parameter);

// Numbers of which it has one value each: elements, or their parts.
std::uint64_t value_count(const Parameter& parameter);

// How many numbers tell a gradient of it: its values; of a sparse one, besides, one a row, 1 if
// the gradient has that row and 0 if not. Elements of rows that it does not have are 0.
std::uint64_t gradient_words(const Parameter& parameter);

// F7: all but the first reducer have parameters; buffers are the first one's.
std::uint32_t reducer_count(const Program& program);
// The program as one of them sees it: it ignores what is another one's, and is alone.
Program share_of(const Program& program, std::uint32_t reducer);

// Options::two_groups: the one that a rank trains in.
inline std::uint32_t group_count(const Program& program) {
  return program.options.two_groups ? 2 : 1;
}
inline std::uint32_t group_of(const Program& program, std::uint32_t rank) {
  return rank % group_count(program);
}

// The step after the last one of the join that `step` belongs to; without a join, of all.
std::uint32_t end_of_join(const Program& program, std::uint32_t step);

// Whether the rank trains in the step.
bool has_input(const Program& program, std::uint32_t rank, std::uint32_t step);

// Whether the reducer reduces its gradient.
inline bool is_reduced(const Parameter& parameter) {
  return !parameter.frozen && !parameter.ignored;
}

// S4: what a bucket of this dtype is summed in. The compressing hooks leave 16-bit types alone.
DType wire_dtype(Hook hook, DType dtype);

// ZeroGrad::kSwap: parameters that are reduced by one reducer on one device, and have the same
// sizes, strides and dtype, in twos.
std::vector<std::pair<std::uint32_t, std::uint32_t>> swapped_gradients(const Program& program);

// The first owner of the tensor of parameter `index`, through chains of shared_with.
std::uint32_t owner_of(const Program& program, std::uint32_t index);

// Of the first replica: what owner_of(index) is, or copies.
std::uint32_t original_of(const Program& program, std::uint32_t index);

// Whether it is no copy, and not shared with one before.
inline bool is_original(const Parameter& parameter) {
  return parameter.shared_with == 0 && parameter.copy_of == 0;
}

// The dimensions in the order in which the parameter lies in memory, the outermost one first: in
// their own order, reversed for column_major, or in order number `permuted` of all orders (in
// lexicographic order, modulo their number).
std::vector<std::uint32_t> dimensions_in_memory(const Parameter& parameter);

// Whether that is their own order (of a normalized parameter).
inline bool is_row_major(const Parameter& parameter) {
  return !parameter.column_major && parameter.permuted == 0;
}

// Where the value with row-major index `element` lies in the parameter's own memory, in values.
std::uint64_t row_major_to_memory(const Parameter& parameter, std::uint64_t element);

// The element with row-major index `element` of the constant c of a use, as the bits of the
// parameter's dtype in the low bytes. A pure function of its arguments; different ranks get
// different values (but for kSpecial, where they may meet at a special value, and but for chance
// where there are more than 8 ranks). values.h has it
// for whole tensors.
//   kExact    integers of magnitude 1..8, times the world size: scaled by that world and summed
//             without rounding (but for fp32 and 7 ranks, where 1/7 as a float is too far off)
//   kGeneral  full mantissas, magnitudes from 2^-4 to 2^4
//   kSpecial  a mixture of kGeneral with NaN, infinities, subnormals, -0, +0, values near the
//             dtype's largest and smallest
//   kLargest  full mantissas, magnitudes from a quarter of the dtype's largest finite value up to
//             that value, divided by 2^headroom. The means of a program that sums few of them on
//             each rank are finite, as what is added over the ranks is scaled before (G2).
std::uint64_t value_of(const Program& program, const Parameter& parameter, std::uint32_t rank,
                       std::uint32_t step_key, std::uint32_t node_key, std::uint64_t element);

}  // namespace lockstep::reference
