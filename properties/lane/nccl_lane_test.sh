#!/usr/bin/env bash
# nccl_lane_test.sh PROGRAM LIBRARY PLUGIN: tests the whole nccl lane without a GPU, which is played (faults/played_gpu).
# LIBRARY is the small NCCL of the tests, and PLUGIN is the real net plug-in.
program=$1
export LOCKSTEP_NCCL_PLAYED=1
export LOCKSTEP_NCCL=$2 LOCKSTEP_NCCL_PLUGIN=$3
export LOCKSTEP_NCCL_SHM_MIB=0 # the small NCCL takes none of /dev/shm
corpus=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../corpus/nccl" && pwd)
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../cli/expect.sh"

touch started

# Good cases pass, with faults of the rank, of its process, and of NCCL's network.
expect_match 0 '60 cases .* 0 failing' "$program" fuzz --lane nccl --seed 1 --cases 60 --faults none
expect_match 0 ' message_delay [0-9]' "$program" fuzz --lane nccl --seed 1 --cases 30 --faults message_delay --verbose
expect_match 0 ' payload_flip [0-9]' "$program" fuzz --lane nccl --seed 2 --cases 150 --faults payload_flip --verbose
expect_match 0 ' link_reset [0-9]' "$program" fuzz --lane nccl --seed 3 --cases 12 --faults link_reset --verbose
expect_match 0 ' rank_(exit|pause) [0-9]' "$program" fuzz --lane nccl --seed 4 --cases 12 --faults rank_exit,rank_pause --verbose

# A planted bug is found, so that a run without a finding is meaningful.
expect_match 71 'seeded:C01' "$program" fuzz --lane nccl --subject seeded:C01 --seed 5 --cases 200 --shrink-time 2
# ci/gpu begins with this case.
expect_match 71 'seeded:C01' "$program" replay "$corpus/c01.json" --lane nccl --subject seeded:C01
expect_match 0 'subject reducer: ok' "$program" replay "$corpus/c01.json" --lane nccl

# A run in which NCCL used another algorithm or network proves nothing, whatever the gradients are.
expect_match 75 'rank 0: a collective did not go by one channel' \
  env SMALL_NCCL_PRETENDS=tree "$program" fuzz --lane nccl --seed 1 --cases 30
expect_match 75 'uses the network Socket instead of Lockstep' \
  env SMALL_NCCL_PRETENDS=socket "$program" fuzz --lane nccl --seed 1 --cases 30

# A case of another lane runs, too, and a fault that never fired is reported.
cat >case.json <<'JSON'
{"schema": 1, "program": {"world": 2, "parameters": [{"sizes": [4]}], "steps": [{"kind": "synced", "variants": [
{"forwards": [{"nodes": [{"kind": "use"}]}]}]}]}, "faults": [{"kind": "payload_flip", "rank": 0, "peer": 1, "step": 0},
{"kind": "message_delay", "rank": 1, "site": 900, "duration_us": 10}]}
JSON
expect_match 0 'rank 0 -> 1, connection 1, message 0\) never fired: no connection rank 0 -> 1 with that number' \
  "$program" replay case.json --lane nccl
expect_match 0 'never fired: the connection carried [0-9]+ messages while it was armed' "$program" replay case.json --lane nccl

# The plug-in does not count the operations of the rank itself.
sed 's/"payload_flip", "rank": 0, "peer": 1, "step": 0/"operation_error", "rank": 0, "site": 2/' case.json >error.json
expect_match 0 'fault 0 \(error, .* never fired' "$program" replay error.json --lane nccl

# If a chosen library or plug-in is not available, the program prints one line before anything runs.
expect 1 "cannot load '/no/such/nccl.so'" env LOCKSTEP_NCCL=/no/such/nccl.so "$program" fuzz --lane nccl
expect 1 'it has no ncclGetVersion' env LOCKSTEP_NCCL="$LOCKSTEP_NCCL_PLUGIN" "$program" fuzz --lane nccl
expect 1 'is not our net plug-in' env LOCKSTEP_NCCL_PLUGIN="$LOCKSTEP_NCCL" "$program" fuzz --lane nccl

# Where there is no GPU, it is played without being asked for, unless that is forbidden.
if ! compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null; then
  unset LOCKSTEP_NCCL_PLAYED
  expect 0 'no CUDA device: NCCL 2.28.9, the GPU is played' "$program" fuzz --lane nccl --seed 1 --cases 4 --faults none
  expect_match 0 '^nccl lane, subject reducer, seed 1: 4 cases .* 0 failing' "$program" fuzz --lane nccl --seed 1 --cases 4 --faults none
  expect 0 'NCCL 2.28.9, the GPU is played' "$program" doctor
  expect_match 2 '^skipped: no CUDA device \(.*\), and none is played \(LOCKSTEP_NCCL_PLAYED=0\)$' \
    env LOCKSTEP_NCCL_PLAYED=0 "$program" fuzz --lane nccl --seed 1 --cases 4 --faults none
fi

# Nothing is left behind. A plan has the number of the process that wrote it; those of processes that
# still run belong to other runs on this machine.
left=
while IFS= read -r plan; do
  number=${plan##*/lockstep-}
  [[ -d /proc/${number%%[!0-9]*} ]] || left+=" $plan"
done < <(find /dev/shm -maxdepth 1 -name 'lockstep-[0-9]*' -user "$(id -un)" -newer started 2>/dev/null)
[[ -z $left ]] || fail "plans were left behind:$left"

finish "the nccl lane runs over the small NCCL"
