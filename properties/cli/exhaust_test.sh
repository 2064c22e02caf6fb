#!/usr/bin/env bash
# exhaust_test.sh PROGRAM: tests `lockstep exhaust`: it says "complete" only at the end of a search, goes on from its
# log after an interruption and then counts what an uninterrupted search counts, finds a planted bug with a case that replays, and refuses what it cannot search.
program=$1
sources=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

# One rank whose second node belongs to another worker of the engine: some hundred orders.
cat >small.json <<'END'
{"schema": 1, "program": {"world": 1, "parameters": [{"device": 1}], "steps": [{"variants": [
  {"forwards": [{"nodes": [{"kind": "sum"}, {"inputs": [{}]}], "outputs": [{}]}]}]}]}}
END
# Two ranks with four parameters and four passes: more orders than a test can run.
step='{"variants": [{"forwards": [{"nodes": [{}, {"parameter": 1, "inputs": [{}]}, {"parameter": 2, "inputs": [{}]},
  {"parameter": 3, "inputs": [{}]}], "outputs": [{}]}]}]}'
cat >large.json <<END
{"schema": 1, "program": {"options": {"first_bucket_bytes": 1, "bucket_bytes": 1}, "parameters": [{}, {}, {}, {}],
 "steps": [$step, $step, $step, $step]}}
END

expect 0 "small.json: complete" "$program" exhaust --program small.json --json report.json
grep -q '"complete": true' report.json || fail "the report does not say that the search is complete"
expect_match 0 "small.json: [0-9]+ executions, [0-9]+ choices explored, [0-9]+ executions pruned" \
  "$program" exhaust --program small.json
expect 2 "large.json: it is too large: about" "$program" exhaust --program large.json --most 10
grep -q "complete$" out && fail "a program that was refused is complete"

# logged: how many executions the last whole line of the log has
logged() { grep -c . "$1" >/dev/null && tail -n 1 "$1" | grep -oE '"counts":\[[0-9]+' | grep -oE '[0-9]+$'; }
executions() { grep -oE 'large.json: [0-9]+ executions' out | grep -oE '[0-9]+'; }

log=lockstep-out/exhaust/large-reducer.jsonl
expect 2 "large.json: not complete: " "$program" exhaust --program large.json --most 1e300 --time 0.5
first=$(executions)
expect 2 "choices are known to remain" "$program" exhaust --program large.json --most 1e300 --time 0.5
second=$(executions)
((second > first)) || fail "a search that was begun went on from $first executions to $second"
printf '{"counts":[99999999' >>"$log"
expect 2 "large.json: not complete: " "$program" exhaust --program large.json --most 1e300 --time 0.5
third=$(executions)
((third > second && third < 99999999)) || fail "after a torn line the search went on from $second to $third"
"$program" exhaust --program large.json --most 1e300 --time 600 >out 2>err &
search=$!
for ((i = 0; i < 6000; ++i)); do
  sleep 0.01
  if (($(logged "$log" || echo 0) > third)); then break; fi
done
kill -9 "$search"
wait "$search" 2>/dev/null
fourth=$(logged "$log")
((fourth > third)) || fail "the log was not written while the search ran"
expect 2 "large.json: not complete: " "$program" exhaust --program large.json --most 1e300 --time 0.5
((($(executions)) >= fourth)) || fail "after kill -9 the search began anew"
sed -i 's/"search":"[0-9a-f]*/"search":"0/' "$log"
expect 1 "is of another search" "$program" exhaust --program large.json --most 1e300

# Two passes of one rank with a second worker: forty thousand orders, two seconds of search, which is first written to the log
# after a tenth of one. A search that Ctrl-C interrupts, and whose last line is torn, ends with the counts of one that goes
# through.
cat >middle.json <<'END'
{"schema": 1, "program": {"world": 1, "parameters": [{"device": 1}], "steps": [
  {"variants": [{"forwards": [{"nodes": [{"kind": "sum"}, {"inputs": [{}]}], "outputs": [{}]}]}]},
  {"variants": [{"forwards": [{"nodes": [{}], "outputs": [{}]}]}]}]}}
END
counts() { grep -oE '"counts":\[[0-9,]+\]' "$1" | tail -n 1; }
expect 0 "middle.json: complete" "$program" exhaust --program middle.json --log whole
log=parts/middle-reducer.jsonl
"$program" exhaust --program middle.json --log parts >out 2>err &
search=$!
for ((i = 0; i < 6000; ++i)); do
  if (($(logged "$log" 2>/dev/null || echo 0) > 0)); then break; fi
  sleep 0.01
done
kill -INT "$search"
code=0
wait "$search" || code=$?
((code == 130)) || fail "Ctrl-C to a search gave $code"
grep -q "complete$" out && fail "a search that Ctrl-C interrupted says that it is complete"
printf '{"counts":[99999999' >>"$log"
expect 0 "middle.json: complete" "$program" exhaust --program middle.json --log parts
[[ -n $(counts "$log") && $(counts "$log") == "$(counts whole/middle-reducer.jsonl)" ]] ||
  fail "an interrupted search counted $(counts "$log"), and a whole one $(counts whole/middle-reducer.jsonl)"

expect 66 "FAIL: deadlock" "$program" exhaust --program small.json --subject seeded:X02
replay=$(grep -oE 'lockstep-out/exhaust-small-seeded-X02.json' out | head -n 1)
expect 0 "deadlock" "$program" replay "$replay" --subject seeded:X02 --expect-fail
expect 0 "ok" "$program" replay "$replay"

expect 1 "there is no program 'moon', because" "$program" exhaust --program moon
(cd "$sources" && "$program" exhaust --program moon) >out 2>err
grep -q "there is no program 'moon': give one of dynamic, exit, hook, interleaved" err || fail "the names are not listed"
for file in "$sources"/properties/exhaust/*.json; do
  expect 0 "step 0 (synced)" "$program" show "$file"
done
expect 1 "--program" "$program" exhaust
expect 1 "--most: '0' is not a number from 1 on" "$program" exhaust --program small.json --most 0
echo '{"schema": 1, "program": {"options": {"fabric": "staged"}}}' >gpu.json
expect 1 "use the transport of the host" "$program" exhaust --program gpu.json
finish "lockstep exhaust does what it says"
