#!/usr/bin/env bash
# run_test.sh PROGRAM tests|fuzz|planted [MODULE]: the tests of lockstep.torch, as ctest runs them. PROGRAM is `lockstep`, with the
# package lockstep-python beside it. LOCKSTEP_PYTHON names the Python, /usr/bin/python3 otherwise; exit code 77, and a line that says
# why, where it has no PyTorch.
#
#   tests     torch_reducer_test.py and torch_errors_test.py
#   fuzz      generated programs, held to the contract (LOCKSTEP_TORCH_CASES of them, 60)
#   planted   MODULE is the extension with planted bugs: each is found, and without a bug the same runs find nothing
set -euo pipefail
program=$(realpath -- "$1")
what=$2
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export LOCKSTEP_PYTHON=${LOCKSTEP_PYTHON:-/usr/bin/python3}
export PYTHONPATH=$(dirname "$program")/lockstep-python
if ! "$LOCKSTEP_PYTHON" -W ignore -c 'import torch.distributed as d; assert d.is_available()' 2>/dev/null; then
  echo "skipped: $LOCKSTEP_PYTHON cannot import torch (ci/setup --torch installs Debian's)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run_tests() { "$LOCKSTEP_PYTHON" -W ignore "$here/../torch_$1_test.py" "${@:2}"; }
# run_fuzz SEED CASES: prints the end of the report, and returns the program's exit code
run_fuzz() {
  "$program" fuzz --subject "python:$here/fuzz_wrapper.py:wrap" --seed "$1" --cases "$2" --jobs 2 --shrink-time 0 --fresh \
    --out "$work/out" >"$work/report" 2>&1
}

# Each of them within 1,000 cases; the seeds are such that it does not take that many.
find_planted() {
  local code name failed=0
  export LOCKSTEP_TORCH_EXTENSION=$1
  for name in hook-lost view-moved gradient-none zeros-are-use use-outlives-the-gradient; do
    code=0
    LOCKSTEP_TORCH_PLANTED=$name run_fuzz 11 1000 || code=$?
    if ((code >= 65 && code <= 71)); then
      echo "$name: found, exit code $code: $(grep -oE 'found: .* executions' "$work/report" | head -n 1)"
    else
      echo "FAILED: $name is not found, exit code $code" && tail -n 5 "$work/report" && failed=1
    fi
  done
  # A program that is right raises nothing, so this one shows only where something must raise.
  if LOCKSTEP_TORCH_PLANTED=error-swallowed run_tests errors test_errors_of_the_contract_and_training_on_after_them >"$work/report" 2>&1; then
    echo "FAILED: error-swallowed is not found" && failed=1
  else
    echo "error-swallowed: found by the tests of errors"
  fi
  # The controls: the same module without a bug.
  run_fuzz 11 20 || { echo "FAILED: without a bug" && tail -n 20 "$work/report" && failed=1; }
  run_tests errors test_errors_of_the_contract_and_training_on_after_them || failed=1
  return "$failed"
}

case $what in
  tests) status=0
    run_tests reducer || status=1
    run_tests errors || status=1
    exit "$status" ;;
  fuzz) run_fuzz 7 "${LOCKSTEP_TORCH_CASES:-60}" || { tail -n 30 "$work/report" && exit 1; }
    tail -n 4 "$work/report" ;;
  planted) find_planted "$(realpath -- "$3")" ;;
  *) echo "run_test.sh: unknown '$what'" >&2 && exit 1 ;;
esac
