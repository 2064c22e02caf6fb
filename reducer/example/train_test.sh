#!/usr/bin/env bash
# train_test.sh PROGRAM: the example reaches the same bits on two, and on four, processes as on one that has the whole
# batch, and learns something.
# shellcheck source=ci/checks/test_lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../ci/checks/test_lib.sh"
program=$(realpath -- "$1")
cd "$scratch"

claim "alone, it learns"
run "$program"
expect_code 0
expect_text '^loss 212$'
expect_text '^loss [0-9.]+e-0[5-9]$'
expect_lines 18  # two losses, fourteen weights, two biases
printf '%s\n' "$output" >alone

claim "the best weights are not reached: there were bits to get wrong"
run grep -cE '^-?0x1\.[0-9a-f]{3,}p' alone
expect_text '^16$'

# train_on RANKS: leaves what rank R printed in the file RANKS.R
train_on() {
  local ranks=$1 rank pids=()
  mkdir "meeting.$ranks"
  for ((rank = 0; rank < ranks; ++rank)); do
    "$program" "$rank" "$ranks" "meeting.$ranks" >"$ranks.$rank" 2>"$ranks.$rank.errors" &
    pids+=($!)
  done
  code=0
  for rank in "${!pids[@]}"; do
    wait "${pids[$rank]}" || code=$?
  done
  output=$(cat "$ranks".*.errors)
  expect_code 0
}

for ranks in 2 4; do
  claim "$ranks processes reach the same bits"
  train_on "$ranks"
  for ((rank = 0; rank < ranks; ++rank)); do
    run diff alone "$ranks.$rank"
    expect_code 0
  done
done

claim "wrong arguments are refused"
for wrong in "0 3 ." "2 2 ." "-1 2 ." "0"; do
  # shellcheck disable=SC2086
  run "$program" $wrong
  expect_code 1
  expect_text '^usage'
done
finish
