#!/usr/bin/env bash
# machine_test.sh PROGRAM: simulates machines that lack what a lane needs. The run is inconclusive
# (2), says what is missing and what to do, and blames no reducer. If this user may not simulate
# such a machine, the test prints a line and skips it.
program=$(realpath -- "$1")
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

gloo=("$program" fuzz --lane gloo --cases 8 --seed 1 --jobs 2)
limited() { # limited LIMIT VALUE COMMAND...
  local limit=$1 value=$2
  shift 2
  bash -c "ulimit $limit $value; exec \"\$@\"" limited "$@"
}
# Runs the shell command, then the program, in a mount namespace of its own.
mounted() { # mounted COMMAND-OF-A-SHELL COMMAND...
  local mount=$1
  shift
  unshare --mount bash -c "$mount && exec \"\$@\"" mounted "$@"
}

expect 0 "8 cases" "${gloo[@]}"

expect 2 "ulimit -n" limited -n 20 "${gloo[@]}"
expect 2 "this program with 1 job needs" limited -n 8 "${gloo[@]}"
if grep -q "sim lane" out err; then fail "a run of the gloo lane speaks of the sim lane"; fi
expect 0 "8 cases" limited -Sn 20 "${gloo[@]}" # the hard limit is enough
expect 2 "ulimit -v" limited -v 300000 "${gloo[@]}"
expect 2 "No such file or directory" env TMPDIR=/no/such/folder "${gloo[@]}"
echo '{"schema": 1, "program": {"steps": [{"kind": "synced"}]}}' >case.json
expect 2 "ulimit -n" limited -n 20 "$program" replay case.json --lane gloo
expect 2 "ulimit -n" limited -n 20 "$program" shrink case.json --lane gloo
expect 2 "ulimit -n" limited -n 20 "$program" corpus check .
expect 2 "lane gloo      no: " limited -n 20 "$program" doctor
expect 0 "ok" "$program" replay case.json --lane gloo

if [[ $(id -u) -eq 0 ]] && command -v setpriv >/dev/null; then
  chmod 777 .
  chmod o+x "$(dirname -- "$program")" 2>/dev/null
  # This user has no other process. root has no such limit.
  user=(setpriv --reuid 54321 --clear-groups)
  if "${user[@]}" "$program" --version >/dev/null 2>&1; then
    expect 2 "ulimit -u" limited -u 8 "${user[@]}" "${gloo[@]}"
    expect 2 "ulimit -u" limited -u 1 "${user[@]}" "$program" fuzz --lane sim --cases 8 --jobs 2
    expect 0 "8 cases" "${user[@]}" "${gloo[@]}" --out theirs
  else
    echo "left out: another user cannot start $program"
  fi
else
  echo "left out: a user with few processes needs root and setpriv"
fi

# What the system or somebody else ends is no crash of the reducer.
expect 2 "the limit on its processor time (ulimit -t) was reached: raise it" limited -t 1 "$program" fuzz --lane sim --time 60 --jobs 1 --fresh
ls lockstep-out/*.json >/dev/null 2>&1 && fail "a limit of the system left a finding"
"$program" fuzz --lane sim --time 120 --jobs 1 --fresh >out 2>err &
run=$!
worker=
for ((i = 0; i < 600; ++i)); do
  worker=$(pgrep -P "$run" | sed -n 2p)  # the first one carries what the worker prints
  if [[ -n $worker ]]; then break; else sleep 0.05; fi
done
kill -9 "$worker"
wait "$run"
[[ $? -eq 2 ]] || fail "a worker that somebody killed is no inconclusive run"
grep -q "was killed by signal 9 (Killed): nothing in it sends that signal" out err || fail "nobody says that the worker was killed"
ls lockstep-out/*.json >/dev/null 2>&1 && fail "a worker that somebody killed left a finding"

# In a container processes may be of a group whose leader is outside, and so has no number there.
if unshare --pid --fork --kill-child true 2>/dev/null; then
  expect 130 "cases in" unshare --pid --fork --kill-child bash -c '"$@" & pid=$! && sleep 2 && kill -INT $pid && wait $pid' \
    interrupted "$program" fuzz --time 60 --seed 1 --jobs 1 --fresh --out found
else
  echo "left out: a process namespace of its own needs root"
fi

# Without a loopback interface no rank reaches another one.
if unshare --net true 2>/dev/null; then
  expect 2 "set the loopback interface up (ip link set lo up)" unshare --net "${gloo[@]}"
  expect 2 "ip link set lo up" unshare --net "$program" replay case.json --lane gloo
  expect 0 "8 cases" unshare --net bash -c 'ip link set lo up && exec "$@"' up "${gloo[@]}"
else
  echo "left out: a machine without a loopback interface needs root"
fi

mkdir -p small
if mounted "mount -t tmpfs -o size=64k tmpfs small" true 2>/dev/null; then
  expect 2 "No space left on device" \
    mounted "mount -t tmpfs -o size=64k tmpfs small" env TMPDIR="$PWD/small" "${gloo[@]}"
  expect 2 "mount /proc" mounted "mount -t tmpfs tmpfs /proc" "${gloo[@]}"
  # Each communicator of NCCL uses 32.6 MiB for each rank.
  expect 2 "--shm-size" mounted "mount -t tmpfs -o size=64m tmpfs /dev/shm" "$program" fuzz --lane nccl --cases 8
else
  echo "left out: machines with a full disk, without /proc, with a small /dev/shm need root"
fi

finish "every machine is reported as what it is"
