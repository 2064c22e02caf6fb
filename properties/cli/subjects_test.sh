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
grep -q 'inconclusive: found/sim-1-[0-9]*.json' out || fail "the earlier case that was cut off is not named"

# Libraries that fail while they are opened harm nothing else.
for name in crashing_library aborting_library exiting_library looping_library; do
  expect 1 "while its constructors ran" fuzz "$name" --time 2
done
expect 1 "in lockstep_subject_entry()" fuzz crashing_entry --time 2
expect 1 "--against: the subject" "$program" fuzz --against "$(subject exiting_library)" --time 2

finish "every subject is reported as what it is"
