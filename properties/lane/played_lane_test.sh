#!/usr/bin/env bash
# played_lane_test.sh PROGRAM PLUGIN CACHE: the nccl lane over NCCL itself, whose GPU is played. CACHE is the folder of
# ci/nccl unless LOCKSTEP_NCCL_CACHE says otherwise; where no NCCL was fetched, it is the one that the loader finds, and the
# test is shorter. 77: there is no NCCL that can be played.
program=$1
export LOCKSTEP_NCCL_PLUGIN=$2
export LOCKSTEP_NCCL_CACHE=${LOCKSTEP_NCCL_CACHE:-$3}
unset LOCKSTEP_NCCL LOCKSTEP_NCCL_PLAYED
corpus=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../corpus/nccl" && pwd)
version=
for each in ${LOCKSTEP_NCCL_VERSION:-2.28.9 2.30.7 2.32.3 2.29.7 2.27.7 2.22.3}; do
  if [[ -e $LOCKSTEP_NCCL_CACHE/$each/lib/libnccl.so.2 ]]; then version=$each && break; fi
done
lane=(--lane nccl --played)
if [[ -n $version ]]; then
  lane+=(--nccl "$version")
else
  version=$("$program" doctor | sed -n 's/^lane nccl .*NCCL \([0-9.]*\), the GPU is played.*/\1/p')
  [[ -n $version ]] || { echo "skipped: no NCCL to play in $LOCKSTEP_NCCL_CACHE; fetch one (ci/nccl fetch 2.28.9)" && exit 77; }
fi
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../cli/expect.sh"

# A planted bug is found, so that a run without a finding is meaningful.
expect_match 71 'seeded:C01' "$program" replay "$corpus/c01.json" "${lane[@]}" --subject seeded:C01
expect_match 0 'subject reducer: ok' "$program" replay "$corpus/c01.json" "${lane[@]}"

if [[ ! -e $LOCKSTEP_NCCL_CACHE/$version ]]; then
  expect_match 0 '4 cases .* 0 failing' "$program" fuzz "${lane[@]}" --seed 1 --cases 4 --faults none
  finish "the nccl lane runs over the NCCL of this machine, $version, on a played GPU"
  exit
fi

# Good cases pass, and cases with faults of the rank and of NCCL's network.
expect_match 0 '12 cases .* 0 failing' "$program" fuzz "${lane[@]}" --seed 1 --cases 12 --faults none
expect_match 0 ' message_delay [0-9]' "$program" fuzz "${lane[@]}" --seed 1 --cases 8 --faults message_delay --verbose

# The abort of NCCL 2.23.4 hangs, so that a recovery may need a further attempt (faults/played_gpu/FINDINGS.md).
if [[ $version != 2.23.* ]]; then
  expect_match 0 ' (rank_exit|operation_stall) [0-9]' "$program" fuzz "${lane[@]}" --seed 4 --cases 4 --faults rank_exit,operation_stall --verbose

  # Ranks report a failure when NCCL has ended their communicator, which takes half a second.
  expect_match 0 'subject reducer: ok' "$program" replay "$corpus/reports-after-the-abort.json" "${lane[@]}"
fi

# Wrong arguments get one line that says what to do.
expect 1 'NCCL 2.99.1 is not in' "$program" fuzz --lane nccl --played --nccl 2.99.1
expect 1 'there is no file /no/such/nccl.so' "$program" fuzz --lane nccl --played --nccl /no/such/nccl.so
expect 1 '--played for the lane nccl' "$program" fuzz --lane gloo --played
expect 1 'is not NCCL: it has no ncclGetVersion' "$program" fuzz --lane nccl --played --nccl "$LOCKSTEP_NCCL_PLUGIN"

finish "the nccl lane runs over NCCL $version on a played GPU"
