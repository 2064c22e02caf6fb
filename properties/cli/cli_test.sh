#!/usr/bin/env bash
# cli_test.sh PROGRAM SUBJECTS: tests the program's output and exit codes for good and bad input.
# Wrong input gives one line, the right exit code and no incomplete file.
program=$1
subjects=$2
kept=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../corpus" && pwd)
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

expect 0 "Exit codes" "$program" --help
expect 1 "--help" "$program"
expect 1 "--wrong" "$program" fuzz --wrong
expect 1 "--lane" "$program" fuzz --lane moon
expect 1 "LOCKSTEP_NCCL_NET is 'ib'" env LOCKSTEP_NCCL_NET=ib "$program" fuzz --lane nccl
expect 1 "cannot load '/no/such/nccl.so'" env LOCKSTEP_NCCL=/no/such/nccl.so "$program" fuzz --lane nccl
expect 1 "parameters on a GPU" "$program" fuzz --lane nccl --subject "$subjects/liblockstep_example_subject.so"
if ! compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null; then
  for command in "fuzz" "replay static.json" "shrink static.json"; do
    echo '{"schema": 1, "program": {"options": {"mode": "static"}}}' >static.json
    # shellcheck disable=SC2086  # two words
    expect 2 "skipped: no CUDA device" env LOCKSTEP_NCCL_PLAYED=0 "$program" $command --lane nccl
  done
fi

# Text that is no number, and numbers outside of their limits, are refused with the value and the
# limits.
for value in nan inf -1 0 1e300 1s 0x10; do
  expect 1 "--time: '$value' is not a number of seconds above 0 up to 31536000" "$program" fuzz "--time=$value"
done
for value in nan -nan 1e300 -1; do
  expect 1 "--shrink-time: '$value' is not a number of seconds from 0 up to" "$program" fuzz "--shrink-time=$value"
  expect 1 "--budget: '$value' is not a number of seconds above 0 up to" "$program" shrink "--budget=$value" case.json
done
for value in -1 18446744073709551616 1.5 0x10; do
  expect 1 "--seed: '$value' is not a whole number from 0 to 18446744073709551615" "$program" fuzz "--seed=$value"
done
expect 1 "--cases: '0' is not a whole number from 1 to" "$program" fuzz --cases 0
expect 0 "seed 18446744073709551615: 5 cases" "$program" fuzz --cases 5 --seed 18446744073709551615

# What this machine can run.
expect 0 "lane sim       ready" "$program" doctor
expect 0 "lane gloo      ready: 4 processes at once" "$program" doctor
expect 0 "ci/nccl fetch" env LOCKSTEP_NCCL_CACHE=none "$program" doctor
mkdir -p nccls/2.28.9/lib nccls/2.27.7/lib && touch nccls/2.28.9/lib/libnccl.so.2 nccls/2.27.7/lib/libnccl.so.2
expect 0 "nccl versions  ready: 2.27.7, 2.28.9 " env LOCKSTEP_NCCL_CACHE=nccls "$program" doctor
expect_match 0 '^lane hosts     (ready|no): ' "$program" doctor
if ! compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null; then
  expect 0 "gpu            no: " "$program" doctor
  expect 0 "lane nccl      no: " env LOCKSTEP_NCCL_PLAYED=0 "$program" doctor
  expect_match 0 '^lane nccl      no: .*cannot load .*; `ci/nccl fetch 2.28.9` brings an NCCL' \
    env LOCKSTEP_NCCL=/no/such/nccl.so "$program" doctor
fi

# Arrays of NumPy: two ranks with the floats 1 and 3 have the average 2; the sum 4 is a mistake.
npy() {  # FILE BYTES..., one float
  printf '\x93NUMPY\x01\x00\x3b\x00%s' "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }  " >"$1"
  printf '%b' "$2" >>"$1"
}
npy one.npy '\x00\x00\x80\x3f'
npy two.npy '\x00\x00\x00\x40'
npy three.npy '\x00\x00\x40\x40'
npy four.npy '\x00\x00\x80\x40'
npy noise.npy '\x12\x34\x56\x70'
expect 0 "two.npy: the average, in any order of additions" "$program" explain-bits two.npy --rank one.npy --rank three.npy
expect 65 "but it is the sum and not the average" "$program" explain-bits four.npy --rank one.npy --rank three.npy
expect 2 "nothing that is known here gives these bits" "$program" explain-bits noise.npy --rank one.npy --rank three.npy
expect 1 "--nccl-chunk: 5000 is not a multiple of 4096" "$program" explain-bits two.npy --rank one.npy --rank three.npy --nccl-chunk 5000
expect 1 "none.npy: there is no such file" "$program" explain-bits two.npy --rank none.npy
expect 1 "--rank is required" "$program" explain-bits two.npy
expect 0 "two ranks have one order" "$program" explain-bits two.npy --rank one.npy --rank three.npy
# No library is measured here: what is wrong is said before.
expect 0 "| mpich | 5.0.2 | all_reduce | 3 to 6 |" "$program" orders --recorded
expect 1 "--library is required" "$program" orders
expect 1 "no adapter for the library 'nonesuch': give one of" "$program" orders --library nonesuch
expect 1 "pip install mpich==0.0.1 mpi4py numpy" "$program" orders --library mpich==0.0.1
expect 1 "there is no dtype 'float8' here" "$program" orders --library mpich --dtype float8
expect 1 "not in range" "$program" orders --library mpich --ranks 1
echo text >text.npy
# Pages are files of their own; a place that cannot be written is an error.
expect 0 "excluded at 95 %: a bug that fails one of" "$program" fuzz --lane sim --cases 200 --seed 3 --html run.html
expect 0 "schedules by policy, in 13 cases: pos 100 %" "$program" fuzz --lane sim --cases 200 --seed 3 --policy pos --verbose
expect 1 "luck not in {default,random_walk,stay_biased,round_robin,pos,pct,delay_bounded,urw,surw}" "$program" fuzz --cases 1 --policy luck
grep -q '<title>A fuzz run without a failure</title>' run.html || fail "fuzz --html writes a page"
"$program" fuzz --lane sim --cases 20 --seed 3 --html none/run.html >out 2>err; (($? == 1)) || fail "a page that cannot be written is an error"
grep -q "cannot write none/run.html" err || fail "fuzz says which page cannot be written"
"$program" generate 3 5 -o five.json
expect 1 "none/case.html" "$program" replay five.json --html none/case.html

# How the traffic grows with the number of ranks.
expect_match 0 '^pass, growth +W\^1\.[0-9]+ +W\^1\.' "$program" scaling --ranks 16,8 --json scaling.json
grep -q '"phase": "exit of a rank"' scaling.json || fail "the report of scaling lacks a phase"
expect 1 "not in range" "$program" scaling --ranks 8,2
expect 1 "cannot write none/scaling.html" "$program" scaling --ranks 8 --html none/scaling.html

# Evaluations: measured, continued, compared.
expect 0 "2 bugs, 4 trials of at most 500 cases" "$program" eval --bugs N08,R02 --trials 2 --cases 500 --log eval.jsonl --json eval.json
[[ $(wc -l <eval.jsonl) == 5 ]] || fail "the log of an evaluation has a line for each trial"
grep -q '"restricted_mean_executions"' eval.json || fail "the report of an evaluation has figures"
printf '{"bug":"N08","se' >>eval.jsonl  # a crash in the middle of a line
expect 0 "2 bugs, 6 trials" "$program" eval --bugs N08,R02 --trials 3 --cases 500 --log eval.jsonl
[[ $(wc -l <eval.jsonl) == 7 ]] || fail "an evaluation goes on where its log ends"
expect 0 "no difference shown" "$program" eval --compare eval.jsonl eval.jsonl
expect 2 "not found in every trial: U34" "$program" eval --bugs U34 --trials 1 --cases 1 --log one.jsonl
expect 1 "the log eval.jsonl is of another evaluation" "$program" eval --bugs N08 --trials 1 --cases 7 --log eval.jsonl
expect 1 "the evaluations have other limits" "$program" eval --compare eval.jsonl one.jsonl
expect 1 "line 1 of the log is not one of an evaluation" "$program" eval --bugs N08 --log text.npy
expect 1 "cannot read none.jsonl" "$program" eval --compare none.jsonl eval.jsonl
expect 1 "there is no planted bug 'X99'" "$program" eval --bugs X99 --log x.jsonl
expect 1 "--trials: '0' is not a whole number from 1" "$program" eval --trials 0
expect 1 "--divisor: 4294967298 is too large" "$program" explain-bits two.npy --rank two.npy --divisor 4294967298
expect 1 "--offset and --count: no buffer" "$program" explain-bits two.npy --rank two.npy --count 18446744073709551615
expect 1 "are too few for the array" "$program" explain-bits two.npy --rank two.npy --offset 2 --count 2
expect 1 "text.npy: it is not an array that numpy.save() wrote" "$program" explain-bits two.npy --rank text.npy

# A case file with invalid numbers is refused, not corrected.
echo '{"schema": 1, "program": {"world": 1000000000}}' >large.json
expect 1 "large.json: program.world: expected a whole number from 1 to" "$program" replay large.json
expect 1 "found 1000000000" "$program" show large.json

# Text that cannot be written to standard output goes to standard error, and the exit code is not 0.
if [[ -w /dev/full ]]; then
  "$program" fuzz --cases 20 --seed 1 >/dev/full 2>err
  [[ $? -eq 1 ]] || fail "a full standard output gave another exit code than 1"
  grep -q "cannot write to standard output: No space left on device" err || fail "no message says that the output is full"
  grep -q "seed 1: 20 cases in" err || fail "the summary is lost"
  "$program" --help >/dev/full 2>err
  [[ $? -eq 1 ]] || fail "a help text that was lost gave another exit code than 1"
  "$program" fuzz --subject seeded:R01 --seed 5 --time 60 --shrink-time 1 >/dev/full 2>err
  [[ $? -eq 65 ]] || fail "a full standard output hides the exit code of a failure"
  grep -q "^replay: " err || fail "the failure is lost"
fi
"$program" fuzz --cases 20 --seed 1 >&- 2>err
[[ $? -eq 1 ]] || fail "a closed standard output gave another exit code than 1"
grep -q "seed 1: 20 cases in" err || fail "the summary is lost with a closed standard output"
# Nobody reads the pipe and SIGPIPE is ignored: the program that reads from it ends first.
{
  sleep 0.2
  "$program" show static.json 2>err
  echo $? >code
} | true
[[ $(cat code) -eq 1 ]] || fail "a closed pipe gave exit code $(cat code)"
[[ ! -s err ]] || fail "what should stand in a closed pipe floods standard error"

# Nor does the manual of a pager that was left.
{
  sleep 0.2
  "$program" man 2>err
} | true
[[ ! -s err ]] || fail "a closed pipe has the manual on standard error"

# What does not exist is named, with what may have been meant.
expect 1 "there is no command 'fuz': did you mean fuzz?; see $program --help" "$program" fuz
expect 1 "there is no option --subjekt: did you mean --subject?; see $program fuzz --help" "$program" fuzz --subjekt reducer
expect 1 "there is no command 'repot': did you mean report?; see $program campaign --help" "$program" campaign repot
expect 1 "--jobs must come after the command" "$program" --jobs 2 fuzz
expect 1 "'more' was not expected" "$program" doctor more

# A report without a place is refused before anything runs.
for option in --json --junit --html; do
  expect 1 "cannot write nowhere/report: No such file or directory" "$program" fuzz --time 600 $option nowhere/report
done
expect 1 "cannot write .: Is a directory; give the name of a file in it" "$program" fuzz --time 600 --json .
# Faults and schedules that a lane does not have are refused: the run would do without.
expect 1 "in the lane gloo the subject 'reducer' never has message_delay" "$program" fuzz --lane gloo --faults rank_exit,message_delay
expect 1 "in the lane sim the subject 'reducer' never has net_loss" "$program" fuzz --faults net_loss
expect 0 "0 failing" "$program" fuzz --lane all --faults message_delay --cases 2 --out found
expect 1 "so it needs the lane sim" "$program" fuzz --lane gloo --policy pct

# An evaluation cuts off no file of another kind, and names the file and what differs.
printf 'notes' >notes.txt
expect 1 "notes.txt is no log of an evaluation" "$program" eval --bugs R01 --trials 1 --log notes.txt
[[ $(cat notes.txt) == notes ]] || fail "eval has changed a file that is no log"
expect 0 "found in 1" "$program" eval --bugs U10 --trials 1 --cases 3000 --log trials.jsonl
expect 1 "the log has cases 3000, and this run 2000" "$program" eval --bugs U10 --trials 1 --cases 2000 --log trials.jsonl
echo junk >>trials.jsonl
expect 1 "trials.jsonl: line 3 of the log is not one of an evaluation" "$program" eval --bugs U10 --trials 1 --cases 3000 --log trials.jsonl
expect 1 "/dev/zero: larger than 64 MiB" "$program" eval --bugs U10 --log /dev/zero
expect 1 "/dev/zero: larger than 64 MiB" "$program" eval --compare /dev/zero trials.jsonl

expect 1 "no planted bug 'R99'" "$program" fuzz --subject seeded:R99
expect 1 "nosuch.so" "$program" fuzz --subject ./nosuch.so
expect 1 "sleepy" "$program" fuzz --faults sleepy
expect 1 "--transport" "$program" fuzz --transport ether
expect 1 "the option is --transport now" "$program" fuzz --fabric nccl
expect 1 "lane sim alone" "$program" fuzz --lane gloo --transport nccl
expect 0 "100 cases" "$program" fuzz --transport nccl --cases 100 --seed 1
for release in 2.18 2.19 2.21 2.23 2.26 2.27 2.28 2.32; do
  expect 0 "simulated NCCL $release, seed 1: 40 cases" "$program" fuzz --transport nccl --nccl "$release" --cases 40 --seed 1
done
# Programs that interleave forwards and backward calls are counted, and may be had alone.
expect_match 0 '; interleaved programs: ([5-9]|[1-3][0-9])[;]?' "$program" fuzz --cases 200 --seed 1 --out found --verbose
expect_match 0 '; interleaved programs: (1[0-9][0-9]|9[0-9])[;]?' "$program" fuzz --interleaved --cases 200 --seed 1 --out found --verbose \
  --json interleaved.json
grep -qE '"interleaved": (1[0-9][0-9]|9[0-9]),' interleaved.json || fail "the report does not count interleaved programs"
expect 1 "--interleaved: the subject" "$program" fuzz --interleaved --subject "$subjects/liblockstep_example_subject.so"
expect 1 "no NCCL '2.17': give one of 2.18 2.19 2.21 2.23 2.26 2.27 2.28 2.32" "$program" fuzz --nccl 2.17
expect 1 "no NCCL in cases on the transport host" "$program" fuzz --transport host --nccl 2.18
expect 1 "for the lanes sim and nccl" "$program" fuzz --lane gloo --nccl 2.18
expect 1 "does not say that it works on a GPU" "$program" fuzz --nccl 2.18 --subject "$subjects/liblockstep_example_subject.so"
# A found case keeps its release in the command that replays it.
expect_match 65 "^replay: .* --subject seeded:R01 --nccl 2.21$" "$program" fuzz --subject seeded:R01 --transport nccl --nccl 2.21 \
  --seed 5 --shrink-time 2 --out nccl-release
expect 1 "missing.json" "$program" show missing.json
echo '{"schema": 1, "program": {' >truncated.json
expect 1 "truncated.json" "$program" replay truncated.json
echo '{"schema": 99}' >newer.json
expect 1 "newer" "$program" show newer.json
expect 1 "nowhere" "$program" corpus check nowhere
# A file of schema 1 runs as its key says, and is written anew in the newest schema; the free text stays.
mkdir old && echo '{"schema": 1, "about": "by hand", "program": {"steps": [{}]}}' >old/case.json
expect 0 "environment: on real lanes ranks are processes; times of passes;" "$program" show old/case.json
"$program" show old/case.json >shown.txt
expect 0 "corpus: 1 of 1 files written anew, in schema 4" "$program" corpus convert old
grep -q '"about": "by hand"' old/case.json && grep -q '"processes": true' old/case.json || fail "the converted file lacks something"
"$program" show old/case.json | cmp -s - shown.txt || fail "a converted case is another one"
expect 0 "corpus: 0 of 1 files written anew" "$program" corpus convert old
cp truncated.json old/ && echo '{"schema": 1}' >old/a.json
expect 1 "truncated.json" "$program" corpus convert old
[[ $(<old/a.json) == '{"schema": 1}' ]] || fail "a file was written although another one cannot be read"
expect 1 "there is no case" "$program" corpus convert "$(mktemp -d -p .)"
echo '{"schema": 2, "environment": {"latencys": "short"}}' >unknown.json
expect 1 "environment.latencys: unknown field; did you mean \"latency\"?" "$program" show unknown.json
library=$(awk '/libc\.so/ { print $6; exit }' /proc/self/maps)  # one that is no subject
expect 1 "lockstep_subject_entry" "$program" fuzz --subject "$library"
echo '{"schema": 1, "program": {"options": {"mode": "static"}}}' >static.json
expect 1 "the case needs static (static graphs)" "$program" replay static.json \
  --subject "$subjects/liblockstep_example_subject.so"
expect 0 "VERDICT" "$program" export --python static.json
"$program" export --python static.json -o static.py
grep -q '"static_graph": *true' static.py || fail "no script was written"
expect 1 "--python" "$program" export static.json
expect 1 "missing.json" "$program" export --python missing.json
expect 1 "nowhere/static.py" "$program" export --python static.json -o nowhere/static.py

# `generate` returns the case that fuzz runs at an index with the same options; it fails as fuzz
# says.
expect 0 '"about": "generated for lane sim: seed 5, case 445"' "$program" generate 5 445
"$program" generate 5 445 >generated.json
expect 65 "planted bug R01: reached" "$program" replay generated.json --subject seeded:R01
"$program" generate 5 445 --lane gloo -o generated-gloo.json
cmp -s generated.json generated-gloo.json && fail "the lane makes no difference to generate"
"$program" generate 5 445 --faults none -o no-faults.json
grep -q '"faults"' no-faults.json && fail "--faults makes no difference to generate"
expect 1 "seed: '-1' is not a whole number" "$program" generate -1 0
expect 1 "index: '1.5' is not a whole number" "$program" generate 1 1.5
expect 1 "sleepy" "$program" generate 1 1 --faults sleepy
expect 1 "nowhere/case.json" "$program" generate 1 1 -o nowhere/case.json

# For a case that passes, replay lists the errors that ranks raised, one line per rank and step;
# also as JSON.
echo '{"schema": 1, "program": {"steps": [{}]}, "faults": [{"kind": "node_throws", "rank": 1}]}' >throws.json
expect 0 "ok (trace" "$program" replay throws.json --json throws-report.json
expect_match 0 '^  rank 0, step 0: .*' "$program" replay throws.json
expect_match 0 '^  rank 1, step 0: .*' "$program" replay throws.json
[[ $(grep -c '^  rank [01], step 0: ' out) -eq 2 ]] || fail "not one line a rank and step"
for key in verdict exit_code errors rank step error faults_fired; do
  grep -q "\"$key\"" throws-report.json || fail "throws-report.json has no $key"
done
"$program" replay static.json >out 2>err
grep -q "errors that ranks raised" out && fail "replay tells of errors where there are none"
expect 1 "nowhere/report.json" "$program" replay static.json --json nowhere/report.json

echo '{"schema": 1, "program": {"options": {"order": "bcube"}}}' >bcube.json
expect 1 "a script has no means for bcube" "$program" export --python bcube.json -o bcube.py
[[ -e bcube.py ]] && fail "a refused case left a file"

# diagnose reads flight records of ranks: clean ones, one that lacks a collective, and invalid
# files.
record() { # record RANK LINE...
  local rank=$1
  shift
  printf 'lockstep-flight-record 1\nrank %s 2\npass 1 no%%20pass%%20is%%20open\n' "$rank"
  printf 'collective %s\n' "$@"
  printf 'end %s\n' $#
}
first='0 0 bucket all_reduce 0 4 float32 completed 1 2 77 1 p0'
second='1 0 bucket all_reduce 1 4 float32 in%20flight 3 0 77 1 p1'
record 0 "$first" >rank0.record
record 1 "$first" >rank1.record
expect 0 "nothing differs" "$program" diagnose rank1.record rank0.record
record 0 "$first" "$second" >ahead.record
expect 72 "suspect: rank 1" "$program" diagnose ahead.record rank1.record
expect 72 "suspect: rank 1 (left no flight record" "$program" diagnose rank0.record
expect 1 "two flight records of rank 0" "$program" diagnose rank0.record rank0.record
expect 1 "missing.record" "$program" diagnose missing.record
expect 1 'it is no flight record' "$program" diagnose truncated.json
head -n 3 rank0.record >cut.record
expect 1 "cut.record: the flight record ends" "$program" diagnose cut.record rank1.record
: >empty.record
expect 1 "empty.record" "$program" diagnose empty.record
expect 1 "cannot read .: Is a directory" "$program" diagnose .
expect 1 "/dev/zero: larger than 512 MiB" "$program" diagnose /dev/zero
expect 0 "nothing differs" "$program" diagnose rank1.record <(cat rank0.record)
expect 1 "--help" "$program" diagnose

# A clean run writes its reports, and a folder that cannot be written is an error.
expect 0 "0 failing" "$program" fuzz --cases 300 --seed 5 --json report.json --junit report.xml --out found
for key in schema lane subject seed commit seconds cases cases_per_second failures coverage faults_fired states determinism; do
  grep -q "\"$key\"" report.json || fail "report.json has no $key"
done
grep -q '<testsuite' report.xml || fail "report.xml is not a JUnit report"
# What the reducer was doing when faults acted: a short run leaves cells empty, and says so; without faults there is no table.
expect_match 0 "^state x fault: [0-9]+ of 170 cells that can occur were not seen: " "$program" fuzz --cases 30 --seed 5 --out found --verbose
grep -q "what the reducer was doing" out && fail "the table of states is printed unasked"
expect_match 0 "^  node_throws .* -  " "$program" fuzz --cases 30 --seed 5 --out found --states
expect 0 "0 failing" "$program" fuzz --cases 30 --seed 5 --out found --states --faults none --verbose
grep -q "what the reducer was doing\|state x fault" out && fail "a run without faults has a table of states"
touch file
expect 1 "--out" "$program" fuzz --cases 10 --out file/below

# A planted bug is found, saved, replayed, described in English and shrunk; the production reducer
# passes the same case.
expect 65 "replay:" "$program" fuzz --subject seeded:R01 --time 60 --seed 5 --out found --json planted.json
grep -qE '^planted bug R01: reached [1-9][0-9]*, triggered [1-9]' out || fail "fuzz does not count the planted bug"
grep -q '"triggered": [1-9]' planted.json || fail "the report does not count the planted bug"
grep -q '^does not matter: .*the schedule' out || fail "the report does not say what does not matter"
grep -q 'does not matter.*batched_grad_copy' out && fail "the report names an option that the reducer lacks"
expect 0 "planted bug R01: reached 0, triggered 0" "$program" replay static.json --subject seeded:R01
case_file=$(ls found/sim-5-*.json | grep -v found.json | head -n 1)
expect 65 "bits" "$program" replay "$case_file" --subject seeded:R01
expect 0 "bits" "$program" replay "$case_file" --subject seeded:R01 --expect-fail
# A case keeps its subject, so that another reducer is tried only by name.
expect 65 "lane, subject seeded:R01" "$program" replay "$case_file"
expect 0 "ok" "$program" replay "$case_file" --subject reducer --trace trace.json
grep -q traceEvents trace.json || fail "no trace"
expect 2 "expected to fail" "$program" replay "$case_file" --subject reducer --expect-fail
expect 0 "dynamic mode" "$program" show "$case_file"
expect 65 "case:" "$program" shrink "$case_file" --subject seeded:R01 --budget 10
expect 2 "does not fail" "$program" shrink "$case_file" --subject reducer
# Over Gloo the program continues as lockstep-seeded, under its original name; without that program
# it says what to build.
if [[ -x $(dirname -- "$program")/lockstep-seeded ]]; then
  expect 65 "replay: $program replay" "$program" replay "$case_file" --subject seeded:R01 --lane gloo
  expect_match 65 '^planted bug R01: reached [1-9]' "$program" replay "$case_file" --subject seeded:R01 --lane gloo
fi
mkdir alone && cp "$program" alone/lockstep
expect 1 "build the target lockstep-seeded" alone/lockstep replay "$case_file" --subject seeded:R01 --lane gloo
expect 1 "build the target lockstep-seeded" alone/lockstep fuzz --subject seeded:R01 --lane all --cases 5
expect 65 "bits" alone/lockstep replay "$case_file" --subject seeded:R01

# A run begins with what earlier runs found with its subject, and with nothing else.
expect 65 "run first: 1 cases that failed in earlier runs, 1 failing" "$program" fuzz --subject seeded:R01 --time 60 --seed 6 --out found
expect 65 "0 cases in 0.0 s" "$program" fuzz --subject seeded:R01 --time 60 --seed 6 --out found
expect 65 "found:  seed 6" "$program" fuzz --subject seeded:R01 --time 60 --seed 6 --shrink-time 1 --out found --fresh
"$program" fuzz --cases 20 --seed 6 --out found >out || fail "the reducer failed"
! grep -q "run first" out || fail "the reducer ran what was found with another subject"
mkdir mended && sed 's/on subject seeded:R01/on subject reducer/' "$case_file" >mended/sim-1-1.json
echo '{"schema": 1, "prog' >mended/sim-1-2.json
expect 0 "run first: 1 cases that failed in earlier runs, 0 failing" "$program" fuzz --cases 20 --seed 6 --out mended
"$program" fuzz --cases 20 --seed 6 --out mended >/dev/null 2>err
grep -q "not run: mended/sim-1-2.json" err || fail "a torn case is not named"

mkdir corpus && cp "$case_file" corpus/
expect 0 "0 failing" "$program" corpus check corpus
# With the bug the cases fail, on one line each, in the order of the files.
cp "$case_file" corpus/another.json
expect 65 "corpus: 2 cases on subject seeded:R01, lane sim: 2 failing" "$program" corpus check corpus --subject seeded:R01
[[ $(grep -c '^sim  corpus/.*wrong bits' out) == 2 && $(grep '^sim' out | head -n 1) == *another.json* ]] ||
  fail "corpus check does not list what fails"
expect 1 "there is no file 'nobody'" "$program" corpus check corpus --subject nobody

# A case that used to fail: with its neighbours it passes on the reducer, and fails with the bug.
expect 0 "300 ok" "$program" fixed "$case_file" --subject reducer --cases 300 --seed 1 --out found
expect 0 "excluded at 95 %" "$program" fixed "$case_file" --subject reducer --cases 300 --seed 1 --out found
expect 65 "lane, subject seeded:R01" "$program" fixed "$case_file" --cases 300 --seed 1 --shrink-time 0 --out found
expect 65 "replay: $program replay" "$program" fixed "$case_file" --subject seeded:R01 --cases 300 --seed 1 --shrink-time 1 --out found
expect 1 "moon.json" "$program" fixed moon.json
# This case does not show the bug U14. Its neighbours do.
near=$kept/seeded/r02.json
expect 0 "ok" "$program" replay "$near" --subject seeded:U14
expect 65 "planted bug U14: reached" "$program" fixed "$near" --subject seeded:U14 --cases 300 --seed 6 --shrink-time 0 --out found
expect 0 "0 failing" "$program" fixed "$near" --cases 300 --seed 1 --out found

# With a full disk nothing is lost: the case is printed.
if [[ -w /dev/full ]] && [[ $(id -u) -eq 0 ]] && mkdir small && mount -t tmpfs -o size=4k tmpfs small 2>/dev/null; then
  head -c 8192 /dev/zero >small/fill 2>/dev/null
  expect 65 '"schema"' "$program" fuzz --subject seeded:R01 --time 60 --seed 5 --out small
  umount small
fi

# Subjects from shared libraries: a good one, a faulty one, and one that crashes.
expect 0 "0 failing" "$program" fuzz --subject "$subjects/liblockstep_example_subject.so" --cases 500 --seed 1 --out found
expect 68 "crash" "$program" fuzz --subject "$subjects/liblockstep_crashing_subject.so" --time 20 --seed 1 --shrink-time 3 --out found
"$program" fuzz --subject "$subjects/liblockstep_stale_subject.so" --time 20 --seed 1 --shrink-time 3 --out found >out 2>err
[[ $? -ge 65 ]] || fail "the stale subject was not found"

# Two subjects run the same cases: some agree, some differ, and some are not available.
expect 1 "--against: there is no file 'moon'" "$program" fuzz --against moon
expect 1 "only one of the two" "$program" fuzz --subject seeded:R01 --against seeded:N08
expect 1 "faults meet two subjects at different times" "$program" fuzz --against reducer --faults link_reset
expect 0 "compared with reducer: 190 programs (95 %)" "$program" fuzz --against reducer --cases 200 --seed 1 --out found
expect 73 "both contracts have" "$program" fuzz --lane sim --against seeded:N08 --time 30 --seed 2 --shrink-time 3 --out beside
case_file=$(ls beside/sim-2-*.json | grep -v found.json | head -n 1)
expect 73 "--subject reducer --against seeded:N08" "$program" replay "$case_file" --against seeded:N08
expect 73 "agreement" "$program" shrink "$case_file" --against seeded:N08 --budget 3
expect 0 "against reducer: ok" "$program" replay "$case_file" --against reducer
echo '{"schema": 1, "faults": [{"kind": "node_throws"}]}' >faulty.json
expect 2 "such a case is not compared" "$program" replay faulty.json --against reducer
expect 2 "such a case is not compared" "$program" shrink faulty.json --against reducer
if [[ -x $(dirname -- "$program")/lockstep-torch ]]; then
  expect 1 "the lanes gloo and hosts alone" "$program" fuzz --against torch --lane sim
  expect 0 "compared with torch: " "$program" fuzz --against torch --cases 12 --seed 1 --out found
  expect 73 "--subject seeded:N08 --against torch" "$program" fuzz --subject seeded:N08 --against torch --time 60 --seed 1 \
    --shrink-time 3 --out beside
  case_file=$(ls beside/gloo-1-*.json | grep -v found.json | head -n 1)
  expect 73 "  torch       0x" "$program" replay "$case_file" --subject seeded:N08 --against torch
  expect 0 "subject reducer against torch: ok" "$program" replay "$case_file" --subject reducer --against torch --lane gloo
else
  expect 1 "ci/setup --torch" "$program" fuzz --against torch
fi

# A signal ends every command in order: exit code 130, a summary, and no temporary folder.
mkdir tmp many
for ((i = 0; i < 40; ++i)); do "$program" generate 3 $i --faults none -o many/$i.json; done
echo '{"schema": 1, "program": {"steps": [{}]}, "faults": [{"kind": "operation_stall"}], "timeout_ms": 60000}' >stalled.json
# ignores_sigpipe PID
ignores_sigpipe() {
  local mask
  mask=$(awk '/^SigIgn:/ { print $2 }' "/proc/$1/status" 2>/dev/null)
  ((16#${mask:-0} & 1 << 12))
}
# interrupted SIGNAL TEXT ARGUMENT...: the text is in the output
interrupted() {
  local signal=$1 text=$2 code=0 pid
  shift 2
  TMPDIR=$work/tmp "$program" "$@" >out 2>err &
  pid=$!
  for ((i = 0; i < 200; ++i)); do
    compgen -G "$work/tmp/*/*" >/dev/null && break # it is in the middle of a case
    sleep 0.05
  done
  [[ $i -lt 200 ]] || fail "$* made no temporary folder within 10 s"
  # The programs that it starts would ignore the signals that it ignores, too.
  for process in $pid $(cat /proc/$pid/task/$pid/children 2>/dev/null); do
    if ! ignores_sigpipe $$ && ignores_sigpipe "$process"; then fail "$* ignores SIGPIPE"; fi
  done
  kill -"$signal" $pid
  wait $pid || code=$?
  if [[ $code -ne 130 ]] || [[ $(cat out) != *"$text"* ]]; then fail "SIG$signal to $* gave $code"; fi
  [[ -z $(ls -A tmp) ]] || fail "SIG$signal to $* left $(ls -A tmp)"
}
for signal in INT TERM HUP; do
  interrupted $signal "cases in" fuzz --lane gloo --faults rank_exit --time 60 --seed 1 --out found
  interrupted $signal "" replay stalled.json --lane gloo
  interrupted $signal "" shrink stalled.json --lane gloo
  interrupted $signal "corpus: interrupted after" corpus check many
done
"$program" fuzz --time 60 --seed 1 --out found >out 2>err &
pid=$!
sleep 2
kill -INT $pid
wait $pid
code=$?
if [[ $code -ne 130 ]] || ! grep -q "cases in" out; then
  fail "Ctrl-C gave $code"
fi

finish "all passed"
