# Shared by the tests of the scripts in ci/: source it, do not run it. A test is a list of claims; the first one that
# does not hold ends it with exit code 1, and the output that was judged is shown.
#
#   $scratch                 an empty folder of the test's own, removed at its end
#   run COMMAND...           runs it; its output (both streams) is in $output, its exit code in $code
#   expect_code N            ... was N
#   expect_text REGEX        some line of the output matches
#   expect_no_text REGEX     no line does
#   expect_lines N           there are N lines
#   claim TEXT               names what comes next, for the message
# shellcheck shell=bash
set -euo pipefail
unset CDPATH

scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-test.XXXXXX")
export LOCKSTEP_LOGS=$scratch/logs
trap 'rm -rf "$scratch"' EXIT
output=
code=0
claims=0
current="before the first claim"

claim() {
  current=$1
  claims=$((claims + 1))
}

fail() {
  printf 'FAILED: %s\n  %s\n--- exit code %s, output:\n%s\n---\n' "$current" "$1" "$code" "$output" >&2
  exit 1
}

run() {
  code=0
  output=$("$@" 2>&1 </dev/null) || code=$?
}

expect_code() { [[ $code == "$1" ]] || fail "expected exit code $1"; }
expect_text() { grep -qE -- "$1" <<<"$output" || fail "expected a line like: $1"; }
expect_no_text() { ! grep -qE -- "$1" <<<"$output" || fail "expected no line like: $1"; }
expect_lines() { [[ $(grep -c '' <<<"$output") == "$1" ]] || fail "expected $1 lines"; }

finish() { printf 'all %d claims hold\n' "$claims"; }
