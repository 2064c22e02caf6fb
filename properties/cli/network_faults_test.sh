#!/usr/bin/env bash
# network_faults_test.sh PROGRAM: every fault of the network acts on ranks in namespaces, the verdict
# is right, and a planned fault that does nothing is told. Where the system has no namespaces, or no
# nft, it says so and is skipped (77).
program=$(realpath -- "$1")
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

command -v nft >/dev/null || [[ -x /usr/sbin/nft ]] || { echo "skipped: there is no nft here" && exit 77; }
"$program" doctor >doctor.txt
if ! grep -q '^lane hosts     ready: .* with faults of the network' doctor.txt; then
  echo "skipped: $(grep '^lane hosts ' doctor.txt)" && exit 77
fi

# case_with TIMEOUT FAULT...: a program of three steps on three ranks
case_with() {
  local timeout=$1 IFS=,
  shift
  echo '{"schema": 1, "program": {"world": 3, "parameters": [{"sizes": [4096, 8]}],
    "steps": [' \
    '{"kind": "synced"}, {"kind": "synced"}, {"kind": "synced"}]},' \
    "\"timeout_ms\": $timeout, \"faults\": [$*]}" >case.json
}
run() { "$program" replay case.json --lane hosts --netns 3 --json report.json; }
# fired KIND: how often
fired() { grep -o "\"$1\": *[0-9]*" report.json | grep -o '[0-9]*$' || echo 0; }
expect_fired() {
  expect "$1" "hosts lane" run
  [[ $(fired "$2") -ge 1 ]] || fail "$2 did not fire"
  ! grep -q "did nothing" out || fail "$2 is said to have done nothing"
}
fault() { # fault KIND PEER AT DURATION: of rank 1, at its first collective of step 1
  echo "{\"kind\": \"$1\", \"rank\": 1, \"step\": 1, \"site\": 0, \"peer\": $2, \"at\": $3, \"duration_us\": $4}"
}

# Those that last: the survivors have to fail, and all train on after a recovery. A partition both
# ways, of what is sent, of what is received, and of a pair.
for at in 0 1 2; do
  case_with 2000 "$(fault net_partition 1 $at 0)"
  expect_fired 0 net_partition
done
case_with 2000 "$(fault net_partition 2 0 0)"
expect_fired 0 net_partition
case_with 2000 "$(fault net_loss 1 150 0)" # 50 %
expect_fired 0 net_loss
case_with 2000 "$(fault net_reset 1 0 0)"
expect_fired 0 net_reset
case_with 2000 "$(fault net_reject 2 0 0)"
expect_fired 0 net_reject
case_with 2000 "$(fault net_half_open 1 120 0)" # after 40 bytes
expect_fired 0 net_half_open
case_with 2000 "$(fault net_cut 1 3000 0)" # after 1000 bytes, within a message
expect_fired 0 net_cut
# Rank 1 has begun step 1 when its connection is cut; rank 0 may still wait for the end of step 0.
grep -q "rank 1, step 1: peer lost" out || fail "a connection that was cut was no error"

# Those that heal, or only slow down: nothing fails.
for kind in "net_partition 1 0 300000" "net_loss 1 30 0" "net_bandwidth 1 300 0" "net_mtu 1 1728 0" \
  "net_delay 1 60000 0" "net_delay 0 61 400000"; do
  # shellcheck disable=SC2086
  case_with 20000 "$(fault $kind)"
  expect_fired 0 "${kind%% *}"
  ! grep -q "errors that ranks raised" out || fail "$kind made a step fail"
done

# Two at once.
case_with 2000 "$(fault net_partition 0 1 0)" "$(fault net_loss 2 30 0)"
expect_fired 0 net_partition
[[ $(fired net_loss) -ge 1 ]] || fail "the second fault did not fire"

# A fault whose collective nobody reaches, and one that meets no packet, have done nothing.
case_with 2000 '{"kind": "net_partition", "rank": 1, "step": 1, "site": 40}'
expect 0 "a planned fault, net_partition, did nothing: its rank did not come to that collective" run
[[ $(fired net_partition) == 0 ]] || fail "a fault that did nothing counts as fired"
case_with 2000 "$(fault net_half_open 1 3000000000 0)"
expect 0 "a planned fault, net_half_open, did nothing: no packet met it" run

# In another lane they are never begun.
case_with 2000 "$(fault net_partition 1 0 0)"
expect 0 "gloo lane, subject reducer: ok" "$program" replay case.json --lane gloo
expect 0 "sim lane, subject reducer: ok" "$program" replay case.json --lane sim
expect 0 "all packets of what rank 1 and the others exchange are dropped" "$program" show case.json

finish "every fault of the network acts, and says so"
