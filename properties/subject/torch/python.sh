# Sourced by tests that need a Python that has torch: sets `python` (LOCKSTEP_PYTHON, where that is set), or ends with
# exit code 77, and a line that says why.
python=
for candidate in ${LOCKSTEP_PYTHON:-python3 /usr/bin/python3}; do
  if "$candidate" -c 'import torch.distributed as d; assert d.is_available()' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [[ -z $python ]]; then
  echo "skipped: no ${LOCKSTEP_PYTHON:-python3} here can import torch (ci/setup --torch installs Debian's)"
  exit 77
fi
