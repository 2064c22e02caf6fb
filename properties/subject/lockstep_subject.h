/* The interface through which Lockstep tests another reducer: a table of C functions that a shared
 * library exports. `lockstep fuzz --subject ./libmine.so` then trains generated programs with the
 * reducer, in the simulator and on real Gloo, and compares every gradient with the model, bit by
 * bit. reference/CONTRACT.md says what a reducer must do. Start with README.md in this folder, and
 * use example/flat_reducer.cc as a template. For C and C++.
 *
 * WHO DOES WHAT. The host (Lockstep) owns the parameters, the autograd engine and the process
 * group. The subject (you) decides when which gradients are scaled, packed, reduced and written
 * back.
 *
 * WHAT IS CALLED WHEN, on each rank:
 *
 *   create(setup, host)                   collective: every rank calls it
 *   for every step, one or more times
 *     forward_begin(kind)                 before a forward
 *     forward_end(kind, reachable)        after it, unless it failed
 *   then, for every backward call of the step
 *     backward_begin(pass, ...)           only if its graph reaches an output of a synced forward,
 *                                         and before any gradient is touched
 *     gradient_ready(parameter, pass)     the parameter's hook: its gradient has been accumulated,
 *                                         or the engine reached it without a gradient
 *     backward_end(pass, ...)             after the last node of a backward that was begun; on
 *       or backward_failed(pass, error)   return the gradients must hold the result
 *   then, if outputs live beyond the step
 *     check_complete()
 *   after a step that failed, here or on another rank
 *     abort(cause)                        only where it failed
 *     reset(setup)                        collective: a new group, perhaps with fewer ranks
 *   destroy()
 *
 * A pass is one forward and its backward, or several forwards and their common backward. The host
 * numbers passes 0, 1, ... in the order of their first backwards, and begins again at 0 after
 * reset(). A synced forward whose outputs are dropped has no backward, and so no number. Hooks of
 * local backwards (no_sync) have the pass LOCKSTEP_LOCAL. A backward inside a node of another
 * (checkpointing) is part of the outer one: its hooks have the outer one's pass, and the host does
 * not call backward_begin and backward_end for it.
 *
 * THREADS. A rank has one thread, from which the host calls everything. For parameters on a second
 * device, it calls gradient_ready() from a second thread, concurrently with other calls. Ranks are
 * threads of one process in most lanes: store nothing in static variables. In the simulator those
 * threads are fibers of one thread that run in turns, and a switch can happen in start(), wait(),
 * lock(), store_set(), store_get() and abort_group(). Hence:
 *   - do not hold a lock of your own over those calls: use lock() and unlock() of the host;
 *   - wait for other ranks and threads with those calls only;
 *   - create no threads, and read no clock and no source of randomness: otherwise a case cannot be
 *     replayed;
 *   - thread-local variables are shared between ranks;
 *   - the stack is 256 KiB.
 *
 * BLOCKING. wait() returns within about twice setup.timeout_ms, whatever peers do (with UINT32_MAX,
 * it returns when the collective ends; the host detects a hang in another way). The subject may
 * block nowhere else.
 *
 * OWNERSHIP. No ownership is transferred: whoever allocates memory frees it. `setup` and all it
 * points to remain valid until reset() with another setup, or destroy(), has returned; `host`
 * remains valid until destroy() has returned. Other pointers are valid during the call only. The
 * subject owns the data of a collective, which must remain valid until the subject has waited for
 * it. You may leave collectives unfinished when you fail: the host ends them before it calls
 * reset() or destroy(), so do not free their memory earlier.
 *
 * ERRORS. Functions return LOCKSTEP_OK, or another code with `error` filled in as far as the cause
 * is known (F2). Before each call the host sets `error` to "nothing known", except for the number
 * of the current pass. A function of the host fills the error that it is given completely, so that
 * you can pass it your own error and return its code. Neither exceptions nor longjmp may leave the
 * subject. If a subject ends the process or never returns, the host reports that with the case that
 * caused it.
 *
 * VERSIONS. LOCKSTEP_ABI counts incompatible changes. Within one number, structures that begin with
 * `size` may grow at their end. Whoever creates such a structure sets `size` to its sizeof, and
 * whoever reads it reads no further. */
#ifndef LOCKSTEP_SUBJECT_H
#define LOCKSTEP_SUBJECT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_ABI 1u
#define LOCKSTEP_ENTRY "lockstep_subject_entry"

#if defined(_WIN32)
#define LOCKSTEP_EXPORT __declspec(dllexport)
#else
#define LOCKSTEP_EXPORT __attribute__((visibility("default")))
#endif

/* What a subject supports besides float32 in plain mode, where every forward is synced, has one
 * backward, and uses every parameter. Generated cases need nothing else. */
#define LOCKSTEP_CAN_DYNAMIC (UINT64_C(1) << 0)      /* unused detection: mode dynamic */
#define LOCKSTEP_CAN_NO_SYNC (UINT64_C(1) << 1)      /* accumulation without communication */
#define LOCKSTEP_CAN_NO_GRAD (UINT64_C(1) << 2)      /* forwards without gradients */
#define LOCKSTEP_CAN_CHECKPOINT (UINT64_C(1) << 3)   /* nested backward */
#define LOCKSTEP_CAN_FORWARDS (UINT64_C(1) << 4)     /* several forwards before a backward */
#define LOCKSTEP_CAN_BACKWARDS (UINT64_C(1) << 5)    /* several backward calls of one step */
#define LOCKSTEP_CAN_DISCARD (UINT64_C(1) << 6)      /* forwards whose outputs are dropped */
#define LOCKSTEP_CAN_KEEP_OUTPUTS (UINT64_C(1) << 7) /* they live on; see check_complete() */
#define LOCKSTEP_CAN_SHARED (UINT64_C(1) << 8)       /* one tensor under several names */
#define LOCKSTEP_CAN_FROZEN (UINT64_C(1) << 9)       /* parameters that need no gradient */
#define LOCKSTEP_CAN_FLOAT64 (UINT64_C(1) << 10)
#define LOCKSTEP_CAN_FLOAT16 (UINT64_C(1) << 11)
#define LOCKSTEP_CAN_BFLOAT16 (UINT64_C(1) << 12)
#define LOCKSTEP_CAN_STRIDES (UINT64_C(1) << 13)     /* parameters that are not row-major */
#define LOCKSTEP_CAN_ZERO_SIZE (UINT64_C(1) << 14)   /* parameters without elements */
#define LOCKSTEP_CAN_TWO_DEVICES (UINT64_C(1) << 15) /* hooks from two threads */
#define LOCKSTEP_CAN_BCUBE (UINT64_C(1) << 16)       /* sums in the order of Gloo's bcube */
#define LOCKSTEP_CAN_SPECIAL (UINT64_C(1) << 17)     /* NaN, infinities, subnormals, -0 */
#define LOCKSTEP_CAN_ERRORS (UINT64_C(1) << 18)      /* programs that must end in an error */
#define LOCKSTEP_CAN_RECOVER (UINT64_C(1) << 19)     /* fatal faults; with abort, reset, poisoned */
/* A rank may take no part in a pass (P8): the others' wait() ends in an error in that step, which
 * they hand on; with LOCKSTEP_CAN_RECOVER all of them name the rank. */
#define LOCKSTEP_CAN_ABSENT (UINT64_C(1) << 58)
/* A parameter's hook may run again in a pass; see lockstep_setup::repeated_hooks. */
#define LOCKSTEP_CAN_REPEATED_HOOKS (UINT64_C(1) << 59)

enum {
  LOCKSTEP_FLOAT32 = 0,
  LOCKSTEP_FLOAT64 = 1,
  LOCKSTEP_FLOAT16 = 2,
  LOCKSTEP_BFLOAT16 = 3,
  LOCKSTEP_INT32 = 4,
  LOCKSTEP_BYTE = 5
};                                                 /* dtypes; the last two in collectives only */
enum { LOCKSTEP_PLAIN = 0, LOCKSTEP_DYNAMIC = 1 }; /* modes */
enum { LOCKSTEP_SYNCED = 0, LOCKSTEP_NO_SYNC = 1, LOCKSTEP_NO_GRAD = 2 }; /* kinds of forwards */
enum { LOCKSTEP_ALL_REDUCE_SUM = 0, LOCKSTEP_BROADCAST = 1 };             /* collectives */
enum { LOCKSTEP_LOCAL = -1 };                                             /* as a pass */
enum { LOCKSTEP_OTHER = -1, LOCKSTEP_USAGE_MAP = -2 };                    /* as a bucket */

/* Error codes: first a rank's own errors (P5, P6, P7, P12), then those of the group. */
enum {
  LOCKSTEP_OK = 0,
  LOCKSTEP_INVALID_ARGUMENT = 1,
  LOCKSTEP_DISAGREEMENT = 2,    /* ranks were created with different parameters or options (B4) */
  LOCKSTEP_INCOMPLETE = 3,      /* backward ended with parameters missing (P5) */
  LOCKSTEP_READY_TWICE = 4,     /* a hook ran twice in one pass (P6) */
  LOCKSTEP_SECOND_BACKWARD = 5, /* a further backward of a pass that is complete (P7) */
  LOCKSTEP_GRAPH_FREED = 6,     /* the engine's error */
  LOCKSTEP_USER_FAILURE = 7,    /* a node of the graph failed (P12) */
  LOCKSTEP_MISMATCH = 8,        /* ranks entered different collectives (F6) */
  LOCKSTEP_PEER_LOST = 9,
  LOCKSTEP_TIMEOUT = 10,
  LOCKSTEP_TRANSPORT = 11,
  LOCKSTEP_ABORTED = 12,
  LOCKSTEP_POISONED = 13, /* refused until reset(), because of an earlier failure (P12) */
  LOCKSTEP_CORRUPTED = 14,
  LOCKSTEP_INTERNAL = 15,
  LOCKSTEP_USAGE_CHANGED = 16 /* a parameter was used that static mode treats as unused (P11) */
};

#define LOCKSTEP_MAX_PARAMETERS 64
#define LOCKSTEP_DETAIL_BYTES 256

/* What failed (F2). It has no pointers: it can be copied, and sent through the store. */
typedef struct lockstep_error {
  int32_t code;
  int32_t rank; /* the rank in the group of the first cause; -1: not known, as below */
  int64_t pass;
  int64_t sequence;   /* the number of the collective in its group */
  int32_t collective; /* LOCKSTEP_ALL_REDUCE_SUM, ...; -1: no collective */
  int32_t bucket;     /* -1: none; if parameters are named, the bucket of the first one */
  int32_t suspect;    /* the rank that is suspected */
  int32_t definite;   /* 1: the rank's own, certain error; 0: inferred from a peer's silence */
  uint32_t parameter_count;
  uint32_t parameters[LOCKSTEP_MAX_PARAMETERS]; /* the first offending or missing parameter comes
                                                   first */
  char detail[LOCKSTEP_DETAIL_BYTES];           /* one sentence for a person */
} lockstep_error;

typedef struct lockstep_parameter {
  const char* name;
  uint64_t count; /* elements */
  uint32_t dtype;
  uint32_t device;
  uint32_t requires_grad; /* 0: frozen; it has no hook and no bucket */
} lockstep_parameter;

typedef struct lockstep_member {
  uint32_t parameter; /* index into the parameters */
  uint64_t offset;    /* the offset of its first element in the bucket, in elements */
  uint64_t count;
} lockstep_member;

typedef struct lockstep_bucket {
  uint64_t count; /* elements, including the padding between members; padding holds zeros */
  uint32_t dtype;
  uint32_t device;
  uint32_t member_count;
  const lockstep_member* members;
} lockstep_bucket;

/* The group and the parameters. `buckets` is the layout of B1 to B3 in launch order. The order in
 * which an element is summed depends on its position in its bucket, and the model expects this
 * layout: in each synced pass all-reduce each of these buckets once, in ascending order. Then, in
 * dynamic mode, all-reduce the usage map: one int32 for every parameter that requires a gradient,
 * in their order, with 1 where this rank used it. */
typedef struct lockstep_setup {
  uint32_t size;
  uint32_t rank;
  uint32_t world;
  uint32_t mode;       /* LOCKSTEP_PLAIN, LOCKSTEP_DYNAMIC */
  uint32_t timeout_ms; /* of one collective; UINT32_MAX: none */
  uint32_t grace_ms;   /* how long a failed rank may wait for its peers' records */
  uint32_t parameter_count;
  uint32_t bucket_count;
  const lockstep_parameter* parameters; /* distinct tensors: a shared one is listed once */
  const lockstep_bucket* buckets;
  /* 1: a hook that runs again in a pass of plain mode, as of a parameter that a checkpoint reaches
   * as well, or that two backwards of the pass reach, is no error (P6): what a parameter has
   * accumulated when the backward ends that completes the pass is reduced. 0 without
   * LOCKSTEP_CAN_REPEATED_HOOKS. */
  uint32_t repeated_hooks;
} lockstep_setup;

/* All fields but `data` must be equal on all ranks, and all ranks must start the same collectives
 * in the same order. */
typedef struct lockstep_collective {
  void* data;     /* the collective runs in place */
  uint64_t count; /* elements */
  uint32_t op;
  uint32_t dtype;
  uint32_t root;  /* of a broadcast */
  int32_t bucket; /* which bucket of the layout this is, LOCKSTEP_USAGE_MAP or LOCKSTEP_OTHER */
} lockstep_collective;

/* The functions of the host. Pass each function the host that create() received. */
typedef struct lockstep_host lockstep_host;
struct lockstep_host {
  uint32_t size;
  void* context; /* the host's own */

  /* Starts a collective and, as a rule, returns at once; pass `ticket` to wait(). */
  int32_t (*start)(const lockstep_host* host, const lockstep_collective* collective,
                   uint64_t* ticket, lockstep_error* error);
  /* Waits until the collective has ended, with or without an error; `data` is yours again. A ticket
   * is valid for one wait. */
  int32_t (*wait)(const lockstep_host* host, uint64_t ticket, lockstep_error* error);

  /* Returns the gradient: the parameter's elements, dense, in the parameter's own memory order;
   * NULL if it is undefined (never NULL only because there is no element). `used` (may be NULL) is
   * set to 1 if a defined gradient has arrived since it was last zeroed or reduced (G6), and else
   * to 0. In gradient_ready(), ask only for the parameter at hand and for those that have no hook
   * in this pass; in backward_end(), for any. */
  const void* (*gradient)(const lockstep_host* host, uint32_t parameter, uint32_t* used);
  /* Returns the same memory for writing the pass's result; an undefined gradient becomes defined,
   * with uninitialized elements. The gradient then counts as reduced: its `used` is cleared. If the
   * subject does not call this for a gradient, the gradient stays untouched (G5). NULL: no memory.
   * Call it in backward_end() only. */
  void* (*result)(const lockstep_host* host, uint32_t parameter, lockstep_error* error);

  /* One lock per rank, for subjects that support two devices. It does not nest, and must not be
   * held when a function of the subject returns. It may be held over start(), but not over wait().
   */
  void (*lock)(const lockstep_host* host);
  void (*unlock)(const lockstep_host* host);

  /* A store that all ranks of the group share, empty at create() and reset(). Ranks use it to
   * exchange their errors. A value is set once; the first one remains. store_get() waits for the
   * key, at most `timeout_ms` (then it returns LOCKSTEP_TIMEOUT); a value longer than `capacity` is
   * LOCKSTEP_INVALID_ARGUMENT. `bytes` is set to its length, which may be less than what was
   * set: with faults of the store calls fail or take long, and a part of a value arrives. */
  int32_t (*store_set)(const lockstep_host* host, const char* key, const void* value,
                       uint64_t bytes, lockstep_error* error);
  int32_t (*store_get)(const lockstep_host* host, const char* key, void* value, uint64_t capacity,
                       uint64_t* bytes, uint32_t timeout_ms, lockstep_error* error);

  /* Ends the group on this side: collectives in flight fail, and peers notice. */
  void (*abort_group)(const lockstep_host* host, const lockstep_error* cause);
};

/* The subject. `self` is the pointer that create() returned; each rank has its own. These may be
 * NULL: forward_end; check_complete without LOCKSTEP_CAN_KEEP_OUTPUTS; abort, reset and poisoned
 * without LOCKSTEP_CAN_RECOVER. With LOCKSTEP_CAN_ERRORS alone the host ends the group of a rank
 * that has failed, as its process would, and then creates new subjects in a new group. Its peers
 * need not know why. */
typedef struct lockstep_subject lockstep_subject;
struct lockstep_subject {
  uint32_t size;
  uint32_t abi; /* LOCKSTEP_ABI */
  const char* name;
  uint64_t capabilities; /* LOCKSTEP_CAN_... */

  /* On failure, returns NULL and fills `error`. */
  void* (*create)(const lockstep_setup* setup, const lockstep_host* host, lockstep_error* error);
  void (*destroy)(void* self);

  /* An error refuses the forward: the last pass was left incomplete (P5), or the subject is
   * poisoned (P12). */
  int32_t (*forward_begin)(void* self, uint32_t kind, lockstep_error* error);
  /* `reachable` (dynamic mode, else NULL) has one byte per parameter: 1 if its hook will run in a
   * backward from this forward's outputs. It does not include hooks inside a checkpoint. */
  int32_t (*forward_end)(void* self, uint32_t kind, const uint8_t* reachable,
                         lockstep_error* error);

  /* `is_first`: whether this is the first backward of the pass. `reachable`: as above, from all
   * outputs of the pass that still live. An error ends the backward call before any node runs. */
  int32_t (*backward_begin)(void* self, int64_t pass, uint32_t is_first, const uint8_t* reachable,
                            lockstep_error* error);
  /* An error ends the backward. */
  int32_t (*gradient_ready)(void* self, uint32_t parameter, int64_t pass, lockstep_error* error);
  /* `outputs_left`: the number of outputs of the pass that live, that no backward has used up, and
   * that lead to a parameter without a hook call in the pass. While there are any, plain mode may
   * wait for a further backward that produces the missing gradients (P5). */
  int32_t (*backward_end)(void* self, int64_t pass, uint32_t outputs_left, lockstep_error* error);
  /* A node or a hook failed. `error` holds the failure as the engine knows it; the subject may add
   * what it knows. The returned code and the content of `error` become the result of the call;
   * LOCKSTEP_OK leaves the failure unchanged. */
  int32_t (*backward_failed)(void* self, int64_t pass, lockstep_error* error);

  int32_t (*check_complete)(void* self, lockstep_error* error); /* see P5 */

  /* The rank gives up because of `cause` and must notify its peers. Does nothing if it has already.
   */
  void (*abort)(void* self, const lockstep_error* cause);
  /* A new group: rank, world and the store are new, parameters and buckets are the same (F4). If
   * this is NULL, the host destroys the subject and creates a new one. */
  int32_t (*reset)(void* self, const lockstep_setup* setup, lockstep_error* error);
  /* Returns 1 if the subject refuses work because of an earlier failure (P12). */
  int32_t (*poisoned)(void* self);

  /* How the subject makes the average: "multiply before" (by 1/N, each contribution before the sum;
   * G2), "multiply after", "divide before", "divide after" (by N), or "sum" (there is none; the
   * gradients are sums). It is held to that, bit for bit. NULL, or a table that ends before this
   * member: "multiply before". */
  const char* scale;
};

/* The library exports this function. `host_abi` is the LOCKSTEP_ABI of the host. It returns NULL if
 * the subject cannot serve that host. The table must remain unchanged for as long as the library is
 * loaded. */
LOCKSTEP_EXPORT const lockstep_subject* lockstep_subject_entry(uint32_t host_abi);

#ifdef __cplusplus
}
#endif

#endif /* LOCKSTEP_SUBJECT_H */
