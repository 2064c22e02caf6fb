/* lockstep_orders.h: what a shared library of yours exports so that `lockstep orders --library
 * ./libmine.so` can measure in which order it adds. Every rank is a process of its own that loads
 * the library and calls it from one thread.
 *
 * A function returns 0, or another number if it failed; the measurement then ends and names that
 * number. Memory belongs to the caller, and is not used after a call has returned. `in` and `out`
 * never overlap.
 *
 * Example: int lockstep_orders_leave(void) { return my_shutdown(); }
 */
#ifndef LOCKSTEP_ORDERS_H
#define LOCKSTEP_ORDERS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the job, once a process. Rank 0 may listen on the TCP port of the loopback, which was free
 * just now. */
int lockstep_orders_join(int rank, int ranks, int port);

/* Writes the sum over all ranks of `in` to `out`, on every rank. Both have `elements` elements.
 * `dtype` is "float32", "float64", "float16" or "bfloat16"; refuse those that you do not have. */
int lockstep_orders_all_reduce(const void* in, void* out, size_t elements, const char* dtype);

/* Optional. Sums the ranks' `in` of ranks * `elements` elements; rank r gets elements [r *
 * elements, (r + 1) * elements). */
int lockstep_orders_reduce_scatter(const void* in, void* out, size_t elements, const char* dtype);

/* Optional. Makes a new communicator, which later calls use: an order can depend on the number of a
 * call. */
int lockstep_orders_new_group(void);

/* Leaves the job, once a process. */
int lockstep_orders_leave(void);

#ifdef __cplusplus
}
#endif
#endif
