/* What a runner and the net plug-in libnccl-net-lockstep.so share: the fault plan in shared memory,
 * the environment, and the plug-in's own functions. Plain C, so that any language can write a plan;
 * net_plan.h is the comfortable way from C++.
 *
 * The plan is a POSIX shared memory object (shm_open) that holds one lockstep_net_plan. The runner
 * fills it, writes `magic` last, and starts the ranks with its name in LOCKSTEP_NET_PLAN. The
 * plug-in copies the faults when NCCL initializes it; from then on both sides touch nothing but
 * `armed` and the counters, with atomic operations.
 */
#ifndef LOCKSTEP_NET_H_
#define LOCKSTEP_NET_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The environment of each rank. */
#define LOCKSTEP_NET_PLAN \
  "LOCKSTEP_NET_PLAN"                     /* the plan's name, such as "/run-7"; none: no faults */
#define LOCKSTEP_NET_RANK "LOCKSTEP_RANK" /* this process's rank; needed where there is a plan */
#define LOCKSTEP_NET_IFNAME \
  "LOCKSTEP_NET_IFNAME" /* an interface; else NCCL_SOCKET_IFNAME, else loopback */
/* How long a peer may take to say who it is, in ms; 20000 if not set. */
#define LOCKSTEP_NET_HANDSHAKE_MS "LOCKSTEP_NET_HANDSHAKE_MS"

#define LOCKSTEP_NET_PLAN_MAGIC 0x4e414c5054454e4cull /* "LNETPLAN" in memory */
#define LOCKSTEP_NET_PLAN_VERSION 2u
#define LOCKSTEP_NET_MAX_FAULTS 64u
#define LOCKSTEP_NET_ANY (-1) /* any rank, peer or connection */

/* The end of a connection that a fault sits at. Connections go one way. */
enum { LOCKSTEP_NET_SENDER = 0, LOCKSTEP_NET_RECEIVER = 1 };

/* What happens to a message. At the receiver all but BACK_PRESSURE and REFUSE act when the message
 * arrives. `amount` is what each says of it. */
enum {
  LOCKSTEP_NET_DELAY = 1, /* it, and what comes after it, is held back; amount: microseconds */
  LOCKSTEP_NET_BACK_PRESSURE = 2, /* isend or irecv give no request; amount: how many times */
  LOCKSTEP_NET_STALL = 3,         /* it never completes, nor does what comes after it */
  LOCKSTEP_NET_ERROR = 4,         /* test() gives an error; amount: its ncclResult_t, 1 to 7 */
  LOCKSTEP_NET_REFUSE = 5,        /* isend or irecv give an error; amount: as above */
  LOCKSTEP_NET_CLOSE = 6,         /* the connection closes; amount: at the sender, the bytes of the
                                     message that still go out */
  LOCKSTEP_NET_FLIP = 7, /* one bit is the other one; amount: its number, modulo the size */
  LOCKSTEP_NET_SWAP = 8, /* sender only: it and the next message exchange their payloads, as
                            far as the shorter one reaches; amount: how long it waits for the
                            next one, in microseconds, 0 for a second */
  LOCKSTEP_NET_SHORT = 9 /* sender only: it ends early; amount: the bytes that are missing */
};

typedef struct {
  /* Where and when. */
  int32_t kind;
  int32_t rank;       /* whose end of the connection */
  int32_t peer;       /* the rank at the other end */
  int32_t end;        /* LOCKSTEP_NET_SENDER or _RECEIVER */
  int32_t connection; /* the how-many-th connection that the sender made to this receiver, from 0 */
  int32_t waits;      /* 0: in force all along; 1: only while `armed` is not 0 */
  int64_t message;    /* the first message on it that is concerned, from 0; of one that waits,
                         counted from the first message after it was armed */
  int64_t messages;   /* how many from there on, 1 or more */
  int64_t amount;
  uint64_t armed; /* set and taken back by the runner, or a rank, at any time */
  /* What came of it; 0 at first. */
  uint64_t connections; /* connections that match */
  uint64_t seen;        /* the most messages that any of them has been given */
  uint64_t fired;       /* messages that it happened to */
  uint64_t idle;        /* messages that were its own, but had nothing to change: no byte to flip,
                           no partner to swap with */
} lockstep_net_fault;

typedef struct {
  uint64_t magic;
  uint32_t version;
  uint32_t size;     /* sizeof(lockstep_net_plan) */
  uint32_t count;    /* of faults */
  uint32_t reserved; /* 0 */
  uint64_t attached; /* how many times a plug-in took the plan */
  lockstep_net_fault faults[LOCKSTEP_NET_MAX_FAULTS];
} lockstep_net_plan;

/* What is there now, in this process, and what was turned away since it started. */
typedef struct {
  uint64_t listeners;
  uint64_t senders;
  uint64_t receivers;
  uint64_t rejected_peers; /* connections that did not say what they had to, in time */
} lockstep_net_counts;

#define LOCKSTEP_NET_EXPORT __attribute__((visibility("default")))

/* The plug-in's functions; reached by dlopen() of the same file that NCCL loads. From any thread.
 */
LOCKSTEP_NET_EXPORT uint32_t lockstep_net_version(void); /* LOCKSTEP_NET_PLAN_VERSION */
LOCKSTEP_NET_EXPORT void lockstep_net_count(lockstep_net_counts* counts);
/* The last warning that was logged, cut to `size` with its 0 byte; the whole length is returned. */
LOCKSTEP_NET_EXPORT uint64_t lockstep_net_last_warning(char* text, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
