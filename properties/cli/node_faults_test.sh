#!/usr/bin/env bash
# node_faults_test.sh PROGRAM WALL_CLOCK: faults of a node and of the store act on ranks in namespaces, ranks are
# replaced and left out, and every verdict is right. A planned fault that does nothing is told. Where
# the system has no namespaces it says so and is skipped (77). WALL_CLOCK is a reducer (a library) that
# measures its timeout on the wall clock.
program=$(realpath -- "$1")
wall_clock=$(realpath -- "$2")
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

code=0
"$program" fuzz --lane hosts --netns 1 --cases 1 --jobs 1 >out 2>err || code=$?
((code != 2)) || { echo "skipped: $(cat err)" && exit 77; }

# case_with TIMEOUT FAULT...: a program of four steps on three ranks
case_with() {
  local timeout=$1 IFS=,
  shift
  echo '{"schema": 1, "program": {"world": 3, "parameters": [{"sizes": [512, 64]}],
    "steps": [{"kind": "synced"}, {"kind": "synced"}, {"kind": "synced"}, {"kind": "synced"}]},' \
    "\"timeout_ms\": $timeout, \"faults\": [$*]}" >case.json
}
within=()  # a command that runs the program
run() { "${within[@]}" "$program" replay case.json --lane "${lane:-hosts}" --netns 3 --json report.json "$@"; }
# fired KIND: how often
fired() { grep -o "\"$1\": *[0-9]*" report.json | grep -o '[0-9]*$' || echo 0; }
expect_fired() {
  expect 0 "${lane:-hosts} lane" run
  [[ $(fired "$1") -ge 1 ]] || fail "$1 did not fire: $(cat out)"
  ! grep -q "did nothing" out || fail "$1 is said to have done nothing"
}
fault() { # fault KIND AT DURATION [STEP]: of rank 1, at its first collective of step 1, or in the reset before STEP
  echo "{\"kind\": \"$1\", \"rank\": 1, \"step\": ${4:-1}, \"site\": 0, \"at\": $2, \"duration_us\": $3," \
    "\"in_reset\": $([[ -n ${4:-} ]] && echo true || echo false)}"
}
throws() { echo "{\"kind\": \"node_throws\", \"rank\": 0, \"step\": $1, \"site\": 0}"; }

# Nothing may fail: the store is slow, or is not needed, and neither the reducer nor Gloo reads the wall clock.
for at in 7200000 7200001; do
  case_with 15000 "$(fault node_clock $at 0)"
  expect 0 "a planned fault, node_clock, did nothing: nobody read the wall clock" run
done
# A reducer that does read it ends a pass with an error where the clock jumps forward.
case_with 4000 "$(fault node_clock 7200000 0)"
expect 71 "wrong or missing error" run --subject "$wall_clock"
[[ $(fired node_clock) -ge 1 ]] || fail "node_clock did not fire: $(cat out)"
for jump in "" "$(fault node_clock 7200001 0)"; do
  case_with 4000 "$jump"
  expect 0 "hosts lane" run --subject "$wall_clock"
done
case_with 15000 "$(fault store_slow 20000 0 0)"
expect_fired store_slow
! grep -q "errors that ranks raised" out || fail "a slow store made a step fail"
for kind in store_full store_dead; do
  case_with 15000 "$(fault $kind 0 0)"
  expect 0 "a planned fault, $kind, did nothing: nobody asked the store" run
done

# The construction, and a reset, fail, and succeed when the fault is over.
for kind in store_full store_dead node_descriptors; do
  case_with 2000 "$(fault $kind 0 0 0)"
  expect_fired $kind
  case_with 2000 "$(throws 1)" "$(fault $kind 0 0 2)"
  expect_fired $kind
done

# The survivors fail, name the rank, and go on with it or without it.
case_with 1500 "$(fault node_stop 0 4000000)"
expect_fired node_stop
grep -q "suspected peer 1" out || fail "a stopped node is not named"
# Nothing needs memory in the collective of step 1. The large gradient of step 2 does: that of step 1 went back to the system.
case_with 10000 "$(fault node_memory 0 0)"
sed -i '0,/"synced"/s//"no_grad"/; s/512, 64/512, 128/' case.json
expect_fired node_memory
nft=$(PATH=$PATH:/usr/sbin:/sbin command -v nft || true)
for at in ${nft:+0 1}; do
  case_with 1500 "$(fault rank_left_out $at 0)"
  expect_fired rank_left_out
  [[ $(grep -c "rank 1, step 1:" out) -ge 1 ]] || fail "the rank that was left out ended a step"
done
case_with 10000 "$(fault rank_replaced 0 0)"  # a process takes a while to start on a busy machine
expect_fired rank_replaced
case_with 10000 "$(fault rank_replaced 1 0)" "$(throws 2)"
expect_fired rank_replaced

# Where nft is missing, such a case has no verdict: without its fault it would pass. Only these two runs see a file that is
# no program in the place of nft.
if [[ -n $nft ]]; then
  within=(unshare --mount)
  [[ $(id -u) == 0 ]] || within+=(--map-root-user)
  # shellcheck disable=SC2016
  within+=(bash -c 'mount --bind /dev/null "$0" && exec "$@"' "$(realpath -- "$nft")")
fi
case_with 1500 "$(fault rank_left_out 0 0)"
expect 2 "the fault rank_left_out needs nft, which is not installed: ci/setup --network installs it" run
case_with 15000 "$(fault store_slow 20000 0 0)"
expect 0 "hosts lane" run
within=()

# Ranks are replaced, stopped and left out over the loopback interface, too.
lane=gloo
case_with 10000 "$(fault rank_replaced 0 0)"
expect_fired rank_replaced
for kind in "node_stop 0 4000000" "rank_left_out 0 0"; do
  # shellcheck disable=SC2086
  case_with 1500 "$(fault $kind)"
  expect_fired "${kind%% *}"
done
# All others do nothing there.
case_with 1500 "$(fault store_dead 0 0 0)"
expect 0 "gloo lane" run
[[ $(fired store_dead) == 0 ]] || fail "a fault of the store acted without a store of ours"

if [[ -z $nft ]] && ((failures == 0)); then
  echo "skipped: rank_left_out in namespaces needs nft: ci/setup --network installs it" && exit 77
fi
finish "every fault of a node and of the store acts, and says so"
