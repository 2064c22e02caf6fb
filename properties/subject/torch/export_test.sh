#!/usr/bin/env bash
# export_test.sh PROGRAM CORPUS: findings that were exported run on a Python that has torch, and say
# what FINDINGS.md says of them; a case in which PyTorch does what the contract says, says so.
# Exit code 77, and a line that says why, where no python3 has torch, or has another version.
set -uo pipefail
program=$1
corpus=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# shellcheck source=properties/subject/torch/python.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/python.sh"

version=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null)
if [[ $version != 1.13.* ]]; then
  echo "skipped: the findings are held against 1.13.1 here, but $python has PyTorch $version (ci/torch findings runs others)"
  exit 77
fi

# One process forks for all scripts; it ends when nobody writes to it any more.
coproc forks { exec "$python" "$(dirname -- "${BASH_SOURCE[0]}")/run_exported.py"; }
run_forked() {
  local code
  printf '%s\t%s\t%s\n' "$@" >&"${forks[1]}"
  # A later answer would be taken for that of the next script.
  # shellcheck disable=SC2154  # coproc sets forks_PID
  read -r -t 200 code <&"${forks[0]}" || { echo "FAILED: a script did not end within 200 s" && kill "$forks_PID"; exit 1; }
  return "$code"
}
# As a user does; `python` may be another one.
run_alone() { timeout 200 "$python" "$1" >"$2" 2>"$3"; }
run=run_forked

# expect CODE CASE TEXT...: what the case's script returns, and what it prints.
expect() {
  local code=$1 case_file=$2 got=0 text
  shift 2
  if ! "$program" export --python "$case_file" -o "$work/case.py"; then
    echo "FAILED: $case_file is not exported"
    failures=$((failures + 1))
    return
  fi
  $run "$work/case.py" "$work/out" "$work/err" || got=$?
  for text in "$@"; do
    grep -qF -- "$text" "$work/out" && continue
    echo "FAILED: the script of $case_file does not say '$text'"
    failures=$((failures + 1))
    cat "$work/out" "$work/err"
  done
  if [[ $got -ne $code ]]; then
    echo "FAILED: the script of $case_file gave exit code $got instead of $code"
    cat "$work/out" "$work/err"
    failures=$((failures + 1))
  fi
}

# On every rank the sum of its own, where the average is expected.
run=run_alone expect 1 "$corpus/torch/forgets_local_use.json" \
  "step 1, rank 1: p0 [16.0], p1 [13.0]" \
  "differs: step 1, rank 0, parameter p0, element 0: got 10.0, expected 13.0" \
  "VERDICT: differs from what the contract has"
# No error, where one is expected.
expect 1 "$corpus/torch/later_backwards_are_local.json" \
  "differs: step 0, rank 0, got: success; expected: backward 1 fails" \
  "VERDICT: differs from what the contract has"
expect 1 "$corpus/torch/refuses_undefined_sparse.json" \
  "step 0, rank 0: backward 0 fails: Expected sparse gradient to be defined."
expect 1 "$corpus/torch/counts_one_static_forward.json" \
  "step 0, rank 0: backward 0 fails: Your training graph has changed in this iteration"
# A backward of the step before is averaged, as a forward has armed it.
expect 1 "$corpus/torch/backward-of-the-step-before.json" \
  "step 1, rank 0: p0 [-3.0, 25.0, -36.0]" \
  "differs: step 1, rank 0, parameter p0, element 0: got -3.0, expected -2.0"
# A program that PyTorch runs as it is expected to: two ranks that use one parameter.
echo '{"schema": 1, "program": {"values": "general", "steps": [{}, {"zero_grad": "keep"}]}}' >"$work/fine.json"
expect 0 "$work/fine.json" "VERDICT: as the contract has it"

# A buffer that a node keeps: the broadcast of the step's second forward changes it in place; with one forward nothing is wrong.
forward='{"nodes": [{}], "outputs": [{}]}'
buffers() { echo '{"schema": 4, "program": {"world": 2, "buffers": [{"sizes": [2]}], "steps": [{}, {"variants": [{"forwards": ['"$1"']}]}]}}'; }
buffers "$forward, $forward" >"$work/two_forwards.json"
expect 1 "$work/two_forwards.json" "modified by an inplace operation" "expected: success" "VERDICT: differs"
buffers "$forward" >"$work/one_forward.json"
expect 0 "$work/one_forward.json" "VERDICT: as the contract has it"
# Forwards under no_sync, after which the reducer is prepared by hand.
echo '{"schema": 4, "program": {"world": 2, "values": "general", "options": {"manual_sync": true},
  "steps": [{}, {"kind": "no_sync", "zero_grad": "keep"}, {"zero_grad": "keep"}, {}]}}' >"$work/manual.json"
expect 0 "$work/manual.json" "VERDICT: as the contract has it"
sed -i 's/^    ddp.reducer.prepare_for_backward.*/    pass/' "$work/case.py"
run_alone "$work/case.py" "$work/out" "$work/err" && { echo "FAILED: a script that never prepares the reducer passes"; failures=$((failures + 1)); }

# Options that only newer versions have: an older one names in one line what it lacks.
version=$("$python" -c 'import torch; print(torch.__version__)')
if [[ $version == 1.* ]]; then
  expect 2 "$corpus/torch/divides_batched.json" "unexpected keyword argument 'batched_grad_copy'"
  expect 2 "$corpus/torch/ended-after-backward.json" \
    "this PyTorch has no DistributedDataParallel.finalize_backward()"
fi
# The one that has all of them, where ci/torch finds it (ci/torch --help).
pythons=${LOCKSTEP_TORCH_PYTHONS:-$(dirname -- "${BASH_SOURCE[0]}")/../../../.cache/torch/pythons}
if [[ -x $pythons/2.15.0/bin/python ]]; then
  python=$pythons/2.15.0/bin/python
  run=run_alone
  echo '{"schema": 1, "program": {"values": "general", "options": {"mode": "dynamic", "batched_grad_copy": true,
    "lazy_bucket_allocation": true, "skip_all_reduce_unused_params": true, "last_bucket_bytes": 4,
    "finalization": "after"}, "steps": [{}, {"zero_grad": "keep"}]}}' >"$work/young.json"
  expect 0 "$work/young.json" "PyTorch 2.15" "VERDICT: as the contract has it"
else
  echo "not run: scripts with young options, as there is no $pythons/2.15.0/bin/python"
fi

if [[ $failures -ne 0 ]]; then echo "$failures failed"; exit 1; fi
echo "all passed"
