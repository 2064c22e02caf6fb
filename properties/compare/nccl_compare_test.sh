#!/usr/bin/env bash
# nccl_compare_test.sh PART PROGRAM SMALL NEWER LOCKSTEP
# nccl_compare_test.sh played PROGRAM CACHE
#
# Tests the comparison of NCCL libraries without a GPU, which is played (faults/played_gpu). SMALL and NEWER are two
# versions of the small NCCL of the tests, and NEWER differs from SMALL in what SMALL_NCCL_PLANTED lists. LOCKSTEP
# replays cases over them. PART is one of
#
#   bits    a difference in bits, and in what is told of faults, is found, and nothing of the kind where there is none
#   times   a difference in time is found, and none between a library and itself
#   bisect  the first library that differs is found
#   bad     input that cannot be used ends in one line, and a signal leaves nothing behind
#   played  NCCL itself is measured, with the device played; skipped (77) unless ci/nccl has fetched a version
part=$1 program=$2 small=$3 newer=${4:-} lockstep=${5:-}
export LOCKSTEP_NCCL_SHM_MIB=0 # the small NCCL takes none of /dev/shm
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../cli/expect.sh"

two=(--run-on played --versions "2.28.9=$small,2.30.7=$newer")
same=(--run-on played --versions "2.28.9=$small,2.28.9=$small")
# Enough rounds for a difference to be more than chance, although one of them goes wrong on a busy machine. The planted
# differences are of 100 and 300 ms; what counts is a time that doubles.
rounds=(--only 'operations,lifecycle' --sizes 16384 --dtypes float32 --rounds 14 --repetitions 3 --limit 100)

# row NAME: its line in the first table of the latest report.
row() { grep -m 1 -F "$1 " out; }

case $part in
  played)
    cache=${LOCKSTEP_NCCL_CACHE:-$3}
    versions=()
    for version in 2.22.3 2.27.7 2.28.9 2.29.7 2.30.7 2.32.3; do
      [[ ! -e $cache/$version/lib/libnccl.so.2 ]] || versions+=("$version")
    done
    ((${#versions[@]} > 0)) || { echo "skipped: no NCCL in $cache (ci/nccl fetch 2.28.9)" && exit 77; }
    first=${versions[0]} last=${versions[-1]}
    expect 0 "$first -> $last" "$program" --run-on played --cache "$cache" --versions "$first,$last" --rounds 1 \
      --repetitions 1 --fault-rounds 1 --sizes 1KiB,64KiB --json played.json
    for text in 'NCCL side by side, host side, device played; 3 ranks' ': all bits agree; ' \
      "$last: NCCL's ring (2.22 and newer): all_reduce/float32/1 KiB, all_reduce/float32/64 KiB, all_reduce/bfloat16/1 KiB" \
      "$last: messages of one operation, all ranks: all_reduce/float32/1 KiB 24 (4096 B in all), " \
      "$last: told of killed: " "$last: told of stalled: timeout after " "$last: told of reset: "; do
      grep -qF "$text" out || fail "the report does not say '$text'"
    done
    for name in init 'first all_reduce' 'enqueue/float32/64 KiB' 'proxy/float32/64 KiB' 'step/float32/64 KiB' destroy abort; do
      row "$name" | grep -qE ' [0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ ' || fail "$name has no times"
    done
    finish "NCCL itself is measured on a played device"
    ;;
  bits)
    bits=(--only 'operations,faults' --rounds 1 --repetitions 1 --fault-rounds 1 --sizes '1KiB,16KiB,64KiB' --timeout-ms 1000)
    expect 65 '; bits of float32 sums at 3 ranks differ above 16 KiB; ' \
      env SMALL_NCCL_PLANTED=bits,told "$program" "${two[@]}" "${bits[@]}" --json two.json
    for text in '2.28.9 -> 2.30.7: bits of bfloat16 sums at 3 ranks differ ' \
      'what is told of killed differs (peer lost -> timeout)' 'what is told of reset differs (peer lost -> timeout)' \
      "2.28.9: NCCL's ring (2.22 and newer): all_reduce/float32/1 KiB, all_reduce/float32/16 KiB, all_reduce/float32/64 KiB" \
      "2.30.7: NCCL's ring with chunks of 8 KiB: all_reduce/float32/64 KiB" \
      'bits differ: all_reduce/float32/64 KiB in ' 'host side, device played'; do
      grep -qF "$text" out || fail "the report does not say '$text'"
    done
    # A time stands beside the number of wrong elements, of both libraries.
    row 'all_reduce/float32/64 KiB' | grep -qE ' 0 +[1-9][0-9]*$' || fail "wrong elements are not counted"
    row 'enqueue/float32/64 KiB' | grep -qE ' [0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ ' || fail "the call of a sum has no time"
    row 'rank_ordered/float32/64 KiB' | grep -qE ' 0 +0$' || fail "rank-ordered sums are counted as wrong"
    grep -q '"differences"' two.json || fail "the JSON file has no differences"

    expect 0 '2.28.9 -> 2.28.9 again: all bits agree; ' "$program" "${same[@]}" "${bits[@]}"
    if grep -qE 'what is told|bits differ|not as declared|lacks' out; then fail "a library differs from itself"; fi
    finish "differences in bits and in what is told are found"
    ;;
  times)
    expect 0 'slower by more than 100 %: ' env SMALL_NCCL_PLANTED=slow,abort "$program" "${two[@]}" "${rounds[@]}"
    for name in 'first all_reduce' 'all_reduce/float32/16 KiB' 'destroy' 'abort'; do
      row "$name" | grep -q ' slower ' || fail "$name is not found to be slower"
    done
    for name in 'rank_ordered/float32/16 KiB' 'init' 'connect a group'; do
      if row "$name" | grep -qE ' (slower|faster) '; then fail "$name is taken for slower or faster"; fi
    done
    grep -qF '2.30.7 has ncclCommShrink, which 2.28.9 lacks' out || fail "a new function is not named"
    row 'shrink' | grep -qE '^shrink +- +- +[0-9.]+ .* - +0$' || fail "shrink is not measured where it exists"

    expect 0 '2.28.9 -> 2.28.9 again: all bits agree; nothing ' "$program" "${same[@]}" "${rounds[@]}"
    if grep -qE ' (slower|faster) +[0-9-]+ +[0-9-]+$|lacks' out; then fail "a library differs from itself"; fi
    finish "differences in time are found"
    ;;
  bisect)
    many=(--run-on played --versions "a=$small,b=$small,c=$small,d=$newer,e=$newer")
    case=("${many[@]}" --only 'operations,lifecycle' --sizes 64KiB --dtypes float32 --rounds 1 --repetitions 1)
    expect 0 'all_reduce/float32/64 KiB: d is the first of 5 libraries that differs from a' \
      env SMALL_NCCL_PLANTED=bits "$program" "${case[@]}" --bisect 'all_reduce/float32/64 KiB'
    expect 0 'abort: d is the first of 5 libraries that differs from a' \
      env SMALL_NCCL_PLANTED=abort "$program" "${many[@]}" "${rounds[@]}" --bisect abort
    expect 2 'the first and the last library agree' "$program" "${case[@]}" --bisect 'all_reduce/float32/64 KiB'
    # A case file, in which the sum of 64 KiB is NCCL's own.
    echo '{"schema": 1, "program": {"world": 3, "values": "general", "parameters": [{"sizes": [4096, 4]}], "steps": [
      {"kind": "synced", "variants": [{"forwards": [{"nodes": [{"kind": "use"}]}]}]}]}}' >case.json
    expect 0 'case.json: d is the first of 5 libraries that differs from a' \
      env SMALL_NCCL_PLANTED=bits "$program" "${case[@]}" --bisect case.json --lockstep "$lockstep"
    expect 2 'the first and the last library agree (exit code 0 (with a: 0)' \
      "$program" "${case[@]}" --bisect case.json --lockstep "$lockstep"
    expect 1 'could not judge the case over a (exit code 127)' \
      "$program" "${case[@]}" --bisect case.json --lockstep ./no-such-program
    finish "the first library that differs is found"
    ;;
  bad)
    mkdir -p cache/2.28.9/lib && cp "$small" cache/2.28.9/lib/libnccl.so.2
    expect 1 "NCCL 9.9.9 is not in cache (there are 2.28.9); fetch it with ci/nccl fetch 9.9.9" \
      "$program" --run-on played --cache cache --versions 2.28.9,9.9.9
    expect 1 "there is no file ./none.so" "$program" --run-on played --cache cache --versions 2.28.9,./none.so
    expect 1 'two libraries or more' "$program" --run-on played --cache cache --versions 2.28.9
    echo no library >text.so
    "$program" --run-on played --cache cache --versions 2.28.9,./text.so >out 2>err
    code=$?
    ((code == 1)) || fail "a library that cannot be loaded gives exit code $code"
    [[ $(tail -n 1 err) == *"cannot load './text.so'"* ]] || fail "it is not said that the library cannot be loaded"
    expect 2 'nothing to run NCCL on' "$program" --run-on none --cache cache --versions 2.28.9,2.28.9
    expect 1 "is that one of all_reduce/float32/1 KiB" \
      "$program" --run-on played --cache cache --versions 2.28.9,2.28.9 --bisect nothing
    expect 1 "the type 'int8' is not known" "$program" --run-on played --cache cache --versions 2.28.9,2.28.9 --dtypes int8
    expect 1 'give 2 to 8' "$program" --run-on played --cache cache --versions 2.28.9,2.28.9 --ranks 1
    # A signal ends the program and its ranks, and leaves no file.
    mkdir tmp
    TMPDIR=$work/tmp "$program" --run-on played --cache cache --versions 2.28.9,2.28.9 --rounds 1000 --json stopped.json \
      >out 2>err &
    parent=$!
    for _ in $(seq 300); do
      ranks=$(cat "/proc/$parent/task/$parent/children" 2>/dev/null || true)
      [[ $(wc -w <<<"$ranks") == 6 ]] && break
      sleep 0.1
    done
    [[ $(wc -w <<<"$ranks") == 6 ]] || fail "its ranks did not start"
    kill -INT "$parent"
    code=0
    wait "$parent" || code=$?
    ((code == 130)) || fail "a signal gives exit code $code"
    for rank in $ranks; do
      for _ in $(seq 50); do  # a process that was killed takes a moment on a busy machine
        [[ -d /proc/$rank ]] || break
        sleep 0.1
      done
      if [[ -d /proc/$rank ]]; then fail "rank $rank lives on"; fi
    done
    [[ -z $(ls tmp) && ! -e stopped.json ]] || fail "a signal leaves $(ls tmp) behind"
    finish "bad input ends in one line"
    ;;
esac
