#!/usr/bin/env bash
# run_test.sh PROGRAM tests|fuzz|steady|planted|races [MODULE]: the tests of lockstep.torch, as ctest runs them. PROGRAM is `lockstep`, with the
# package lockstep-python beside it. LOCKSTEP_PYTHON names the Python, /usr/bin/python3 otherwise; exit code 77, and a line that says
# why, where it has no PyTorch.
#
#   tests     torch_reducer_test.py, torch_errors_test.py, torch_options_test.py, torch_threads_test.py and torch_steady_test.py
#   fuzz      generated programs, held to the contract (LOCKSTEP_TORCH_CASES of them, 60), and a tenth as many (40 at least) with
#             numbers that round, in rank order and in the native order
#   steady    torch_steady_test.py alone (LOCKSTEP_TORCH_STEPS steps, 200)
#   planted   MODULE is the extension with planted bugs: each is found, and without a bug the same runs find nothing
#   races     MODULE is the extension, compiled with ThreadSanitizer by GCC: all tests but that of steady memory run with it, and
#             none may end with a report. A second MODULE has planted bugs: its race has to be reported
set -euo pipefail
program=$(realpath -- "$1")
what=$2
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
export LOCKSTEP_PYTHON=${LOCKSTEP_PYTHON:-/usr/bin/python3}
PYTHONPATH=$(dirname "$program")/lockstep-python
export PYTHONPATH
if ! "$LOCKSTEP_PYTHON" -W ignore -c 'import torch.distributed as d; assert d.is_available()' 2>/dev/null; then
  echo "skipped: $LOCKSTEP_PYTHON cannot import torch (ci/setup --torch installs Debian's)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run_tests() { "$LOCKSTEP_PYTHON" -W ignore "$here/../torch_$1_test.py" "${@:2}"; }
# run_fuzz SEED CASES [FUNCTION]: with this function of fuzz_wrapper.py. Returns the program's exit code; the report is in a file.
run_fuzz() {
  "$program" fuzz --subject "python:$here/fuzz_wrapper.py:${3:-wrap}" --seed "$1" --cases "$2" --jobs 2 --shrink-time 0 --fresh \
    --out "$work/out" >"$work/report" 2>&1
}
# expect_clean SEED CASES FUNCTION: prints the end of the report
expect_clean() {
  run_fuzz "$@" || { tail -n 30 "$work/report" && return 1; }
  echo "$3:" && tail -n 4 "$work/report"
}

# expect_found NAME SEED: within 1,000 cases
expect_found() {
  local code=0
  LOCKSTEP_TORCH_PLANTED=$1 run_fuzz "$2" 1000 || code=$?
  if ((code >= 65 && code <= 71)); then
    echo "$1: found, exit code $code: $(grep -oE 'found: .* executions' "$work/report" | head -n 1)"
  else
    echo "FAILED: $1 is not found, exit code $code" && tail -n 5 "$work/report" && failed=1
  fi
}

# expect_test NAME KIND TEST: for what no generated program shows: those raise nothing, and do not replace gradients.
expect_test() {
  if LOCKSTEP_TORCH_PLANTED=$1 run_tests "$2" "$3" >"$work/report" 2>&1; then
    echo "FAILED: $1 is not found by $3" && failed=1
  else
    echo "$1: found by $3"
  fi
}

find_planted() {
  failed=0
  export LOCKSTEP_TORCH_EXTENSION=$1
  expect_found hook-lost 11
  expect_found view-moved 11
  expect_found gradient-none 11
  expect_found zeros-are-use 2
  expect_test error-swallowed errors test_errors_of_the_contract_and_training_on_after_them
  expect_test use-outlives-the-gradient reducer test_a_gradient_that_was_replaced_is_not_used
  # The controls: the same module without a bug.
  run_fuzz 11 20 || { echo "FAILED: without a bug" && tail -n 20 "$work/report" && failed=1; }
  run_tests errors test_errors_of_the_contract_and_training_on_after_them || failed=1
  run_tests reducer test_a_gradient_that_was_replaced_is_not_used || failed=1
  return "$failed"
}

# with_races COMMAND...: with ThreadSanitizer in the process from its begin. Python and PyTorch are not compiled with it: it
# sees their locks, as those are pthread's, and neither their accesses nor their atomic counters. So what the extension does is
# looked at, and what they call without it is not (ignore_noninstrumented_modules).
with_races() {
  local library options
  library=$(g++ -print-file-name=libtsan.so)
  options=suppressions=$here/../../../ci/tsan.supp:halt_on_error=0:exitcode=66:die_after_fork=0:history_size=4
  options+=:report_signal_unsafe=0:ignore_noninstrumented_modules=1:log_path=$work/races
  LD_PRELOAD=$library TSAN_OPTIONS=$options:${TSAN_OPTIONS:-} OPENBLAS_NUM_THREADS=1 setarch -R "$@"
}

# count_reports: how many there are
count_reports() { cat "$work"/races.* 2>/dev/null | grep -c '^WARNING: ThreadSanitizer' || true; }

find_races() {
  local kind reports run status=0
  export LOCKSTEP_TORCH_EXTENSION=$1
  for kind in threads reducer errors options; do
    rm -f "$work"/races.*
    with_races "$LOCKSTEP_PYTHON" -W ignore "$here/../torch_${kind}_test.py" || status=1
    reports=$(count_reports)
    echo "$kind: $reports reports of ThreadSanitizer"
    ((reports == 0)) || { head -n 60 "$(find "$work" -name 'races.*' | head -n 1)" && status=1; }
  done
  [[ -n ${2:-} ]] || return "$status"
  # About one run in five orders the two threads by locks of Python's, and has no report: five of them.
  rm -f "$work"/races.*
  for ((run = 0; run < 5; ++run)); do
    LOCKSTEP_TORCH_EXTENSION=$2 LOCKSTEP_TORCH_PLANTED=busy-without-atomic with_races "$LOCKSTEP_PYTHON" -W ignore \
      "$here/../torch_threads_test.py" test_another_thread_asks_whether_a_wrapper_is_busy >"$work/report" 2>&1 || true
    if cat "$work"/races.* 2>/dev/null | grep 'lockstep_planted_flag' >/dev/null; then break; fi
  done
  if cat "$work"/races.* 2>/dev/null | grep 'lockstep_planted_flag' >/dev/null; then
    echo "busy-without-atomic: found by ThreadSanitizer"
  else
    echo "FAILED: busy-without-atomic is not found" && cat "$work/report" && status=1
  fi
  return "$status"
}

case $what in
  tests) status=0
    run_tests reducer || status=1
    run_tests errors || status=1
    run_tests options || status=1
    run_tests threads || status=1
    run_tests steady || status=1
    exit "$status" ;;
  fuzz) status=0 cases=${LOCKSTEP_TORCH_CASES:-60}
    expect_clean 7 "$cases" wrap || status=1
    expect_clean 3 $((cases > 400 ? cases / 10 : 40)) wrap_in_rank_order || status=1
    expect_clean 4 $((cases > 400 ? cases / 10 : 40)) wrap_in_rings || status=1
    exit "$status" ;;
  steady) run_tests steady ;;
  planted) find_planted "$(realpath -- "$3")" ;;
  races) find_races "$(realpath -- "$3")" "${4:+$(realpath -- "$4")}" ;;
  *) echo "run_test.sh: unknown '$what'" >&2 && exit 1 ;;
esac
