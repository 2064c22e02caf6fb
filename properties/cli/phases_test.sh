#!/usr/bin/env bash
# phases_test.sh PROGRAM: `lockstep matrix --faults` runs a fault in each phase of training. The reducer is right in each, and a
# planted bug in the names of errors is wrong where a pass follows.
program=$(realpath -- "$1")
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

matrix() { "$program" matrix --lane sim --json report.json "$@"; }
expect 0 "leaving, 3 ranks" matrix --faults rank_exit --ranks 2,3 --subjects reducer
[[ $(grep -c "ranks .* right" out) == 20 ]] || fail "not right in each of 10 phases with 2 and with 3 ranks"
! grep -q "wrong error" out || fail "the reducer is wrong in a phase"
expect 0 "wrong error" matrix --faults rank_exit --ranks 2,3 --subjects reducer,seeded:U10
[[ $(grep -c "wrong error; errors within" out) -ge 1 ]] || fail "a planted bug is wrong in no phase"
expect 71 "wrong error" matrix --faults rank_exit --ranks 3 --subjects seeded:U10

expect 1 "unknown fault 'nonsense'" matrix --subjects reducer --faults nonsense
expect 1 "not in range" matrix --subjects reducer --faults rank_exit --ranks 1
expect 1 "the lane hosts needs hosts" "$program" matrix --subjects reducer \
  --faults rank_exit --lane hosts

finish "a fault in each phase"
