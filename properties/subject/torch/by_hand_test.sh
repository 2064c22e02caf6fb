#!/usr/bin/env bash
# by_hand_test.sh: the findings that plain Python scripts show (by_hand.py) still show, and a
# finding that is none does not. Exit code 77, and a line that says why, where no python3 has torch.
set -uo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=properties/subject/torch/python.sh
source "$here/python.sh"

by_hand() { PYTHONDONTWRITEBYTECODE=1 timeout 280 "$python" "$here/by_hand.py" "$@" 2>&1; }

if ! by_hand; then echo "FAILED: a finding does not show"; exit 1; fi
for control in same-order swapped-gradients; do
  code=0
  by_hand "$control" || code=$?
  if [[ $code -ne 1 ]]; then
    echo "FAILED: the control $control gave exit code $code instead of 1"
    exit 1
  fi
done
echo "all passed"
