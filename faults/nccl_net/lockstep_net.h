/* Shared by a runner and the net plug-in libnccl-net-lockstep.so: the fault plan in shared memory,
 * the environment, and the plug-in's own functions. It is plain C, so that any language can write a
 * plan; net_plan.h is more convenient from C++.
 *
 * The plan is a POSIX shared memory object (shm_open) that holds one lockstep_net_plan. The runner
 * fills it, writes `magic` last, and starts the ranks with its name in LOCKSTEP_NET_PLAN. The
 * plug-in copies the faults when NCCL initializes it. From then on both sides access only `armed`
 * and the counters, with atomic operations. */
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
/* The most milliseconds that a peer may take to identify itself; 20000 if not set. */
#define LOCKSTEP_NET_HANDSHAKE_MS "LOCKSTEP_NET_HANDSHAKE_MS"

#define LOCKSTEP_NET_PLAN_MAGIC 0x4e414c5054454e4cull /* "LNETPLAN" in memory */
#define LOCKSTEP_NET_PLAN_VERSION 2u
#define LOCKSTEP_NET_MAX_FAULTS 64u
#define LOCKSTEP_NET_ANY (-1) /* any rank, peer or connection */

/* The end of a connection at which a fault acts. Connections go one way. */
enum { LOCKSTEP_NET_SENDER = 0, LOCKSTEP_NET_RECEIVER = 1 };

/* What happens to a message. At the receiver, all faults but BACK_PRESSURE and REFUSE act when the
 * message arrives. The comment on each says what `amount` means. */
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
  /* These fields say where and when the fault acts. */
  int32_t kind;
  int32_t rank;       /* whose end of the connection */
  int32_t peer;       /* the rank at the other end */
  int32_t end;        /* LOCKSTEP_NET_SENDER or _RECEIVER */
  int32_t connection; /* the how-many-th connection that the sender made to this receiver, from 0 */
  int32_t waits;      /* 0: always in force; 1: in force only while `armed` is not 0 */
  /* The first affected message of the connection, from 0. For a fault that waits, it counts from
   * the first message after arming. */
  int64_t message;
  int64_t messages; /* how many messages it affects, 1 or more */
  int64_t amount;
  uint64_t armed; /* the runner or a rank may set and clear it at any time */
  /* These fields are results; they are 0 at first. */
  uint64_t connections; /* connections that match */
  uint64_t seen;        /* the most messages that were posted on any of them */
  uint64_t fired;       /* the messages that the fault changed, delayed or failed */
  /* Messages that the fault selected but could not change: there was no byte to flip, or no partner
   * to swap with. */
  uint64_t idle;
} lockstep_net_fault;

typedef struct {
  uint64_t magic;
  uint32_t version;
  uint32_t size;     /* sizeof(lockstep_net_plan) */
  uint32_t count;    /* the number of faults */
  uint32_t reserved; /* 0 */
  uint64_t attached; /* how many times a plug-in opened the plan */
  lockstep_net_fault faults[LOCKSTEP_NET_MAX_FAULTS];
} lockstep_net_plan;

/* What exists now in this process; the peers rejected, and the messages sent, since it started. */
typedef struct {
  uint64_t listeners;
  uint64_t senders;
  uint64_t receivers;
  uint64_t rejected_peers; /* connections that did not send a valid Hello in time */
  uint64_t sent_messages;  /* that NCCL gave to isend, and the plug-in accepted */
  uint64_t sent_bytes;     /* of these messages, as NCCL gave them */
} lockstep_net_counts;

#define LOCKSTEP_NET_EXPORT __attribute__((visibility("default")))

/* The plug-in's functions. A runner finds them by dlopen() of the file that NCCL loads. Any thread
 * may call them. */
LOCKSTEP_NET_EXPORT uint32_t lockstep_net_version(void); /* LOCKSTEP_NET_PLAN_VERSION */
LOCKSTEP_NET_EXPORT void lockstep_net_count(lockstep_net_counts* counts);
/* Copies the last logged warning into `text`, truncated to `size` with its 0 byte. Returns the full
 * length. */
LOCKSTEP_NET_EXPORT uint64_t lockstep_net_last_warning(char* text, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
