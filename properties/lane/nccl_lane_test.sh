#!/usr/bin/env bash
# nccl_lane_test.sh PROGRAM LIBRARY PLUGIN: the nccl lane from end to end without a card. PROGRAM plays one on the host,
# LIBRARY is the small NCCL of the tests, PLUGIN the real net plug-in.
set -uo pipefail
program=$1
export LOCKSTEP_NCCL=$2 LOCKSTEP_NCCL_PLUGIN=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

# expect CODE TEXT COMMAND...: the exit code, and a text in the output.
expect() {
  local code=$1 text=$2 got=0
  shift 2
  "$@" >out 2>err || got=$?
  if [[ $got -ne $code ]]; then
    echo "FAILED: $* gave exit code $got instead of $code"; cat out err; failures=$((failures + 1)); return
  fi
  if ! grep -qE -- "$text" out err; then
    echo "FAILED: $* does not say '$text'"; cat out err; failures=$((failures + 1))
  fi
}

# Good cases stay good, with faults of the rank, of its process, and of NCCL's network.
expect 0 '60 cases .* 0 failing' "$program" fuzz --lane nccl --seed 1 --cases 60 --faults none
expect 0 ' message_delay [0-9]' "$program" fuzz --lane nccl --seed 1 --cases 30 --faults message_delay
expect 0 ' payload_flip [0-9]' "$program" fuzz --lane nccl --seed 2 --cases 150 --faults payload_flip
expect 0 ' link_reset [0-9]' "$program" fuzz --lane nccl --seed 3 --cases 12 --faults link_reset
expect 0 ' rank_(exit|pause) [0-9]' "$program" fuzz --lane nccl --seed 4 --cases 12 --faults rank_exit,rank_pause

# A planted bug is found, so that a run without a finding means something.
expect 71 'seeded:C01' "$program" fuzz --lane nccl --subject seeded:C01 --seed 5 --cases 200 --shrink-time 2

# NCCL that went another way proves nothing, whatever the gradients are.
expect 75 'rank 0: a collective did not go by one channel' \
  env SMALL_NCCL_PRETENDS=tree "$program" fuzz --lane nccl --seed 1 --cases 30
expect 75 'uses the network Socket instead of Lockstep' \
  env SMALL_NCCL_PRETENDS=socket "$program" fuzz --lane nccl --seed 1 --cases 30

# A case of another lane runs, too, and a fault that never happened is told.
cat >case.json <<'JSON'
{"schema": 1, "program": {"world": 2, "parameters": [{"sizes": [4]}], "steps": [{"kind": "synced", "variants": [
{"forwards": [{"nodes": [{"kind": "use"}]}]}]}]}, "faults": [{"kind": "payload_flip", "rank": 0, "peer": 1, "step": 0},
{"kind": "message_delay", "rank": 1, "site": 900, "duration_us": 10}]}
JSON
expect 0 'rank 0 -> 1, connection 1, message 0\) never fired: no connection rank 0 -> 1 with that number' \
  "$program" replay case.json --lane nccl
expect 0 'never fired: the connection carried [0-9]+ messages while it was armed' "$program" replay case.json --lane nccl

# What is chosen and cannot be had is one line, before anything runs.
expect 1 "cannot load '/no/such/nccl.so'" env LOCKSTEP_NCCL=/no/such/nccl.so "$program" fuzz --lane nccl
expect 1 'it has no ncclGetVersion' env LOCKSTEP_NCCL="$LOCKSTEP_NCCL_PLUGIN" "$program" fuzz --lane nccl
expect 1 'is not our net plug-in' env LOCKSTEP_NCCL_PLUGIN="$LOCKSTEP_NCCL" "$program" fuzz --lane nccl

# Nothing is left behind.
left=$(find /dev/shm -maxdepth 1 -name 'lockstep-*' -user "$(id -un)" -mmin -2 2>/dev/null)
[[ -z $left ]] || { echo "FAILED: plans were left behind: $left"; failures=$((failures + 1)); }

((failures == 0)) || exit 1
echo "the nccl lane runs over the small NCCL"
