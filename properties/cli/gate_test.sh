#!/usr/bin/env bash
# gate_test.sh PROGRAM FOLDER: the command `gate`, with Lockstep's reducer and with libraries of FOLDER that differ in the place of
# the division: what it records, what it finds, what it refuses, and bad input.
program=$1
library() { echo "$libraries/liblockstep_$1_subject.so"; }
libraries=$2
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

# Lockstep's reducer has the same bits in the simulator and over Gloo, and on every platform.
expect 0 "gate: 6 cases with" "$program" gate record own --cases 6 --label any
expect 0 "have the recorded bits (any)" "$program" gate check own --label any
expect 0 "have the recorded bits (any)" "$program" gate check own --label any --lane gloo
expect 0 "have the bits that own/any.json has already" "$program" gate record own --label any
expect 0 "recorded in own/$(uname -s | tr A-Z a-z)-$(uname -m).json" "$program" gate record own
grep -q '"step 0, p0": "[0-9a-f]\{16\}: the average, ' own/any.json || fail "a record says what makes the bits"

# A bug in the reducer is no change of bits: nothing is recorded, and the check ends as a replay does.
expect 71 "wrong or missing error (oracle: answer)" "$program" gate check own --label any --subject seeded:C01
expect 65 "wrong bits (oracle: bits)" "$program" gate record bug --subject seeded:B01
[[ ! -e bug ]] || fail "a reducer that is wrong has a record"

# A change that divides after the sum, and not before: right for a reducer that may add as it likes, and other bits.
expect 0 "gate: 24 cases with" "$program" gate record free --subject "$(library example)" --values exact
expect 0 "have the recorded bits" "$program" gate check free --subject "$(library example)" --values exact
expect 65 "but it is divided after the sum and not before" \
  "$program" gate check free --subject "$(library divides_after)" --values exact
grep -q '^FAIL: 2[0-9] of 24 cases have other bits than free/' out || fail "most cases tell the two apart"
expect 1 "give the reason with --why" "$program" gate record free --subject "$(library divides_after)" --values exact
expect 0 "24 cases with" "$program" gate record free --subject "$(library divides_after)" --values exact --why "divides after"
grep -q '"why": "divides after"' free/*.json || fail "the record keeps the reason"
expect 0 "have the recorded bits" "$program" gate check free --subject "$(library divides_after)" --values exact
expect 65 "have other bits" "$program" gate check free --subject "$(library example)" --values exact
# Sums where averages are due are no other rounding.
expect 65 "wrong bits (oracle: bits)" "$program" gate check free --subject "$(library undeclared_sums)" --values exact
expect 69 "two runs gave different bits" "$program" gate record unsteady --subject "$(library unsteady)" --values exact

# Bad input.
rm own/cases/000.json
expect 65 "000.json: it is in the record, and its file is gone" "$program" gate check own --label any
cp own/cases/001.json own/cases/100.json
expect 65 "100.json: it is not in the record" "$program" gate check own --label any
expect 2 "there is no record own/2.15.json (labels there: any, linux-" "$program" gate check own --label 2.15
expect 1 "--label: it names a file" "$program" gate check own --label ../any
echo '{"gate": 2}' >own/new.json
expect 1 "own/new.json: a newer Lockstep has written it" "$program" gate check own --label new
echo '{"gate": 1, "changes": [], "cases": {"000.json": {"step 0, p0": "12"}}}' >own/torn.json
expect 1 "own/torn.json: 'step 0, p0' of 000.json has no bits" "$program" gate check own --label torn
echo '[' >own/bad.json
expect 1 "own/bad.json: it is no record of lockstep gate" "$program" gate check own --label bad
echo '{' >own/cases/001.json
expect 1 "own/cases/001.json" "$program" gate check own --label any
expect 1 "gate record --help" "$program" gate record
expect 1 "--cases: '0' is not a whole number from 1" "$program" gate record own --cases 0
expect 1 "cannot" "$program" gate record /proc/none --cases 1
finish "gate: good"
