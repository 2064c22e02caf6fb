# Shared by the scripts of ci/: source it, do not run it. It moves to the root of the checkout, so a
# script may be called from any folder.
#
#   die TEXT              one line on stderr, exit 1
#   stage NAME COMMAND..  runs the command; prints one line with the seconds it took
#   configure PRESET      makes the build folder of a preset, unless it is there and up to date
#   build PRESET [TARGET] builds it
#   parallel_jobs         how many things to do at once
#   parallel_tests        the parallel jobs of ctest
#   note_installed        says that something was installed which a build looks for
#   fetch_wheel ...       brings a file from PyPI, checked against its hash
#
# The output of a stage goes to build/logs/NAME.log (LOCKSTEP_LOGS=FOLDER: there). It is shown when the stage
# fails, or all along with LOCKSTEP_VERBOSE=1. Ctrl-C ends every script with exit code 130.
# shellcheck shell=bash
set -euo pipefail
unset CDPATH

lockstep_script=ci/$(basename -- "$0")
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
lockstep_logs=${LOCKSTEP_LOGS:-build/logs}

lockstep_interrupted() {
  trap - INT TERM
  printf '\n%s: stopped by signal %s\n' "$lockstep_script" "$1" >&2
  exit "$2"
}
trap 'lockstep_interrupted INT 130' INT
trap 'lockstep_interrupted TERM 143' TERM

die() {
  printf '%s: %s\n' "$lockstep_script" "$*" >&2
  exit 1
}

verbose() { [[ ${LOCKSTEP_VERBOSE:-0} == 1 ]]; }

# Prints the comment block at the top of the calling script: that is its help.
show_help() {
  awk 'NR == 1 { next } !/^#/ || /^# shellcheck / { exit } { sub(/^# ?/, ""); print }' "$1"
}

now_ms() {
  local now=${EPOCHREALTIME:-}
  now=${now/,/.}  # some locales write a comma
  if [[ $now == *.* ]]; then
    printf '%s%s\n' "${now%.*}" "$(printf '%.3s' "${now#*.}")"
  else
    printf '%s000\n' "$(date +%s)"
  fi
}

# seconds_since MS: as "12.3"
seconds_since() {
  local tenths=$((($(now_ms) - $1 + 50) / 100))
  printf '%d.%d\n' $((tenths / 10)) $((tenths % 10))
}

# is_positive TEXT: a whole number from 1 to 9999999
is_positive() { [[ $1 =~ ^[1-9][0-9]{0,6}$ ]]; }

# It is looked at here, because a script does not end with a substitution "$(parallel_jobs)" that fails.
[[ -z ${LOCKSTEP_JOBS:-} ]] || is_positive "$LOCKSTEP_JOBS" ||
  die "LOCKSTEP_JOBS is '$LOCKSTEP_JOBS': give a whole number from 1 on"

# As many as there are processors, but no more than fit into memory at 1 GiB each; LOCKSTEP_JOBS overrides.
parallel_jobs() {
  if [[ -n ${LOCKSTEP_JOBS:-} ]]; then
    printf '%s\n' "$LOCKSTEP_JOBS"
    return
  fi
  local processors memory_kib fit
  processors=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
  memory_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || true)
  fit=$((${memory_kib:-$((processors * 1048576))} / 1048576))
  ((fit >= 1)) || fit=1
  printf '%s\n' $((processors < fit ? processors : fit))
}

# Tests of GoogleTest programs and long scripts count as two jobs, and tests that wait as one (cmake/Testing.cmake). Most wait a
# little, so that two of the former run at once for each processor.
parallel_tests() {
  local jobs
  jobs=$(parallel_jobs)
  if [[ -n ${LOCKSTEP_JOBS:-} ]]; then printf '%s\n' $((2 * jobs)); else printf '%s\n' $((4 * jobs)); fi
}

# stage_line NAME TEXT: one line of the report; it takes the place of the "..." shown on a terminal meanwhile.
stage_line() {
  if [[ -t 1 ]] && ! verbose; then printf '\r\033[K'; fi
  printf '%-18s %s\n' "$1" "$2"
}

# run_logged NAME COMMAND...: the command with its output in the log of that name.
run_logged() {
  local log=$lockstep_logs/$1.log
  shift
  mkdir -p "$lockstep_logs"
  if verbose; then
    "$@" 2>&1 | tee "$log"
  else
    "$@" >"$log" 2>&1
  fi
}

# show_log NAME: the end of a log, on stderr, without what ctest says of tests that passed.
show_log() {
  local log=$lockstep_logs/$1.log
  if verbose; then return; fi
  grep -vE '^ +Start +[0-9]+: |^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed ' "$log" | tail -n 400 >&2 || true
}

stage() {
  local name=$1 start code=0
  shift
  start=$(now_ms)
  if [[ -t 1 ]] && ! verbose; then printf '%-18s ...' "$name"; fi
  run_logged "$name" "$@" || code=$?
  if ((code == 0)); then
    stage_line "$name" "$(seconds_since "$start") s"
    return 0
  fi
  if ((code == 130)); then lockstep_interrupted INT 130; fi
  stage_line "$name" "FAILED after $(seconds_since "$start") s, exit code $code"
  show_log "$name"
  printf '%s: %s failed; its output is in %s/%s.log\n' "$lockstep_script" "$name" "$lockstep_logs" "$name" >&2
  return "$code"
}

# os_field NAME: a field of the os-release file. LOCKSTEP_OS_RELEASE names another file, for tests.
os_field() {
  local file=${LOCKSTEP_OS_RELEASE:-/etc/os-release}
  [[ -r $file ]] || return 0
  sed -n "s/^$1=//p" "$file" | tr -d "\"'" | head -n 1
}

# is_known_system: whether ci/setup installs the packages here; their names are the same on these systems
is_known_system() {
  command -v dpkg-query >/dev/null || return 1
  case "$(os_field ID) $(os_field VERSION_ID)" in "debian 12" | "debian 13") ;; *) return 1 ;; esac
}

# note_installed: what a build looks for is there since now, so that the next call of a script configures again
note_installed() { mkdir -p build && touch build/installed; }

# Configuring takes seconds, and ninja repeats it by itself when a CMake file changes; presets, and what was installed since
# then, it does not watch.
configure() {
  local preset=$1 ninja=build/$1/build.ninja
  if [[ -f $ninja && $ninja -nt CMakePresets.json && ! build/installed -nt $ninja ]]; then return 0; fi
  stage "configure-$preset" cmake --preset "$preset"
}

build() {
  local preset=$1
  shift
  local targets=("${@:-all}")
  stage "build-$preset" cmake --build "build/$preset" --parallel "$(parallel_jobs)" --target "${targets[@]}"
}

# said_by_failed_tests NAME: the lines of ctest's log that tests printed which failed, but for those about what was well,
# on stderr. So the cause stays where only the end of the output is kept.
said_by_failed_tests() {
  awk '
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / { failed = /\*\*\*/ && !/\*\*\*(Skipped|Not Run)/; if (failed) print; next }
    /^ +Start +[0-9]+: / { next }
    / tests passed, / { failed = 0 }
    failed && !/^\[ *(OK|RUN|PASSED|[-=]+) *\]|: ok( |$)|^not run: |^ *$/ { print "    " substr($0, 1, 200) }
  ' "$lockstep_logs/$1.log" | head -n 60 >&2 || true
}

# run_ctest PRESET [ARGUMENT...]: all tests of a build folder; prints ctest's closing line, and the output of failed tests. Where
# judges_skips is set, it counts the skipped tests by their reasons, and with 1 a skip without need is a failure
# (ci/checks/skips).
run_ctest() {
  local preset=$1 name=tests-$1 start code=0 closing results=$PWD/build/$1/tests.xml before="" argument
  shift
  for argument in "$@"; do  # the caller's own file is the one that ctest writes
    if [[ $before == --output-junit ]]; then results=$argument; fi
    before=$argument
  done
  rm -f -- "$results"
  start=$(now_ms)
  if [[ -t 1 ]] && ! verbose; then printf '%-18s ...' "$name"; fi
  run_logged "$name" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    --output-junit "$results" --parallel "$(parallel_tests)" "$@" || code=$?
  if ((code == 130)); then lockstep_interrupted INT 130; fi
  stage_line "$name" "$(seconds_since "$start") s"
  closing=$(grep -E 'tests passed, [0-9]+ tests? failed out of' "$lockstep_logs/$name.log" | tail -n 1 || true)
  if ((code != 0)) || [[ -z $closing ]]; then
    show_log "$name"
    if ! verbose; then said_by_failed_tests "$name"; fi
    printf '%s: all output is in %s/%s.log\n' "$lockstep_script" "$lockstep_logs" "$name" >&2
  fi
  if [[ -n ${judges_skips:-} && -n $closing ]] && ! ci/checks/skips "$results"; then
    if ((judges_skips && code == 0)); then code=1; fi
  fi
  printf '%s\n' "${closing:-ctest printed no closing line; its exit code is $code}"
  return "$code"
}

# why_not LOG: the line of a log that tells why pip or an unpacking failed
why_not() {
  grep -iE 'no space left|^ERROR|^[a-z_.]+(Error|File): ' "$1" | tail -n 1 || true
}

# fetch_wheel LOG LABEL HASHES FILE SHA256 FOLDER REMEDY: brings the wheel FILE from PyPI to FOLDER, by pip. LABEL is what the
# errors call it, HASHES the list that names it, and REMEDY what else a user can do.
fetch_wheel() {
  local log=$1 label=$2 hashes=$3 file=$4 expected=$5 folder=$6 remedy=$7
  local package version python abi tags tag options=() found reason
  IFS=- read -r package version python abi tags <<<"${file%.whl}"
  while read -r tag; do options+=(--platform "$tag"); done < <(tr . '\n' <<<"$tags")
  # A wheel for one Python is asked for by its name, whatever Python this machine has.
  if [[ $abi != none ]]; then options+=(--implementation cp --python-version "${python#cp}" --abi "$abi"); fi
  if ! run_logged "$log" python3 -m pip download --disable-pip-version-check --no-cache-dir --no-deps \
    --only-binary=:all: "${options[@]}" --dest "$folder" "${package//_/-}==$version"; then
    reason=$(why_not "$lockstep_logs/$log.log")
    die "pip could not bring $label: ${reason:-no reason given} ($lockstep_logs/$log.log). Look whether this machine reaches PyPI, and its disk has room; $remedy"
  fi
  [[ -e $folder/$file ]] || die "pip ended well, yet it did not bring $file, which $hashes has for $label"
  found=$(sha256sum -- "$folder/$file" | awk '{ print $1 }')
  [[ $found == "$expected" ]] ||
    die "$file of $label has the SHA-256 $found, and $hashes says $expected: it is not the file that was recorded, and is not used"
}
