#!/usr/bin/env bash
# nccl_orders_test.sh LOCKSTEP SMALL_NCCL PLUGIN CACHE: `lockstep orders` drives NCCL: the small one of the tests, and NCCL itself in a
# version that ci/nccl has fetched into CACHE, with the GPU played on the host. Nothing of that is taken for NCCL's order. Exit code 77
# where no Python here has NumPy.
program=$(realpath -- "$1")
small=$(realpath -- "$2")
plugin=$(realpath -- "$3")
cache=${LOCKSTEP_NCCL_CACHE:-$4}
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../cli/expect.sh"

for candidate in ${LOCKSTEP_PYTHON:-python3 /usr/bin/python3}; do
  if "$candidate" -c 'import numpy' 2>/dev/null; then
    export LOCKSTEP_PYTHON=$candidate
    break
  fi
done
if ! "${LOCKSTEP_PYTHON:-python3}" -c 'import numpy' 2>/dev/null; then
  echo "skipped: no python3 here has NumPy (ci/setup --torch installs Debian's)"
  exit 77
fi
unset LOCKSTEP_NCCL LOCKSTEP_NCCL_PLAYED LOCKSTEP_NCCL_ONE_GPU

measure() { "$program" orders --library nccl --sizes 1,6,1000 --calls 2 "$@"; }
# played FILE: as measure, with this NCCL on a played GPU
played() { LOCKSTEP_NCCL_PLAYED=1 LOCKSTEP_NCCL=$1 measure "${@:2}"; }
ring='0\+\(1\+2\); \(0\+2\)\+1; \(0\+1\)\+2'

# The small NCCL sends through our plug-in alone.
export NCCL_NET=Lockstep NCCL_NET_PLUGIN=$plugin
expect_match 0 "^  1\.\.1000 +every call +$ring  \[NCCL's ring" played "$small" --ranks 3 --collective all_reduce
grep -qF "3 ranks, measured ON A PLAYED GPU, whose kernels are Lockstep's" out || fail "the table does not say whose kernels added"
grep -qF "not compared with recorded orders: nccl 2.28.9 was measured ON A PLAYED GPU" out || fail "it is compared with recorded orders"
expect_match 0 "^  3\.\.999 +every call +$ring  \[" played "$small" --ranks 3 --collective reduce_scatter_block
expect 1 "its sums are not recorded" played "$small" --ranks 3 --record record.txt
[[ ! -e record.txt ]] || fail "sums of a played GPU were recorded"
expect 1 "has no 'broadcast'" played "$small" --collective broadcast
unset NCCL_NET NCCL_NET_PLUGIN

# What is missing is said in one line.
expect 1 "LOCKSTEP_NCCL: there is no file ./nowhere.so" env LOCKSTEP_NCCL=./nowhere.so "$program" orders --library nccl
expect 1 "pip install nvidia-nccl-cu12==0.0.1 nvidia-cuda-runtime-cu12 numpy" "$program" orders --library nccl==0.0.1
expect 1 "the played GPU cannot be loaded" env LOCKSTEP_PLAYED_GPU="$plugin" LOCKSTEP_NCCL_PLAYED=1 LOCKSTEP_NCCL="$small" "$program" orders --library nccl
if ! compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null; then
  expect_match 2 '^lockstep: .*nccl with 3 ranks: NCCL needs a GPU for each rank, and .*measure NCCL on a machine with NVIDIA GPUs' \
    env LOCKSTEP_NCCL="$small" "$program" orders --library nccl --ranks 3
fi

for version in 2.28.9 2.30.7 2.32.3 2.29.7 2.27.7 2.22.3; do
  library=$cache/$version/lib/libnccl.so.2
  [[ -e $library ]] || continue
  expect_match 0 "^nccl $version, all_reduce float32, 3 ranks, measured ON A PLAYED GPU" played "$library" --ranks 3 --collective all_reduce
  grep -qE "every call +$ring  \[NCCL's ring" out || fail "NCCL $version on a played GPU does not add in the order of its ring"
  finish "orders of NCCL $version, and of a small NCCL, on a played GPU: well"
  exit
done
finish "orders of a small NCCL on a played GPU: well; no NCCL was fetched (ci/nccl fetch 2.28.9)"
