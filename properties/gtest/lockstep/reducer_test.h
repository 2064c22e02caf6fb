/* What a test of a reducer asks Lockstep for: the C interface between <lockstep/gtest.h> and the
 * library lockstep::gtest. Whoever uses GoogleTest includes that header; for another framework this
 * one is enough.
 *
 * THREADS. One call at a time, in a process that has no other threads: cases run in processes that
 * this one forks, so that a reducer which crashes, exits or hangs is a failing test and no more.
 * OWNERSHIP. The strings and the table are the caller's, and must live until the call has returned.
 * The report is the caller's, too, who gives it to lockstep_free_report().
 * FAILURE. The return value is an exit code of the program `lockstep`: 0, no case has failed; 1,
 * the test itself is wrong, such as its lane; 2, the machine lacks something, or too few cases have
 * run; 65 to 71, a case failed, and the code says how. */
#ifndef LOCKSTEP_REDUCER_TEST_H
#define LOCKSTEP_REDUCER_TEST_H

#include <lockstep_subject.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lockstep_reducer_test {
  uint32_t size;       /* sizeof */
  const char* reducer; /* its name, an identifier, for reports and for code to paste */
  const lockstep_subject* subject;
  const char* lane;      /* "sim" or "gloo" */
  uint32_t exact_values; /* 1: as `lockstep fuzz --values exact` */
  uint64_t cases;        /* 0: LOCKSTEP_CASES of the environment, or 200 */
  uint64_t seed;         /* 0: LOCKSTEP_SEED of the environment, or 1 */
  const char* one_case;  /* a case as JSON, which runs alone; NULL: generated cases run */
} lockstep_reducer_test;

int32_t lockstep_run_reducer_test(const lockstep_reducer_test* test, char** report);
void lockstep_free_report(char* report);

#ifdef __cplusplus
}
#endif

#endif /* LOCKSTEP_REDUCER_TEST_H */
