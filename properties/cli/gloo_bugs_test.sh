#!/usr/bin/env bash
# gloo_bugs_test.sh PROGRAM: the lane gloo finds each planted bug in code that the simulator replaces (faults/seeded, "oracle:
# lane gloo"), and nothing in the same cases without it.
program=$(realpath -- "$1")
patches=$(realpath -- "$(dirname -- "${BASH_SOURCE[0]}")/../../faults/seeded")
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

count=0
while read -r patch; do
  id=$(sed -n 's/^id: *//p' "$patch")
  expect 71 "FAIL: " "$program" fuzz --lane gloo --subject "seeded:$id" --seed 1 --cases 3000 --faults none --shrink-time 1
  count=$((count + 1))
done < <(grep -lx 'oracle: lane gloo' "$patches"/*.patch)
((count > 0)) || fail "no planted bug is for the lane gloo"
expect 0 "0 failing" "$program" fuzz --lane gloo --seed 1 --cases 200 --faults none
finish "the lane gloo finds $count planted bugs"
