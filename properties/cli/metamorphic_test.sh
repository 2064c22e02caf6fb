#!/usr/bin/env bash
# metamorphic_test.sh PROGRAM SUBJECTS: tests runs without a model, in which every case runs once more with an option
# switched (fuzz --metamorphic): clean ones, planted bugs from the search to the replay, and wrong input.
program=$1
subjects=$2
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

expect 1 "'moon' is no option that can be switched: give all, or some of mode order" "$program" fuzz --metamorphic=moon
expect 1 "'hook_result' is no option that can be switched" "$program" fuzz --metamorphic=views,hook_result
expect 1 "leave out --against" "$program" fuzz --metamorphic --against reducer
expect 1 "--metamorphic excludes --campaign" "$program" fuzz --metamorphic --campaign folder

# The reducer passes, most cases are compared, and those that are not are counted.
expect_match 0 '^run twice, with an option switched: [0-9]+ cases \(([6-9][0-9]|100) %\)' \
  "$program" fuzz --metamorphic --cases 1000 --seed 3 --json report.json --out found
for key in metamorphic compared_whole switched not_comparable views; do
  grep -q "\"$key\"" report.json || fail "report.json has no $key"
done
grep -q "kinds\? of faults" out && fail "there are faults that nobody asked for"
expect_match 0 '^not comparable: .*a fault that may fail a step [1-9]' \
  "$program" fuzz --metamorphic --faults swarm --cases 300 --seed 3 --out found --verbose
expect 2 "run twice, with an option switched: 0 cases" "$program" fuzz --metamorphic=hook_backward --cases 1 --seed 3 --out found
expect 0 "0 failing" "$program" fuzz --metamorphic --lane gloo --cases 12 --seed 3 --out found
expect 0 "0 failing" "$program" fuzz --metamorphic --subject "$subjects/liblockstep_example_subject.so" --cases 300 --seed 3 --out found

# The case is the one without a switch, and the switch is a part of it.
"$program" generate 5 446 --faults none >plain.json
"$program" generate 5 446 --metamorphic >switched.json
grep -q '"switched": {"option": "' switched.json || fail "generate --metamorphic switches nothing"
cmp -s <(grep -v '"switched"\|"timeout_ms"' switched.json | tr -d ',\n') <(grep -v '"timeout_ms"' plain.json | tr -d ',\n') ||
  fail "--metamorphic makes another case"

# A bug that acts in view mode alone is found, made small, saved and replayed; the verdict says what was switched, and both
# values. No model has said which of them is right.
expect 65 "oracle: same with views" "$program" fuzz --metamorphic=views --subject seeded:D02 --seed 1 --time 60 --shrink-time 5 --out found
grep -qE '^rank [0-9], step [0-9], parameter p[0-9]+, element ' out || fail "the verdict does not name the element"
grep -qE '^  as the case is +0x' out || fail "the verdict lacks the first value"
grep -qE '^  with views = (true|false) +0x' out || fail "the verdict lacks the second value"
case_file=$(ls found/sim-1-*.json | grep -v found.json | head -n 1)
expect 65 "oracle: same with views" "$program" replay "$case_file" --subject seeded:D02
expect 0 "ok" "$program" replay "$case_file" --subject reducer
expect 0 "second run: with views = " "$program" show "$case_file"
expect 65 "same with views" "$program" shrink "$case_file" --subject seeded:D02 --budget 2
expect 65 "run first: 1 cases that failed in earlier runs, 1 failing" \
  "$program" fuzz --metamorphic --subject seeded:D02 --cases 1 --seed 1 --out found
expect 2 "two subjects are compared without a switched option" "$program" replay "$case_file" --against reducer
expect 1 "no means for a second run with an option switched" "$program" export --python "$case_file"
expect 1 "it runs twice" "$program" exhaust --program "$case_file"
# Another one acts with the rebuild alone.
expect 65 "oracle: same with rebuild" "$program" fuzz --metamorphic=rebuild --subject seeded:N21 --seed 1 --time 60 --shrink-time 1 --out found

# A case that has nothing to switch is inconclusive.
echo '{"schema": 1, "program": {"steps": [{}]}, "switched": {"option": "own_group"}}' >nothing.json
expect 2 "not comparable: no option to switch" "$program" replay nothing.json
echo '{"schema": 1, "switched": {"option": "hook_result"}}' >wrong.json
expect 1 "unknown value \"hook_result\"" "$program" replay wrong.json

finish "runs with an option switched find what differs, and nothing else"
