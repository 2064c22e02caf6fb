#!/usr/bin/env bash
# matrix_test.sh PROGRAM SUBJECTS: tests `lockstep matrix`: the reducer is right everywhere, a planted bug shows with a
# command that replays it, subjects that crash or hang cost their own cells alone, and bad input is refused in one line.
program=$1
subjects=$2
kept=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../corpus" && pwd)
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

subject() { echo "$subjects/liblockstep_$1_subject.so"; }

# row LABEL: the row of the latest table.
row() { grep -E "^  $1  " out; }

# Positive and negative control in one run: a reducer with a planted bug beside the one without.
expect 0 "seeded:N08 (sim)" "$program" matrix --subjects reducer,seeded:N08 --cases 60 --seed 1 --corpus "$kept" \
  --out found --json matrix.json --markdown matrix.md --html matrix.html
[[ $(row 'all generated cases') =~ ' 60 right '.*[1-9]' wrong bits'.*' of 60' ]] || fail "the generated cases: $(row 'all generated cases')"
[[ $(row 'interleaved forwards and backwards') =~ ' right ' ]] || fail "interleaved programs have no row"
[[ $(grep -c '^## Kept cases$' matrix.md) -eq 1 ]] || fail "the kept cases are not in one table"
[[ $(row 'forgets_local_use') =~ ' right '.*'wrong bits' ]] || fail "a finding has no row of its own"
grep -q ' right .* right\b' out || fail "no row is right on both"
grep -q '"lockstep_matrix": 1' matrix.json || fail "the report lacks its version"
grep -q '^| all generated cases | 60 | 60 right | ' matrix.md || fail "the table in Markdown lacks a row"
grep -q '<title>.* cases on 2 subjects</title>' matrix.html || fail "the page lacks its title"

# Every command in the reports fails as its line says; the reducer passes the same cases.
commands=$(sed -n "s|^- seeded:N08, \(wrong [a-z]*\): \`\($program replay .* --subject seeded:N08\)\`$|\1: \2|p" matrix.md | sort -u)
[[ -n $commands ]] || fail "no command replays a failure"
while IFS=: read -r verdict command; do
  code=65 text="wrong bits"
  if [[ $verdict == 'wrong error' ]]; then code=71 text="wrong or missing error"; fi
  # shellcheck disable=SC2086  # words
  expect $code "FAIL: $text" $command
  # shellcheck disable=SC2086
  expect 0 "ok" ${command% --subject *}
done <<<"$commands"
[[ $commands == *found/matrix-1-* ]] || fail "no generated case is among the examples: $commands"

# PyTorch's reducer, where it is built, gets interleaved programs, too, and its own profile says what it does.
if "$program" matrix --subjects torch --cases 1 --corpus none --out torch >out 2>err; then
  expect 0 "torch (gloo)" "$program" matrix --subjects torch --interleaved --cases 12 --seed 1 --corpus none --jobs 2 --out torch
  [[ $(row 'interleaved forwards and backwards') =~ (wrong|other).*known ]] || fail "PyTorch fails no interleaved program as known"
  # `generate` makes the same cases, with either contract.
  for ((i = 0; i < 12; ++i)); do "$program" generate 1 $i --subject torch --interleaved --contract lockstep; done >interleaved.json
  grep -q '"local": true' interleaved.json || fail "no case of 12 has a forward under no_sync in a synced step"
  for ((i = 0; i < 12; ++i)); do "$program" generate 1 $i --subject torch --interleaved; done >own.json
  grep -q '"local": true' own.json || fail "no case of 12 of PyTorch's own contract interleaves"
fi

# The same command gives the same matrix.
"$program" matrix --subjects reducer,seeded:N08 --cases 60 --seed 1 --corpus "$kept" --out found --jobs 3 >again 2>err
"$program" matrix --subjects reducer,seeded:N08 --cases 60 --seed 1 --corpus "$kept" --out found --jobs 3 >out 2>err
cmp -s out again || fail "two runs differ"
"$program" matrix --subjects reducer --cases 60 --seed 1 --corpus "$kept" --out clean --json clean.json >out 2>err
# The lines behind the table explain such words.
if grep '^  ' out | grep -wE 'wrong|crash|crashes|hang|hangs|other|unknown'; then fail "the reducer is not right everywhere"; fi
grep -q '"examples"' clean.json && fail "there are examples of failures where nothing failed"

# Subjects that crash and hang: the others are not touched, and the run ends. A subject says what it lacks.
expect 0 "liblockstep_crashing_subject.so (sim)" "$program" matrix --cases 12 --seed 1 --corpus none --jobs 2 --out bad \
  --subjects "reducer,$(subject crashing),$(subject example)"
[[ $(row 'all generated cases') =~ ' '[1-9][0-9]*' right '.*[1-9]' crash'.*[1-9]' right' ]] || fail "the crash: $(row 'all generated cases')"
[[ $(row 'dynamic mode') =~ ' right '.*'not applicable' ]] || fail "what a subject lacks: $(row 'dynamic mode')"
echo '{"schema": 1, "program": {"steps": [{}, {}]}}' >one.json
mkdir one && mv one.json one/
expect 0 "hang" timeout --signal KILL 200 "$program" matrix --cases 1 --seed 1 --corpus one --jobs 2 --out bad \
  --subjects "reducer,$(subject hanging)"
[[ $(row 'regression cases') =~ ' right '.*'hang' ]] || fail "the hang: $(row 'regression cases')"

# Ctrl-C: what has run is told, and written. The reducer's cases come first; then each hang takes its whole limit.
rm -f out err  # of the command before
"$program" matrix --cases 60 --seed 1 --corpus one --jobs 1 --out bad --json cut.json --subjects "reducer,$(subject hanging)" \
  >out 2>err &
pid=$!
for ((i = 0; i < 600; ++i)); do
  [[ -s err ]] && break # it has said how many runs have ended
  sleep 0.1
done
kill -INT $pid
wait $pid
code=$?
[[ $code -eq 130 ]] || fail "Ctrl-C gave $code"
grep -q "The command was interrupted" out || fail "Ctrl-C: the table does not say that it is not whole"
[[ $(row 'all generated cases') =~ [1-9][0-9]*' right ' ]] || fail "Ctrl-C: $(row 'all generated cases')"
[[ $(row 'regression cases') =~ 'not run'$ ]] || fail "Ctrl-C: $(row 'regression cases')"
grep -q '"not run"' cut.json || fail "Ctrl-C: the report does not say what has not run"

# PyTorch's reducer is held to the contract; what its profile expects is known. Without it one line says what to do.
if [[ -x $(dirname -- "$program")/lockstep-torch ]]; then
  mkdir -p findings/torch
  cp "$kept"/torch/{forgets_local_use,later_backwards_are_local,stays_armed}.json findings/torch/
  expect 0 "torch (gloo)" "$program" matrix --subjects reducer,torch --cases 4 --seed 1 --corpus findings --out beside
  [[ $(row later_backwards_are_local) =~ ' right '.*'wrong error (known)' ]] || fail "the finding: $(row later_backwards_are_local)"
  case_file=findings/torch/forgets_local_use.json
  if "$(dirname -- "$program")"/lockstep-torch --probe 2>&1 | grep 'libtorch 1[.]13' >/dev/null; then
    for finding in forgets_local_use stays_armed; do
      [[ $(row $finding) =~ ' right '.*'wrong bits (known)' ]] || fail "the finding: $(row $finding)"
    done
    expect 65 "--subject torch --contract lockstep" "$program" replay $case_file --lane gloo --subject torch --contract lockstep
  else  # 2.4.1 and newer forget no local use, but they lay buckets out otherwise
    [[ $(row forgets_local_use) =~ ' right '.*'(known)' ]] || fail "the finding: $(row forgets_local_use)"
  fi
  expect 0 "ok" "$program" replay $case_file --lane gloo --subject torch
  # On hosts of its own it meets faults of the network: an error without the name of the rank, and no second attempt to connect.
  if "$program" doctor | grep '^lane hosts *ready' >/dev/null; then
    expect 71 "torch (hosts)" "$program" matrix --subjects torch --faults rank_exit,net_partition --netns 2 --ranks 2 --jobs 2 --out far
    fault=$(grep -m1 'before the first bucket, 2 ranks' out)
    [[ $fault =~ 'wrong error (known)' ]] || fail "a killed rank: $fault"
    # Where all processors are busy, PyTorch's ranks may give up before the partition begins, and the cell says that the fault did
    # nothing. That shows nothing of the partition, so the cells are run again, twice at the most.
    cell() { sed -n '/^net_partition: all its packets/,/^net_partition: what it sends/p' out | grep "^ *$1, 2 ranks"; }
    for attempt in 1 2 3; do
      [[ $(cell construction)$(cell 'before the first bucket') == *'did nothing'* && $attempt -lt 3 ]] || break
      expect 71 "torch (hosts)" "$program" matrix --subjects torch --faults net_partition --netns 2 --ranks 2 --jobs 2 --out far
    done
    for phase in construction 'before the first bucket'; do
      fault=$(cell "$phase")
      [[ $fault =~ 'wrong error' && ! $fault =~ 'did nothing' ]] || fail "a partition that nobody noticed: $phase: $fault"
    done
  fi
  expect 1 "has the lanes gloo and hosts alone" "$program" matrix --subjects reducer,torch --lane sim --cases 5
else
  expect 1 "ci/setup --torch" "$program" matrix --subjects reducer,torch --cases 5
fi

# Bad input.
expect 1 "--subjects is required" "$program" matrix
expect 1 "there is no planted bug 'X99'" "$program" matrix --subjects reducer,seeded:X99
expect 1 "there is no file './moon.so'" "$program" matrix --subjects ./moon.so
expect 1 "'reducer' is there twice" "$program" matrix --subjects reducer,reducer
expect 1 "--lane" "$program" matrix --subjects reducer --lane moon
expect 1 "--cases: '0' is not a whole number from 1 to" "$program" matrix --subjects reducer --cases 0
expect 1 "--jobs" "$program" matrix --subjects reducer --jobs 0
expect 1 "cannot read the folder nowhere" "$program" matrix --subjects reducer --corpus nowhere
mkdir empty
expect 1 "there is no case (*.json) in empty" "$program" matrix --subjects reducer --corpus empty
echo '{"schema": 1, "program": {"world": 1000000000}}' >empty/large.json
expect 1 "large.json: program.world" "$program" matrix --subjects reducer --corpus empty
for option in --markdown --json --html; do
  expect 1 "cannot write nowhere/file: No such file or directory" "$program" matrix --subjects reducer --corpus none $option nowhere/file
  expect 1 "cannot write empty: Is a directory" "$program" matrix --subjects reducer --corpus none $option empty
done
touch file
expect 1 "--out" "$program" matrix --subjects reducer --corpus none --out file/below
expect 1 "--contract" "$program" replay one/one.json --contract moon

finish "all passed"
