#!/usr/bin/env bash
# show_test.sh: on Debian's PyTorch each finding, of the reducer and of the wrappers in Python, comes to what the table of its
# FINDINGS.md has in the column 1.13.1. Exit code 77, and a line that says why, where no python3 has torch, or has another version.
set -uo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=properties/subject/torch/python.sh
source "$here/../python.sh"

version=$("$python" -c 'import torch; print(torch.__version__)')
if [[ $version != 1.13.* ]]; then
  echo "skipped: the table is held against 1.13.1 here, but $python has PyTorch $version (ci/torch findings runs others)"
  exit 77
fi
exec python3 "$here/run.py" --python "1.13.1=$(command -v "$python")" --check "$here/../FINDINGS.md" \
  --check "$here/../../python/FINDINGS.md"
