#!/usr/bin/env bash
# gtest_test.sh PROGRAM: the tests that <lockstep/gtest.h> makes, in the program of example_test.cc: a right reducer passes,
# each wrong one fails with its reason, and what a failure prints runs the case again.
program=$1
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../cli/expect.sh"

# GoogleTest prints to standard output, and ends with 1 where a test has failed, like the checks of expect() for one line on
# standard error; so those go to `out`, too.
tests() { # tests FILTER
  "$program" --gtest_brief=1 --gtest_filter="$1" 2>&1
}
reports() { # reports FILTER TEXT...: the tests fail, and say each text
  local filter=$1 text
  shift
  tests "$filter" >out && fail "$filter passes"
  for text in "$@"; do grep -qF -- "$text" out || fail "$filter does not say '$text'"; done
}
: >err

tests 'FlatReducer.*:DividingReducer.*_values' >out || fail "a right reducer does not pass"
grep -q 'PASSED.* 5 tests' out || fail "five tests were to run"

reports StaleReducer.sim "FAIL: wrong bits (oracle: bits, exit code 65)" "these bits are" "LOCKSTEP_CASE(StaleReducer, sim, Seed1Case" \
  'R"case({' "lockstep-out/sim-1-" "-StaleReducer.json"
# What is printed is a test: the case as a file, and as code.
case_file=$(ls lockstep-out/sim-1-*-StaleReducer.json | grep -v found.json | head -n 1)
export LOCKSTEP_CASE=$case_file
reports StaleReducer.sim "FAIL: wrong bits"
LOCKSTEP_IN_PROCESS=1 reports StaleReducer.sim "FAIL: wrong bits"
tests FlatReducer.sim >out || fail "the right reducer does not pass the case"
unset LOCKSTEP_CASE
reports StaleReducer.sim_Accumulates "FAIL: wrong bits"

reports ThrowingReducer.sim "an error without a reason" "the reducer threw: the stream cannot be captured"
reports HangingReducer.sim "gave no answer within" "where it was:"
reports ExitingReducer.sim "exited with status 0, without having said that it was done"
reports DividingReducer.sim "FAIL: "

# What is wrong in the environment, or in the test, is told in a line.
LOCKSTEP_CASES=many reports FlatReducer.sim "LOCKSTEP_CASES=many: give a whole number above 0"
LOCKSTEP_CASE=nowhere.json reports FlatReducer.sim "cannot read nowhere.json"

finish "the tests of a reducer are what they say"
