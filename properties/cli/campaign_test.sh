#!/usr/bin/env bash
# campaign_test.sh PROGRAM: campaigns without a cluster. Parts that are processes of one folder, one of them killed in the
# middle, do together what one process does alone; bad input gives one line and an exit code, and loses nothing.
program=$1
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" JOB_COMPLETION_INDEX

# json FILE EXPRESSION: what Python makes of the report r.
json() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }
log() { printf '%s/part-%04d/log.jsonl' "$1" "$2"; }
# blocks FOLDER PART: how many blocks it has recorded.
blocks() { cat "$(log "$1" "$2")" 2>/dev/null | grep -c '^{"block"'; }

# Two parts at once; part 1 is killed in the middle, and started again. Without the kill in the middle nothing is shown,
# so the test fails then.
run_part() { "$program" fuzz --campaign two --part "$1/2" --cases 3000 --seed 5 --subject seeded:N08 --block 0.1 --shrink-time 0; }
run_part 0 >part0.out 2>&1 &
first=$!
run_part 1 >part1.out 2>&1 &
second=$!
victim=
for ((i = 0; i < 1200; ++i)); do
  (($(blocks two 1) >= 2)) && break
  sleep 0.05
done
victim=$(sed -n 's/^{"start":.*"process":\([0-9]*\).*/\1/p' "$(log two 1)")
kill -9 "$victim"
wait $second
grep -q '^{"end"' "$(log two 1)" && fail "part 1 had ended before it was killed"
killed_at=$(blocks two 1)
printf '{"block":{"begin":0,"e' >>"$(log two 1)" # a crash in the middle of a line
"$program" campaign report two >out 2>err
grep -q "ended in the middle; start it again" out || fail "the report does not say that part 1 was killed"
wait $first
run_part 1 >out 2>err || (($? == 65)) || fail "part 1 does not go on"
(($(blocks two 1) > killed_at)) || fail "part 1 has not gone on"
"$program" fuzz --campaign one --part 0/1 --cases 3000 --seed 5 --subject seeded:N08 --shrink-time 0 >out 2>err
[[ $? -eq 65 ]] || fail "one process alone does not find the bug"
expect 65 "cases: 3000 of 3000 (100 %)" "$program" campaign report two --json two.json
expect 65 "cases: 3000 of 3000 (100 %)" "$program" campaign report one --json one.json
for what in 'r["cases"]' 'r["ok"]' 'r["faulted_ok"]' 'r["coverage"]' 'r["coverage_cases"]' 'r["faults_fired"]' \
  'r["determinism"]["pairs"]' '[f["index"] for f in r["failures"]]' '[(f["exit_code"], f["oracle"]) for f in r["failures"]]' \
  '{pair: c and c["size"] for pair, c in r["smallest"].items()}' 'r["notes"]'; do
  [[ $(json one.json "$what") == "$(json two.json "$what")" ]] || fail "parts and one process differ in $what"
done
[[ $(json two.json 'len(r["failures"]) > 100') == True ]] || fail "too few failures to show anything"
# And plain fuzz without a campaign counts the same features.
"$program" fuzz --cases 3000 --seed 5 --subject seeded:N08 --keep-going --shrink-time 0 --jobs 2 --json plain.json --out found >out 2>err
for what in 'r["cases"]' 'r["ok"]' 'r["faulted_ok"]' 'r["coverage"]' 'r["faults_fired"]'; do
  [[ $(json plain.json "$what") == "$(json two.json "$what")" ]] || fail "a campaign and fuzz differ in $what"
done

# Failures are counted by how they end, with a command for each that is small; the file says with which subject it was found.
"$program" fuzz --campaign single --part 0/1 --cases 1500 --seed 2 --subject seeded:R02 >out 2>err
[[ $? -eq 71 ]] || fail "the planted bug R02 is not found"
expect 71 "of them small" "$program" campaign report single
small=$(sed -n 's/^  .* replay \(single.*\.json\)$/\1/p' out | head -n 1)
expect 71 "error" "$program" replay "$small" --subject seeded:R02
expect 71 "error" "$program" replay "$small"
# A part that is complete does nothing more.
before=$(cksum <"two/part-0000/log.jsonl" | cut -d' ' -f1)
expect 65 "0 cases now, 1500 in all" run_part 0
[[ $(grep -c '^{"block"' "$(log two 0)") -gt 0 && $before != "$(cksum <"$(log two 0)" | cut -d' ' -f1)" ]] || fail "the second start is not in the log"
# More cases: the campaign goes on.
expect 65 "5 cases now, 1505 in all" "$program" fuzz --campaign two --part 0/2 --cases 3010 --subject seeded:N08 --shrink-time 0

# A folder from somebody else names a library: it is not opened, unless the user names it, too. The library of this test says
# that it was loaded by a file that it writes.
cat >loaded.cc <<'END'
#include <cstdio>
static const bool loaded = std::fclose(std::fopen("loaded", "w")) == 0;
END
${CXX:-c++} -shared -fPIC -o libloaded.so loaded.cc
cp -r single strange
sed -i "s|\"subject\": \"[^\"]*\"|\"subject\": \"$PWD/libloaded.so\"|" strange/campaign.json
expect 1 "whose code this command would run: if you trust it, give --subject" "$program" campaign merge strange
expect 71 "failing" "$program" campaign report strange
[[ -e loaded ]] && fail "campaign merge has loaded a library that the folder names"
"$program" campaign merge strange --subject ./libloaded.so >out 2>err
[[ -e loaded ]] || fail "campaign merge does not open the library that the user names"
rm -f loaded
sed -i "s|\"subject\": \"[^\"]*\"|\"subject\": \"python:$PWD/wrap.py:wrap\"|" strange/campaign.json
echo 'open("loaded", "w")' >wrap.py
expect 1 "whose code this command would run" "$program" campaign merge strange
[[ -e loaded ]] && fail "campaign merge has run a file that the folder names"
expect 1 "has --subject seeded:R02, and this command reducer" "$program" campaign merge single --subject reducer
expect 1 "has no --against" "$program" campaign merge single --against reducer
# The reducer: no failure, and the smallest case of every pair that was seen.
expect 0 "the part has run all of its cases" "$program" fuzz --campaign clean --part 0/1 --cases 1000 --seed 1
expect 0 "excluded at 95 %: a bug that fails one of 334 such cases or more" "$program" campaign report clean
expect 0 "are the smallest ones of" "$program" campaign merge clean --json merged.json
[[ $(json merged.json 'len(r)') == "$(find clean/merged -name '*.json' | wc -l)" ]] || fail "merge names other files than it writes"
expect 0 "ok (trace" "$program" replay "$(json merged.json 'next(iter(r))')"

# Bad input.
expect 1 "there is no part 4 of 4" "$program" fuzz --campaign bad --part 4/4
expect 1 "'x' is neither auto nor a part" "$program" fuzz --campaign bad --part x
expect 1 "nothing in the environment says which part this is" "$program" fuzz --campaign bad
expect 1 "SLURM_ARRAY_TASK_ID='x'" env SLURM_ARRAY_TASK_ID=x "$program" fuzz --campaign bad
expect 1 "give --parts N" env JOB_COMPLETION_INDEX=0 "$program" fuzz --campaign bad
[[ -e bad ]] && fail "a refused campaign left a folder"
expect 0 "part 1/3" env JOB_COMPLETION_INDEX=1 "$program" fuzz --campaign cloud --parts 3 --cases 30
expect 1 "--part" "$program" fuzz --part 0/4
expect 1 "--json excludes --campaign" "$program" fuzz --campaign bad --part 0/1 --json x.json
expect 1 "a campaign has one lane" "$program" fuzz --campaign bad --part 0/1 --lane all
expect 1 "has seed 1, and this run 2" "$program" fuzz --campaign clean --part 0/1 --cases 2000 --seed 2
expect 1 "has lane sim, and this run gloo" "$program" fuzz --campaign clean --part 0/1 --cases 2000 --lane gloo
# --shard is what --part was called.
expect 1 "has parts 1, and this run 2" "$program" fuzz --campaign clean --shard 0/2 --cases 2000
expect 1 "has subject reducer, and this run seeded:R01" "$program" fuzz --campaign clean --part 0/1 --cases 2000 --subject seeded:R01
cp -r clean old
sed -i 's/"commit": "[^"]*"/"commit": "0ld"/' old/campaign.json
expect 1 "the campaign in old was begun by lockstep" "$program" fuzz --campaign old --part 0/1 --cases 2000
expect 1 "is of commit 0ld" "$program" campaign merge old
sed -i 's/"lockstep_campaign": 2/"lockstep_campaign": 7/' old/campaign.json
expect 1 "has version 7 of a campaign's files" "$program" campaign report old
echo '{' >old/campaign.json
expect 1 "old/campaign.json is not the plan of a campaign" "$program" fuzz --campaign old --part 0/1
expect 1 "there is no campaign in nowhere" "$program" campaign report nowhere
mkdir empty
expect 1 "there is no campaign in empty" "$program" campaign merge empty
expect 1 "none/report.json" "$program" campaign report clean --json none/report.json
touch file
expect 1 "cannot make the folder file/below" "$program" fuzz --campaign file/below --part 0/1
cp -r clean foreign
echo "no log" >foreign/part-0000/log.jsonl
expect 1 "foreign/part-0000/log.jsonl is not the log of a part" "$program" fuzz --campaign foreign --part 0/1 --cases 2000
expect 1 "foreign/part-0000/log.jsonl is not the log of a part" "$program" campaign report foreign
cp -r two moved && rm -r moved/part-0001 && mv moved/part-0000 moved/part-0001
expect 1 "is the log of part 0/2, and not of 1/2" "$program" fuzz --campaign moved --part 1/2 --cases 3000 --subject seeded:N08
# A line in the middle is torn: it is dropped, told, and its cases run again.
cp -r two torn
sed -i '0,/^{"block"/s/^{"block".*/{"block":{"begin":0,"e/' torn/part-0000/log.jsonl
expect 65 "note: the log of part 0 has 1 line that is not whole" "$program" campaign report torn
expect 65 "1505 in all" "$program" fuzz --campaign torn --part 0/2 --cases 3010 --subject seeded:N08 --shrink-time 0
# Two parts with one number: the second is refused, and the first goes on.
"$program" fuzz --campaign twice --part 0/1 --cases 100000000 --seed 1 --block 0.2 >first.out 2>&1 &
pid=$!
for ((i = 0; i < 1200; ++i)); do
  (($(blocks twice 0) >= 1)) && break
  sleep 0.05
done
expect 1 "part 0/1 runs already ($(hostname) process $pid)" "$program" fuzz --campaign twice --part 0/1 --time 1 --seed 1
expect 0 "running" "$program" campaign report twice
# A signal ends a part in order: what it has done is recorded, and the same command goes on.
kill -TERM $pid
wait $pid
[[ $? -eq 130 ]] || fail "SIGTERM to a part gave another exit code than 130"
grep -q 'the same command goes on where it stopped' first.out || fail "a part that was interrupted says nothing"
tail -n 1 twice/part-0000/log.jsonl | grep -q '"why":"interrupted"' || fail "the log does not say that the part was interrupted"
# A full disk: an error, and a failure that cannot be written is printed; with space again the part goes on, and nothing
# is lost.
if [[ $(id -u) -eq 0 ]] && mkdir small && mount -t tmpfs -o size=48k tmpfs small 2>/dev/null; then
  on_small() { "$program" fuzz --campaign small/c --part 0/1 --cases 1500 --seed 5 --subject seeded:N08 --shrink-time 0 --block 0.1; }
  on_small >out 2>err
  [[ $? -eq 1 ]] || fail "a full disk gave another exit code than 1"
  [[ $(grep -c '^lockstep: cannot write .*small/c/.*No space left on device; free some space' err) == 1 ]] || fail "no line says that the disk is full"
  mount -o remount,size=10m small
  expect 65 "the part has run all of its cases" on_small
  expect 65 "cases: 1500 of 1500" "$program" campaign report small/c --json small.json
  "$program" fuzz --campaign large --part 0/1 --cases 1500 --seed 5 --subject seeded:N08 --shrink-time 0 >out 2>err
  expect 65 "cases: 1500 of 1500" "$program" campaign report large --json large.json
  for what in 'r["coverage"]' 'r["ok"]' '[f["index"] for f in r["failures"]]' 'r["notes"]'; do
    [[ $(json small.json "$what") == "$(json large.json "$what")" ]] || fail "a full disk has changed $what"
  done
  umount small
fi

finish "all passed"
