#!/usr/bin/env bash
# torch_benchmark_test.sh PROGRAM: the benchmark beside PyTorch's reducer runs every mode of both, compares what comes
# out with the exact averages, and sees one wrong element of either; bad input is refused. No time is judged.
# Exit code 77, and a line that says why, where the program is not built.
if [[ ! -e $(dirname -- "${1:-}")/torch_side.so ]]; then
  echo "skipped: the benchmark beside PyTorch's reducer is not built (ci/setup --torch installs Debian's libtorch)"
  exit 77
fi
# shellcheck source=ci/checks/test_lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../ci/checks/test_lib.sh"
program=$(realpath -- "$1")
cd "$scratch"

claim "every mode of both reducers runs, and nothing is wrong"
run "$program" --only tiny --repetitions 2 --json rows.json
expect_code 0
for mode in copying view copying_chain view_chain chain; do
  for ranks in 2 4; do expect_text "^tiny +$ranks +$mode .* 0\$"; done
done
expect_text '^PyTorch [12][.][0-9]'
expect_lines 12
run cat rows.json
for key in benchmark commit processor each_ms torch_each_ms workload ranks mode ms torch_ms times_torch times_torch_net floor cpu_ms torch_cpu_ms wrong; do
  expect_text "\"$key\": "
done
expect_no_text '"wrong": [^0]'

claim "one element that is wrong is seen, ours and torch's, in every row of a reducer"
run "$program" --only tiny --ranks 2 --repetitions 1 --spoil --json spoiled.json
expect_code 65
expect_text 'torch_benchmark: 10 elements are wrong'
for each in 2 3; do  # without a floor, and with one
  run grep -c "\"wrong\": $each\$" spoiled.json
  expect_text '^2$'
done

claim "what makes no sense is refused in one line"
for wrong in "--ranks 3" "--only overlap" "--fast" "--library nowhere.so"; do
  # shellcheck disable=SC2086
  run "$program" --only tiny $wrong
  expect_code 1
  expect_lines 1
  expect_text "${wrong%% *}|$(printf '%s' "${wrong##* }")"
done
finish
