#!/usr/bin/env bash
# demo_test.sh PROGRAM: `lockstep demo` finds the planted bug, replays it, passes without it, and leaves nothing behind.
program=$(realpath -- "$1")
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

mkdir temporary
export TMPDIR=$work/temporary
expect 0 "FAIL: wrong bits" "$program" demo
[[ $(grep -c '^\$ lockstep ' out) == 3 ]] || fail "it does not show three commands"
[[ $(grep -c '^FAIL: wrong bits' out) == 2 ]] || fail "the bug is not seen twice"
grep -q '^sim lane, subject reducer: ok' out || fail "the reducer without the bug does not pass"
for text in 'python:mine.py:wrap' 'libmine.so' 'does not matter: '; do
  grep -qF -- "$text" out || fail "it does not say '$text'"
done
[[ -z $(ls -A temporary) ]] || fail "it leaves $(ls temporary)"

export TMPDIR=$work/none
expect 1 "no temporary folder can be made" "$program" demo
expect 1 "'more' was not expected" "$program" demo more
finish "the demonstration shows a bug, its small case, and the reducer without it"
