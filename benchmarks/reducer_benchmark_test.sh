#!/usr/bin/env bash
# reducer_benchmark_test.sh PROGRAM: the benchmark of the reducer runs, compares what comes out with the exact averages,
# and sees one wrong element; bad input is refused; a signal leaves nothing behind. No time is judged.
# shellcheck source=ci/checks/test_lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../ci/checks/test_lib.sh"
program=$(realpath -- "$1")
cd "$scratch"
export TMPDIR=$scratch/tmp
mkdir "$TMPDIR"

claim "every mode and both floors run, and nothing is wrong"
run "$program" --only tiny,first_pass,overlap --repetitions 1 --commit abc --json rows.json
expect_code 0
for mode in flat buckets buckets_copied memory view copying view_tcp copying_tcp rank_ordered verified; do
  for ranks in 2 4; do expect_text "^tiny +$ranks +$mode .* 0\$"; done
done
for mode in first_copying later_copying first_view later_view; do expect_text "^tiny +4 +$mode .* 0\$"; done
expect_text '^tiny +2 +after backward .* 0$'
run cat rows.json
for key in benchmark commit processor processors each_ms base workload ranks mode ms times_flat times_floor cpu_ms wrong launch_delay_us exposed_ms; do
  expect_text "\"$key\": "
done
expect_text '"commit": "abc"'
expect_no_text '"wrong": [^0]'

claim "orders of additions run, too"
run "$program" --only orders --ranks 2 --repetitions 1
expect_code 0
for mode in rank_ordered verified; do expect_text "^all_reduce_1MiB +2 +$mode .* 0\$"; done

claim "one element that is wrong is seen in every row"
run "$program" --only tiny --ranks 2 --repetitions 1 --spoil --json spoiled.json
expect_code 65
expect_text 'reducer_benchmark: 10 elements are wrong'
run grep -c '"wrong": 1$' spoiled.json
expect_text '^10$'

claim "what makes no sense is refused in one line, and leaves no file"
for wrong in "--ranks 3" "--only nothing" "--repetitions 0" "--fast" "--json $scratch/no/such/folder"; do
  # shellcheck disable=SC2086
  run "$program" --only tiny $wrong
  expect_code 1
  expect_lines 1
  expect_text "${wrong%% *}|$(printf '%s' "${wrong##* }")"
done

claim "a signal ends it, with every rank, and leaves no file"
"$program" --only tiny --ranks 4 --repetitions 100000 --json stopped.json >log 2>&1 &
parent=$!
for _ in $(seq 300); do
  ranks=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null || true)
  [[ $(wc -w <<<"$ranks") == 4 ]] && break
  sleep 0.1
done
[[ $(wc -w <<<"$ranks") == 4 ]] || fail "its ranks did not start"
kill -INT "$parent"
code=0
wait "$parent" || code=$?
expect_code 130
for rank in $ranks; do
  if [[ -d /proc/$rank ]]; then fail "rank $rank lives on"; fi
done
run find . -name '*.json*' -newer log -o -path './tmp/*'
expect_text '^$'
finish
