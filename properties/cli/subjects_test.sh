#!/usr/bin/env bash
# subjects_test.sh PROGRAM SUBJECTS: runs subjects that end, hang or damage the process that runs
# them, or the one that opens them. Each is reported correctly within a limit; the good one passes.
program=$1
subjects=$2
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

subject() { echo "$subjects/liblockstep_$1_subject.so"; }

fuzz() { # fuzz SUBJECT OPTION...
  local name=$1
  shift
  timeout --signal KILL 100 "$program" fuzz --subject "$(subject "$name")" --seed 1 --shrink-time 1 --out found "$@"
}

expect 0 "0 failing" fuzz example --time 2 --jobs 2

# Gradients are held to the scale that a subject declares: the right ones pass, and the others are found.
for name in sums divides_after; do expect 0 " 0 failing" fuzz "$name" --lane sim --cases 400 --jobs 2; done
for name in false_sums false_division undeclared_sums; do
  expect 65 "wrong bits (oracle: bits" fuzz "$name" --lane sim --cases 400 --jobs 2
done

# A worker that has exited is not done, whatever its exit status.
expect 68 "exited with status 0, without having said that it was done" fuzz exiting --time 20 --jobs 2
expect 68 "closed its connection" fuzz closing --time 20 --jobs 2
expect 68 "wrote to a descriptor" fuzz scribbling --time 20 --jobs 2
case_file=$(ls -t found/sim-1-*.json | grep -v found.json | head -n 1)  # the newest
expect 68 "wrote to a descriptor" timeout --signal KILL 60 "$program" replay "$case_file" --subject "$(subject scribbling)"
expect 0 "ok" "$program" replay "$case_file" --subject "$(subject example)"
expect 68 "sent signal 15" fuzz signalling --time 20 --jobs 2

# The command that is printed ends as the fuzzing did, and so does the case alone, which keeps its subject and its lane; files of
# two subjects have two names.
replays() { # replays CODE TEXT SUBJECT OPTION...
  local code=$1 text=$2 name=$3 line case_file
  shift 3
  expect "$code" "$text" fuzz "$name" --time 60 --jobs "${jobs:-2}" --fresh "$@"
  line=$(sed -n 's/^replay: //p' out)
  case_file=$(sed -n 's/^case:   //p' out)
  [[ $case_file == *-liblockstep_${name}_subject-????.json ]] || fail "the case of $name has the name $case_file"
  expect "$code" "$text" timeout --signal KILL 100 bash -c "$line"
  expect "$code" "$text" timeout --signal KILL 100 "$program" replay "$case_file"
}
replays 65 "FAIL: wrong bits" stale
replays 65 "FAIL: wrong bits" two_bugs
replays 65 "FAIL: wrong bits" first_hook
replays 71 "although a peer must raise an error" swallowing
jobs=1 replays 71 "suspect: rank 0" skipping  # with two, which of two cases is found first depends on time
replays 68 "FAIL: crash" crashing
replays 68 "FAIL: crash" exiting
replays 70 "nobody frees, although destroy() was called on every rank" leaking
expect 0 " 0 failing" fuzz example --cases 2000 --jobs 2 --fresh
# One that prints without end fills nothing: of each of two processes a megabyte comes out, and the end.
expect 0 " 0 failing" fuzz printing --cases 60 --jobs 2 --fresh
grep -q "bytes are left out" out || fail "it is not told that output is left out"
[[ $(stat -c %s out) -lt 4000000 ]] || fail "$(stat -c %s out) bytes of output come through"
# Making it small keeps the error, and its text; it ended in a case that has to raise another one.
replays 71 "the stream cannot be captured" refusing
grep -q "FAIL: an error without a reason (oracle: error" out || fail "the error is told as something else"
expect 71 "the stream cannot be captured" "$program" replay "$(ls found/sim-1-*refusing*.json | grep -v found.json | head -n 1)" --in-process
expect 65 "FAIL: wrong bits" "$program" replay "$(ls found/sim-1-*stale*.json | grep -v found.json | head -n 1)" --in-process
expect 68 "where it was:" "$program" replay "$(ls found/sim-1-*crashing*.json | grep -v found.json | head -n 1)"
grep -q "liblockstep_crashing_subject.so+0x" out || fail "the stack does not name the library"

# A reducer that adds, divides and lays out its buckets otherwise: its values are right, and three others' are not.
expect 0 " 0 failing" fuzz one_bucket --cases 600 --jobs 2 --values exact
grep -q "exact values alone" out || fail "the summary does not say what was judged"
expect_match 65 "FAIL: (wrong bits|wrong collectives)" fuzz one_bucket --cases 600 --jobs 2
replays 65 "FAIL: " unrolled --values exact
replays 65 "FAIL: " keeping --values exact
replays 65 "FAIL: wrong bits" halving --values exact
# Both runs of a case leave the ranks with the same differences.
expect 65 "FAIL: ranks end with different gradients" fuzz keeping --cases 600 --jobs 2 --metamorphic --fresh
expect 1 "leave out --against" fuzz stale --cases 5 --values exact --against reducer

# A case file of nonsense, and one of somebody else's.
sed 's/"lane": "sim"/"lane": "moon"/' "$(ls found/sim-1-*stale*.json | grep -v found.json | head -n 1)" >moon.json
expect 1 "found_with names a lane" "$program" replay moon.json
sed 's/"lane": "sim"/"line": "sim"/' moon.json | sed 's/"lane"/"line"/' >line.json
expect 1 "unknown field" "$program" replay line.json

# These run on real sockets, with ranks as threads of the worker and as processes.
expect 68 "crash" fuzz exiting --lane gloo --time 20 --jobs 2

# The time is over while a case is in flight: the case still has its limit.
expect 66 "gave no answer within" fuzz hanging --time 1 --jobs 2
grep -q "the time is over; waiting for" err || fail "the status line does not say what the run waits for"

# Ctrl-C interrupts the case: then the run proves nothing, and names the case.
"$program" fuzz --subject "$(subject hanging)" --seed 1 --time 60 --jobs 1 --json cut.json --out found --fresh >out 2>err &
pid=$!
sleep 3
kill -INT $pid
wait $pid
code=$?
[[ $code -eq 2 ]] || fail "a case that was cut off gave $code"
grep -q 'inconclusive: case [0-9]* of seed 1 was interrupted' out || fail "the case that was cut off is not named"
grep -q '"inconclusive"' cut.json || fail "the report does not have the case that was cut off"
[[ -s $(ls found/sim-1-*.unanswered.json) ]] || fail "the case that was cut off is not saved"
# So it does where the case is one of an earlier run.
"$program" fuzz --subject "$(subject hanging)" --seed 1 --time 60 --jobs 1 --out found >out 2>err &
pid=$!
sleep 2
kill -INT $pid
wait $pid
code=$?
[[ $code -eq 2 ]] || fail "an earlier case that was cut off gave $code"
grep -q 'inconclusive: found/sim-1-[0-9]*-liblockstep_hanging.*.json' out || fail "the earlier case that was cut off is not named"

# Libraries that fail while they are opened harm nothing else.
for name in crashing_library aborting_library exiting_library looping_library; do
  expect 1 "while its constructors ran" fuzz "$name" --time 2
done
expect 1 "in lockstep_subject_entry()" fuzz crashing_entry --time 2
expect 1 "--against: the subject" "$program" fuzz --against "$(subject exiting_library)" --time 2

finish "every subject is reported as what it is"
