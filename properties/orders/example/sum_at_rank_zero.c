/* A library that `lockstep orders` can measure: every rank sends its values to rank 0 over TCP,
 * which adds them and sends the sum back. It adds in the order of the ranks, or from the highest
 * rank down when it is compiled with -DFROM_THE_LAST. With -DOTHER_BITS_AT_RANK_ZERO rank 0 keeps a
 * sum of another order than the one that it sends, as a wrong library might.
 *
 *     cc -shared -fPIC -ffp-contract=off -o libsum.so sum_at_rank_zero.c
 *     lockstep orders --library ./libsum.so --ranks 3
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../lockstep_orders.h"

enum { MOST_RANKS = 64, TRIES = 2000 };

static int my_rank, rank_count;
static int
    to_rank[MOST_RANKS]; /* of rank 0: a socket to each other rank; of the others: to_rank[0] */

static struct sockaddr_in address_of(int port) {
  struct sockaddr_in address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_port = htons((unsigned short)port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/* 0, or -1 if the other end is gone. */
static int send_all(int to, const void* data, size_t bytes) {
  const char* at = data;
  while (bytes > 0) {
    const ssize_t sent = send(to, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return -1;
    at += sent;
    bytes -= (size_t)sent;
  }
  return 0;
}

static int receive_all(int from, void* data, size_t bytes) {
  return bytes == 0 || recv(from, data, bytes, MSG_WAITALL) == (ssize_t)bytes ? 0 : -1;
}

static int accept_ranks(int port) {
  struct sockaddr_in address = address_of(port);
  const int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr*)&address, sizeof address) != 0 ||
      listen(listener, MOST_RANKS) != 0)
    return 2;
  for (int i = 1; i < rank_count; ++i) {
    int other = 0;
    const int socket_of_one = accept(listener, NULL, NULL);
    if (socket_of_one < 0 || receive_all(socket_of_one, &other, sizeof other) != 0) return 3;
    if (other < 1 || other >= rank_count) return 4;
    to_rank[other] = socket_of_one;
  }
  return close(listener);
}

static int connect_to_rank_zero(int port) {
  struct sockaddr_in address = address_of(port);
  for (int i = 0; i < TRIES; ++i) { /* rank 0 may not listen yet */
    to_rank[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(to_rank[0], (struct sockaddr*)&address, sizeof address) == 0)
      return send_all(to_rank[0], &my_rank, sizeof my_rank);
    close(to_rank[0]);
    usleep(10000);
  }
  return 5;
}

int lockstep_orders_join(int rank, int ranks, int port) {
  if (ranks > MOST_RANKS) return 1;
  my_rank = rank;
  rank_count = ranks;
  return rank == 0 ? accept_ranks(port) : connect_to_rank_zero(port);
}

/* Adds the values of the ranks, of which the array has one row each. */
static void add_rows(const float* rows, float* sum, size_t elements, int is_from_the_last) {
  const int first = is_from_the_last ? rank_count - 1 : 0;
  const int step = is_from_the_last ? -1 : 1;
  memcpy(sum, rows + (size_t)first * elements, elements * sizeof *sum);
  for (int i = 1; i < rank_count; ++i) {
    const float* row = rows + (size_t)(first + step * i) * elements;
    for (size_t j = 0; j < elements; ++j) sum[j] = sum[j] + row[j];
  }
}

static int sum_for_all(const float* in, float* out, size_t elements) {
  const size_t bytes = elements * sizeof *in;
  int failed = 0, is_from_the_last = 0;
  float* rows = malloc(bytes * (size_t)rank_count);
#ifdef FROM_THE_LAST
  is_from_the_last = 1;
#endif
  if (rows == NULL) return 6;
  memcpy(rows, in, bytes);
  for (int i = 1; i < rank_count; ++i)
    failed |= receive_all(to_rank[i], rows + (size_t)i * elements, bytes);
  add_rows(rows, out, elements, is_from_the_last);
  for (int i = 1; i < rank_count; ++i) failed |= send_all(to_rank[i], out, bytes);
#ifdef OTHER_BITS_AT_RANK_ZERO
  add_rows(rows, out, elements, !is_from_the_last);
#endif
  free(rows);
  return failed != 0 ? 7 : 0;
}

int lockstep_orders_all_reduce(const void* in, void* out, size_t elements, const char* dtype) {
  if (strcmp(dtype, "float32") != 0) return 8;
  if (my_rank == 0) return sum_for_all(in, out, elements);
  if (send_all(to_rank[0], in, elements * sizeof(float)) != 0) return 9;
  return receive_all(to_rank[0], out, elements * sizeof(float)) != 0 ? 10 : 0;
}

int lockstep_orders_leave(void) {
  for (int i = my_rank == 0 ? 1 : 0; i < (my_rank == 0 ? rank_count : 1); ++i) close(to_rank[i]);
  return 0;
}
