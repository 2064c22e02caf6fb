#!/usr/bin/env bash
# witness_test.sh: the tests of the witness, on a python3 that has torch. Exit code 77, and a line that says why, where
# there is none.
set -uo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=properties/subject/torch/python.sh
source "$here/../subject/torch/python.sh"
PYTHONDONTWRITEBYTECODE=1 exec "$python" -W ignore "$here/witness_test.py"
