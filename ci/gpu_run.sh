# The time, the machine and the results of ci/gpu: source it behind lib.sh, do not run it.
#
#   begin_time MINUTES MS   everything has so many minutes together, from that time on
#   allot MINE ALL LEAST    gives what comes next MINE of ALL parts of the time that its surroundings have left, yet LEAST seconds;
#                           false where even those are not left
#   allot_within MINE ALL   the same inside of a stage: for one of its programs
#   limited COMMAND...      ends it when its time is over, with all that it started; exit code 124 then
#   look_at_machine         the GPU, the driver and the free memory, as nvidia-smi says
#   lacks NEEDS MIB         why the machine cannot run a stage, or nothing
#   piece NAME COMMAND...   runs one program of a stage: a line, its log, and its row in the results
#   not_run NAME WHY        a row of what was not run
#   write_results           all that is known by now, in place of what was known
#
# What was measured is written before the next program begins, so that nothing takes it along which hangs or is killed later:
#   gpu-DATE-TIME.json      figures and results;  .md  the same as a page;  .log  the ends of the logs
#   gpu-DATE-TIME-case-N.json  cases that failed, three at most
# shellcheck shell=bash

minute_ms=${LOCKSTEP_GPU_MINUTE_MS:-60000}  # for tests
most_cases=3 most_case_bytes=$((2 << 20)) most_log_bytes=$((200 << 10))

scaled_ms() { echo $(($1 * minute_ms / 60)); }  # of seconds
seconds_of() { printf '%d.%03d\n' $(($1 / 1000)) $(($1 % 1000)); }
round_seconds() { echo $((($1 + 500) / 1000)); }

begin_time() {
  began_ms=$2
  # What is left over ends the last program, and writes.
  ends_ms=$((began_ms + $1 * minute_ms - $(scaled_ms 10)))
  stage_end_ms=$ends_ms piece_end_ms=$ends_ms
}

allot() {
  local now left least mine
  now=$(now_ms)
  left=$((ends_ms - now))
  least=$(scaled_ms "$3")
  ((left >= least && left > 0)) || return 1
  mine=$((left * $1 / $2))
  ((mine >= least)) || mine=$least
  stage_end_ms=$((now + mine))
  piece_end_ms=$stage_end_ms
}
allot_within() {
  local now
  now=$(now_ms)
  piece_end_ms=$((now + (stage_end_ms - now) * $1 / $2))
}

# The command is in a process group of its own, which Ctrl-C does not reach: it is passed on. A program that stays although it was
# killed, as one that hangs inside of the driver does, is left behind.
limited() (
  its='' watch='' code=0 who='' left=$((piece_end_ms - $(now_ms)))
  if ((left <= 0)); then
    echo "not begun, as the time was over: $*" >&2
    exit 124
  fi
  # shellcheck disable=SC2086  # those that there are
  trap 'kill $its $watch 2>/dev/null; exit 130' INT
  # shellcheck disable=SC2086
  trap 'kill $its $watch 2>/dev/null; exit 143' TERM
  timeout -k 5 "$(seconds_of "$left")" "$@" &
  its=$!
  sleep "$(seconds_of $((left + 8000)))" >/dev/null 2>&1 &
  watch=$!
  wait -n -p who "$its" "$watch" || code=$?
  if [[ $who == "$watch" ]]; then
    echo "left behind: it is still there after it was killed: $*" >&2
    exit 124
  fi
  kill "$watch" 2>/dev/null || true
  if ((code == 124)) || ((code == 137 && $(now_ms) >= piece_end_ms)); then
    echo "ended after $(seconds_of "$left") s, which was its share of the time: $*" >&2
    code=124
  fi
  exit "$code"
)

# version_of TEXT: 13.0 as 1300
version_of() { awk -v text="$1" 'BEGIN { split(text, part, "."); printf "%d", part[1] * 100 + part[2] }'; }

# What is not known stays empty, and keeps no stage from running.
gpu_name='' driver='' driver_cuda='' capability='' memory_mib='' toolkit='' architectures=''
# Its output goes through a file: a pipe would wait for an nvidia-smi that is left behind.
ask_nvidia_smi() {
  command -v nvidia-smi >/dev/null || return 0
  piece_end_ms=$(($(now_ms) + $(scaled_ms 10)))
  mkdir -p "$lockstep_logs"
  limited nvidia-smi "$@" >"$lockstep_logs/nvidia-smi.out" 2>/dev/null || true
  cat "$lockstep_logs/nvidia-smi.out"
}
look_at_machine() {
  local row
  row=$(ask_nvidia_smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader,nounits)
  IFS=, read -r gpu_name driver capability memory_mib <<<"$(head -n 1 <<<"$row" | sed 's/, */,/g')" || true
  plain "$gpu_name"
  gpu_name=$text
  [[ $capability =~ ^[0-9]+\.[0-9]+$ ]] || gpu_name='' driver='' capability='' memory_mib=''
  driver_cuda=$(ask_nvidia_smi | sed -nE 's/.*CUDA( [A-Z]+)? Version *: *([0-9]+\.[0-9]+).*/\2/p' | head -n 1)
}
free_mib() { ask_nvidia_smi --query-gpu=memory.free --format=csv,noheader,nounits | awk 'NR == 1 && /^[0-9]+$/'; }

# look_at_programs FILE: what a build has noted of the programs (cmake/Cuda.cmake).
look_at_programs() {
  [[ -f $1 ]] || return 0
  toolkit=$(sed -n 's/^toolkit //p' "$1")
  architectures=$(sed -n 's/^architectures //p' "$1")
}

# Machine code runs on GPUs of its major number from its minor number on (with an `a`, on that one alone), PTX on all that are
# newer. Of `90` a build has both, of `90-real` machine code, of `90-virtual` PTX.
runs_here() {
  local each number cap
  cap=$(version_of "$capability")
  cap=$((cap / 100 * 10 + cap % 100))
  for each in ${architectures//;/ }; do
    [[ $each =~ ^([0-9]+)([a-z]*)(-real|-virtual)?$ ]] || return 0  # a word, such as `native`
    number=${BASH_REMATCH[1]}
    case ${BASH_REMATCH[2]}${BASH_REMATCH[3]} in
      '' | -virtual) ((cap >= number)) && return 0 ;;
      -real) ((cap / 10 == number / 10 && cap >= number)) && return 0 ;;
      *) ((cap == number)) && return 0 ;;
    esac
  done
  return 1
}

lacks() {
  local free
  if [[ $1 == programs && -n $driver_cuda && -n $toolkit ]] &&
    (($(version_of "$driver_cuda") / 100 < $(version_of "$toolkit") / 100)); then
    echo "the driver $driver is for CUDA $driver_cuda, and the programs were built with $toolkit:" \
      "install a newer driver, or collect them with an older toolkit"
  elif [[ $1 == programs && -n $capability && -n $architectures ]] && ! runs_here; then
    echo "the GPU has compute capability $capability, and the programs are for $architectures:" \
      "collect them with CMAKE_CUDA_ARCHITECTURES set for it"
  else
    free=$(free_mib)
    if [[ -n $free ]] && ((free < $2)); then echo "it needs $2 MiB of the GPU's memory, and $free MiB are free"; fi
  fi
}

results=${LOCKSTEP_RESULTS:-benchmarks/results}
stamp=gpu-$(date +%Y-%m-%d-%H%M%S)
names=() outcomes=() times=() whys=()

# plain TEXT: into $text, without what JSON or a table would have to escape
plain() {
  text=${1//[[:cntrl:]]/ }
  text=${text//[\\\"|]/\'}
}

# row NAME OUTCOME SECONDS WHY: a row, in place of the one that said `running`; note: and it is written
row() {
  local last=$((${#names[@]} - 1))
  if ((last < 0)) || [[ ${names[last]} != "$1" || ${outcomes[last]} != running ]]; then last=$((last + 1)); fi
  plain "$4"
  names[last]=$1 outcomes[last]=$2 times[last]=$3 whys[last]=$text
}
note() { row "$@" && write_results; }
not_run() {
  stage_line "$1" "not run: $2"
  row "$1" "not run" 0 "$2"
}

# why LOG: of a program of GoogleTest the test in which it was ended, or the first that failed; else its last line.
why() {
  [[ -s $lockstep_logs/$1.log ]] || return 0
  awk '/^\[ RUN  /{ test = $4 } /^\[  *(OK|FAILED) /{ test = "" }
    /^\[  FAILED  \] [A-Za-z]/ && failed == "" { failed = $4 } NF && !/^(ended|left behind|ci\/gpu_run)/{ last = $0 }
    END { if (test != "") print "in the test " test; else if (failed != "") print "the test " failed; else print substr(last, 1, 200) }' "$lockstep_logs/$1.log"
}

# end_of CODE: of a program that was killed the signal; SIGKILL is what a machine sends that has no memory left
end_of() { if (($1 > 128 && $1 < 160)); then echo "killed by SIG$(kill -l "$1")"; else echo "exit code $1"; fi; }

# piece [--or-absent] NAME COMMAND...: with --or-absent exit code 77 says that there is nothing to run, in the last line
piece() {
  local is_absent=0
  if [[ $1 == --or-absent ]]; then is_absent=77 && shift; fi
  local name=$1 start code=0 seconds because log=$lockstep_logs/$1.log
  shift
  start=$(now_ms)
  note "$name" running 0 "for $(round_seconds $((piece_end_ms - start))) s at most"
  if [[ -t 1 ]] && ! verbose; then printf '%-18s ...' "$name"; fi
  run_logged "$name" "$@" || code=$?
  seconds=$(seconds_since "$start")
  if ((code == 130)); then lockstep_interrupted INT 130; fi
  # A test that was skipped has shown nothing.
  if ((code == 0)) && grep -q '^skipped: ' "$log"; then code=1; fi
  if ((code == 0)); then
    stage_line "$name" "$seconds s"
    note "$name" passed "$seconds" ""
    return 0
  fi
  if ((code != 0 && code == is_absent)); then
    not_run "$name" "$(why "$name" | sed 's/^skipped: //')"
    return 0
  fi
  because=$(why "$name")
  if ((code == 124)); then
    stage_line "$name" "ENDED after $seconds s, its share of the time"
    note "$name" ended "$seconds" "its share of the time was over${because:+; $because}"
  else
    stage_line "$name" "FAILED after $seconds s, exit code $code"
    note "$name" failed "$seconds" "$(end_of "$code")${because:+; $because}"
  fi
  show_log "$name"
  return "$code"
}

# whole_rows FILE: keeps of the JSON of a benchmark that was ended the rows that are whole.
whole_rows() {
  local last
  tail -n 1 "$1" 2>/dev/null | grep -q '^{*}$' && return
  last=$(grep -n '^    },*$' "$1" 2>/dev/null | tail -n 1 | cut -d: -f1)
  if [[ -z $last ]]; then
    rm -f "$1"
    return
  fi
  { head -n $((last - 1)) "$1" && printf '    }\n  ]\n}\n'; } >"$1.whole"
  mv "$1.whole" "$1"
}

write_json() {
  local i name separator=
  printf '{"machine": {"gpu": "%s", "driver": "%s", "cuda": "%s", "capability": "%s", "mib": "%s", "toolkit": "%s", "built for": "%s"}\n' \
    "$gpu_name" "$driver" "$driver_cuda" "$capability" "$memory_mib" "$toolkit" "$architectures"
  printf ', "minutes": %s, "seconds": %s\n, "stages": [' "$minutes" "$(seconds_since "$began_ms")"
  for i in "${!names[@]}"; do
    printf '%s\n  {"name": "%s", "result": "%s", "seconds": %s, "why": "%s"}' "$separator" "${names[i]}" "${outcomes[i]}" \
      "${times[i]}" "${whys[i]}"
    separator=,
  done
  printf ']\n'
  for name in $figures; do
    [[ -s $lockstep_logs/gpu-$name.json ]] || continue
    printf ', "%s": ' "$name"
    cat "$lockstep_logs/gpu-$name.json"
  done
  printf '}\n'
}

write_page() {
  local i name
  printf '# A run of ci/gpu\n\n'
  printf '%s, driver %s for CUDA %s, compute capability %s, %s MiB. The programs were built with CUDA %s for %s.\n' \
    "${gpu_name:-A GPU that nvidia-smi does not name}" "${driver:-unknown}" "${driver_cuda:-unknown}" \
    "${capability:-unknown}" "${memory_mib:-unknown}" "${toolkit:-unknown}" "${architectures:-unknown}"
  printf 'It had %s minutes, and has taken %s s.\n\n' "$minutes" "$(seconds_since "$began_ms")"
  printf '| what | result | seconds | why |\n|---|---|---|---|\n'
  for i in "${!names[@]}"; do
    printf '| %s | %s | %s | %s |\n' "${names[i]}" "${outcomes[i]}" "${times[i]}" "${whys[i]}"
  done
  for name in $tables; do
    [[ -s $lockstep_logs/gpu-$name.txt ]] || continue
    printf '\n## %s\n\n```\n' "$name"
    head -c 50000 "$lockstep_logs/gpu-$name.txt"
    printf '```\n'
  done
}

write_log() {
  local i
  for i in "${!names[@]}"; do
    [[ -s $lockstep_logs/${names[i]}.log ]] || continue
    printf '===== %s: %s\n' "${names[i]}" "${outcomes[i]}"
    tail -c "$most_log_bytes" "$lockstep_logs/${names[i]}.log"
  done
}

# The new file takes the place of the old one at once.
write_results() {
  local kind case count=0
  mkdir -p "$results"
  for kind in json md log; do
    case $kind in
      json) write_json ;;
      md) write_page ;;
      log) write_log ;;
    esac >"$results/.$stamp.$kind" && mv "$results/.$stamp.$kind" "$results/$stamp.$kind"
  done
  for case in "$lockstep_logs"/gpu-found/*.json; do
    [[ -f $case ]] && ((count < most_cases)) || continue
    (($(wc -c <"$case") <= most_case_bytes)) || continue
    count=$((count + 1))
    cp "$case" "$results/$stamp-case-$count.json"
  done
}
