#!/usr/bin/env bash
# orders_test.sh LOCKSTEP COMPILER: `lockstep orders` finds the order of a shared library, in real processes, and sees one whose
# ranks get other bits. Exit code 77 where no Python here has NumPy.
program=$(realpath -- "$1")
compiler=$2
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=properties/cli/expect.sh
source "$here/../cli/expect.sh"

for candidate in ${LOCKSTEP_PYTHON:-python3 /usr/bin/python3}; do
  if "$candidate" -c 'import numpy' 2>/dev/null; then
    export LOCKSTEP_PYTHON=$candidate
    break
  fi
done
if ! "${LOCKSTEP_PYTHON:-python3}" -c 'import numpy' 2>/dev/null; then
  echo "skipped: no python3 here has NumPy (ci/setup --torch installs Debian's)"
  exit 77
fi

# library NAME [FLAG]: compiles the example
library() {
  "$compiler" -shared -fPIC -O2 -ffp-contract=off ${2:+"$2"} -o "./$1" "$here/example/sum_at_rank_zero.c" || exit 1
}
library first.so
library last.so -DFROM_THE_LAST
library differs.so -DOTHER_BITS_AT_RANK_ZERO
: | "$compiler" -shared -fPIC -x c -o ./empty.so - || exit 1
measure() { "$program" orders --ranks "${ranks:-3}" --sizes 1,5,1000 --calls 2 "$@"; }

expect 0 "((0+1)+2)+3  [rank order" measure --library ./first.so --ranks 4
expect 0 "every call" measure --library ./first.so
# Addition is commutative: from the last rank down is the chain.
expect 0 "0+(1+2)  [" measure --library ./last.so
expect 72 "RANKS DIFFER" measure --library ./differs.so
expect 2 "lockstep_orders_all_reduce returned 8" measure --library ./first.so --dtype float64
expect 1 "does not export lockstep_orders_join" measure --library ./empty.so
expect 1 "there is no file './nowhere.so'" measure --library ./nowhere.so
expect 1 "has no 'reduce'" measure --library ./first.so --collective reduce

# An adapter in Python does the same: here the one for shared libraries, with the file built in.
cat >mine.py <<PYTHON
import shared_library
class Adapter(shared_library.Adapter):
    pass
Adapter.use("$work/last.so")
PYTHON
export PYTHONPATH=$here/adapters
expect 0 "0+(1+2)  [" measure --library mine --adapter mine.py
expect 1 "there is no adapter" measure --library mine --adapter nowhere.py

# No rank is left behind by a program that is killed, whether the ranks are its own children or those of a launcher. Each rank
# writes its number to the folder ranks, and waits for ever.
cat >waits.py <<PYTHON
import os
import time
class Adapter:
    collectives, dtypes = ("all_reduce",), ("float32",)
    version = classmethod(lambda cls: "1")
    needs = classmethod(lambda cls, version: ["numpy"])
    @staticmethod
    def launch(command, ranks):
        if os.environ.get("BY_A_LAUNCHER") == "1":
            return [(["bash", "-c", '"\$@" & "\$@" & "\$@" & wait', "launcher"] + command, {})]
        return [(command, {})] * ranks
    def __init__(self):
        open("$work/ranks/%d" % os.getpid(), "w").close()
        time.sleep(3600)
PYTHON
ranks_that_run() {
  local each
  for each in ranks/*; do
    [[ $each == 'ranks/*' || ! -d /proc/${each#ranks/} ]] || echo "${each#ranks/}"
  done
}
# wait_for COUNT: until so many ranks run
wait_for() {
  local i
  for ((i = 0; i < 600; ++i)); do
    [[ $(ranks_that_run | wc -l) != "$1" ]] || return 0
    sleep 0.1
  done
  return 1
}
for launched in 0 1; do
  for signal in TERM KILL; do
    for whom in lockstep measure.py; do
      rm -rf ranks && mkdir ranks
      BY_A_LAUNCHER=$launched "$program" orders --library waits --adapter waits.py --ranks 3 --sizes 1 >out 2>err &
      killed=$!
      wait_for 3 || fail "the ranks do not start"
      if [[ $whom == measure.py ]]; then kill "-$signal" "$(pgrep -P $killed)"; else kill "-$signal" $killed; fi
      wait_for 0 || fail "SIG$signal to $whom leaves ranks behind (by a launcher: $launched): $(ranks_that_run | tr '\n' ' ')"
      for each in $(ranks_that_run); do kill -KILL "$each"; done
      wait $killed 2>/dev/null
    done
  done
done
finish "orders of libraries of one's own: well"
