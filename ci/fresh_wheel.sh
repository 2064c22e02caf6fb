# What `ci/fresh --wheel` runs in a bare system: bash /try/fresh_wheel.sh. The package, a faulty reducer in a shared library and
# faulty wrappers in Python lie in /try. It prints a line for each step, with tabs between: row, the step, its seconds, what it
# said. A step that does not end as it should is the last one, and its output follows.
# shellcheck shell=bash
set -uo pipefail
cd /try || exit 1

now_ms() { printf '%s\n' "$((${EPOCHREALTIME/./} / 1000))"; }
seconds_since() { awk -v ms="$(($(now_ms) - $1))" 'BEGIN { printf "%.1f", ms / 1000 }'; }

# step NAME CODE PATTERN COMMAND...: the command has to end with the code. The row says the first line that has the pattern.
step() {
  local name=$1 wanted=$2 pattern=$3 start code=0 said
  shift 3
  start=$(now_ms)
  "$@" >step.log 2>&1 </dev/null || code=$?
  said=$(grep -m 1 -E -- "$pattern" step.log || true)
  if [[ $code != "$wanted" || -z $said ]]; then
    printf 'row\t%s\t%s\tFAILED, exit code %s instead of %s: %s\n' "$name" "$(seconds_since "$start")" "$code" "$wanted" "${said:-$(tail -n 1 step.log)}"
    tail -n 60 step.log
    exit 1
  fi
  printf 'row\t%s\t%s\t%s\n' "$name" "$(seconds_since "$start")" "$said"
}

install_packages() { DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "$@"; }
install_python() { apt-get -q update && install_packages python3 python3-venv && python3 --version; }
expect_no_compiler() {
  local each
  for each in cc c++ gcc g++ clang cmake; do
    if command -v "$each"; then echo "there is $each" && return 1; fi
  done
  echo "no compiler: $(ldd --version | head -n 1)"
}
make_environment() { python3 -m venv plain && plain/bin/pip --version; }
install_package() { plain/bin/pip install --disable-pip-version-check --no-index lockstep_reducer-*.whl; }
install_torch() {
  install_packages python3-torch python3-pytest && python3 -m venv --system-site-packages torch &&
    torch/bin/pip install --disable-pip-version-check --no-index lockstep_reducer-*.whl &&
    torch/bin/python -c 'import torch; print("torch", torch.__version__)'
}

step "apt-get install python3 python3-venv" 0 '^Python ' install_python
step "look for a compiler" 0 '^no compiler' expect_no_compiler
step "python3 -m venv" 0 '^pip ' make_environment
begin=$(now_ms)
step "pip install" 0 '^Successfully installed' install_package
step "fuzz a faulty .so" 65 '^FAIL: ' plain/bin/lockstep fuzz --subject ./libfaulty.so --seed 1 --time 60 --out so
printf 'row\t%s\t%s\t%s\n' "from pip install to the first red case" "$(seconds_since "$begin")" "$(grep -m 1 '^found: ' step.log)"
step "lockstep demo" 0 '^FAIL: ' plain/bin/lockstep demo
step "fuzz the reducer over Gloo" 0 ' 0 failing' plain/bin/lockstep fuzz --lane gloo --seed 1 --time 10 --out gloo
step "replay the kept cases" 0 ' pass|ok' plain/bin/lockstep corpus check plain/lib/python3*/site-packages/lockstep/share/lockstep/corpus
step "lockstep new cpp" 0 'cpp' plain/bin/lockstep new cpp cpp
step "lockstep new python" 0 'python' plain/bin/lockstep new python python
step "apt-get install python3-torch" 0 '^torch ' install_torch
step "fuzz a faulty wrapper" 65 '^FAIL: ' torch/bin/lockstep fuzz --subject python:faulty_wrappers.py:skips_none --seed 3 --time 60 --jobs 1 --out wrapper
step "pytest of the new project" 0 ' passed' env -C python ../torch/bin/python -m pytest -q
step "pip uninstall" 0 '^ *Successfully uninstalled' plain/bin/pip uninstall --disable-pip-version-check --yes lockstep-reducer
