# Functions for tests of the program: source this file, do not run it. Afterwards the shell is in a
# folder of its own, which is removed at the end.
#
#   expect CODE TEXT COMMAND...         the exit code, and a text in the output; code 1 means one line on standard error
#   expect_match CODE REGEX COMMAND...  the same with an extended regular expression
#   fail TEXT                           notes a failure, with the output of the latest command
#   finish TEXT                         prints TEXT and ends with 0 when nothing failed, else with 1
#
# The latest command's output stays in the files out and err.
# shellcheck shell=bash
set -uo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
  echo "FAILED: $1"
  cat out err
  failures=$((failures + 1))
}

expect() { expect_by -F "$@"; }
expect_match() { expect_by -E "$@"; }

# expect_by OPTION-OF-GREP CODE TEXT COMMAND...
expect_by() {
  local how=$1 code=$2 text=$3 got=0
  shift 3
  "$@" >out 2>err || got=$?
  if ((got != code)); then
    fail "$* gave exit code $got instead of $code"
  elif ! grep -q "$how" -- "$text" out err; then
    fail "$* does not say '$text'"
  elif ((code == 1 && $(wc -l <err) != 1)); then
    fail "$* complains in more than one line"
  fi
}

finish() {
  if ((failures > 0)); then
    echo "$failures failed"
    exit 1
  fi
  echo "$1"
}
