# shellcheck shell=bash
# findings/lib.sh: what the scripts of this folder share; a script sources it first.
#
#   install NAME==VERSION ...    makes a Python that has these packages from PyPI, and no others, at $python
#   ranks COUNT [ARGUMENT ...]   runs the program on standard input as COUNT ranks (ranks.py); it can import xgboost_workers.py
#   program [ARGUMENT ...]       runs it once; with launcher=(mpiexec -n 2) by that launcher
#   expect                       compares what they printed with standard input, and ends the script
#
# Exit code of a script: 0 the behaviour is as recorded, 1 it has changed, 2 it could not be run. Everything lies in a
# temporary folder. With LOCKSTEP_FINDINGS_CACHE=FOLDER installed packages stay there, and scripts share them.
set -euo pipefail
findings=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
launcher=() # a script that needs mpiexec sets it
export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES='' JAX_PLATFORMS=cpu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore TF_ENABLE_ONEDNN_OPTS=0

source "$findings/packages.sh"

cannot_run() {
  echo "$(basename -- "$0"): it could not be run: $*" >&2
  exit 2
}

install() {
  local folder=$scratch/python key lock
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  printf 'Packages: %s\n' "$*"
  if [[ -n ${LOCKSTEP_FINDINGS_CACHE:-} ]]; then
    key=$(printf '%s\n' "$@" | sha256sum | cut -c 1-12)
    folder=$LOCKSTEP_FINDINGS_CACHE/$key
    mkdir -p -- "$LOCKSTEP_FINDINGS_CACHE"
    exec {lock}>"$folder.lock"
    flock "$lock"
  fi
  python=$folder/bin/python
  if [[ ! -e $folder/complete ]]; then
    rm -rf -- "$folder"
    python3 -m venv "$folder" >"$scratch/log" 2>&1 || cannot_run "python3 -m venv: $(tail -n 1 "$scratch/log")"
    "$python" -m pip install -q --no-compile --no-deps --only-binary :all: "$@" >"$scratch/log" 2>&1 ||
      cannot_run "pip: $(grep -m 1 ERROR "$scratch/log" || tail -n 1 "$scratch/log")"
    bash "$findings/without_cuda.sh" "$folder" >"$scratch/log" 2>&1 ||
      cannot_run "without_cuda.sh: $(tail -n 1 "$scratch/log")"
    touch "$folder/complete"
  fi
  if [[ -n ${lock:-} ]]; then exec {lock}>&-; fi
}

run() {
  cat >"$scratch/program.py"
  cd -- "$scratch"
  "$@" >"$scratch/seen" 2>"$scratch/errors" && return
  local code=$?
  tail -n 30 "$scratch/seen" "$scratch/errors" >&2
  cannot_run "the program ended with $code"
}

ranks() {
  local count=$1
  shift
  PYTHONPATH=$findings run "$python" "$findings/ranks.py" "$count" "$scratch/program.py" "$@"
}

program() { run ${launcher[@]+"${launcher[@]}"} "$python" "$scratch/program.py" "$@"; }

expect() {
  cat >"$scratch/recorded"
  echo "Output:"
  sed 's/^/    /' "$scratch/seen"
  if diff -u --label recorded --label seen "$scratch/recorded" "$scratch/seen"; then
    echo "as recorded"
    exit 0
  fi
  echo "changed" >&2
  exit 1
}
