#!/usr/bin/env bash
# component_test.sh PROGRAM: the command `component`: its list, good and bad input, a planted bug from the search to the
# replay, its report, and Ctrl-C.
program=$1
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

expect 0 "frames " "$program" component
expect 0 "1 component, 500 situations in" "$program" component frames --situations 500
expect 0 "20 components, " "$program" component all --time 1 --seed 4 --json all.json
grep -q '"component": "waits"' all.json || fail "the report has every component"
expect 1 "there is no component 'rose': give all, or some of abort, agreement, " "$program" component rose
expect 1 "there is no planted bug 'X99'" "$program" component rows --subject seeded:X99
expect 1 "--seed: 'x' is not a whole number" "$program" component rows --seed x
expect 1 "--situations: '0' is not a whole number from 1" "$program" component rows --situations 0
expect 1 "--choices" "$program" component rows --choices 1,x
expect 1 "they are the choices of one component" "$program" component rows frames --choices 1
expect 1 "cannot write none/all.json" "$program" component rows --situations 1 --json none/all.json

# U72: a rank takes a row for a possible one that it has got before.
expect 71 "FAILED: component rows: wrong or missing error" "$program" component rows --subject seeded:U72 --json bug.json
grep -q '"failing": "wrong or missing error"' bug.json || fail "the report has the failure"
choices=$(sed -n 's/^replay: .* --choices //p' out)
[[ -n $choices ]] || fail "a failure says how to replay it"
expect 71 "FAILED: component rows" "$program" component rows --subject seeded:U72 --choices "$choices"
expect 0 "nothing is wrong" "$program" component rows --choices "$choices"
expect 71 "situation 7 of seed 9; " "$program" component rows --subject seeded:U72 --seed 9

"$program" component all --time 60 >out 2>err &
pid=$!
# It is in the background, and so ignores Ctrl-C until it has set a handler.
handles_interrupt() { ((0x$(awk '/^SigCgt/ { print $2 }' /proc/$pid/status) & 2)); }
for ((i = 0; i < 300; ++i)); do
  handles_interrupt && break
  sleep 0.1
done
kill -INT $pid
code=0
wait $pid || code=$?
[[ $code -eq 130 ]] || fail "Ctrl-C gave exit code $code"
grep -q " component, " out || fail "Ctrl-C lost the summary"

finish "all passed"
