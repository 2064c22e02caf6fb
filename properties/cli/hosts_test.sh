#!/usr/bin/env bash
# hosts_test.sh PROGRAM: the lane hosts over namespaces and with a file of hosts, the command `rank`,
# bad input to both, and what a killed controller leaves behind. Where the system has no namespaces,
# it says what is missing and is skipped (77).
program=$(realpath -- "$1")
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

# Processes that have the mark of this test in their environment.
export LOCKSTEP_HOSTS_TEST=$$-$RANDOM
# count_processes PATTERN: those of them whose command line matches.
count_processes() {
  local count=0 file
  for file in /proc/[0-9]*/environ; do
    if grep -qaz "^LOCKSTEP_HOSTS_TEST=$LOCKSTEP_HOSTS_TEST\$" "$file" 2>/dev/null &&
      tr '\0' ' ' <"${file%environ}cmdline" 2>/dev/null | grep -q -- "$1"; then
      count=$((count + 1))
    fi
  done
  echo "$count"
}
# wait_for COMMAND...: until it succeeds, for a minute at most
wait_for() {
  local i
  for ((i = 0; i < 600; ++i)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}
nothing_runs() { [[ $(count_processes 'rank') == 0 ]]; }
ranks_run() { (($(count_processes 'rank-server') >= 1)); }

# Bad input.
umask 077
printf '127.0.0.1\n127.0.0.1\n' >two
openssl rand -hex 32 >secret
openssl rand -hex 32 >open
chmod 640 open
expect 1 "other users may read the secret of open (mode 640): make it yours alone with: chmod 600 open" \
  "$program" fuzz --lane hosts --hosts two --secret-file open --cases 1
expect 1 "other users may read the secret of open" "$program" rank --store tcp://127.0.0.1:1 --secret-file open --rank 0
mkfifo pipe
expect 1 "must have 16 to 4096 bytes" timeout 60 "$program" rank --store tcp://127.0.0.1:1 --secret-file pipe --rank 0
expect 1 "names no host" timeout 60 "$program" fuzz --lane hosts --hosts pipe --secret-file secret --cases 1
expect 1 "give --netns N, or --hosts FILE" "$program" fuzz --lane hosts --cases 1
expect 1 "--secret-file" "$program" fuzz --lane hosts --hosts none --cases 1
expect 1 "No such file" "$program" fuzz --lane hosts --hosts none --secret-file secret --cases 1
expect 1 "--netns" "$program" fuzz --lane hosts --netns 65 --cases 1
expect 1 "excludes" "$program" fuzz --lane hosts --netns 2 --hosts none --cases 1
printf '# nobody\n' >empty
expect 1 "names no host" "$program" fuzz --lane hosts --hosts empty --secret-file secret --cases 1
printf '127.0.0.1 -\nno-such-host.invalid -\n' >unknown
expect 1 "line 2: the host name 'no-such-host.invalid' does not resolve" \
  "$program" fuzz --lane hosts --hosts unknown --secret-file secret --cases 1
expect 1 "write tcp://HOST:PORT" "$program" fuzz --lane hosts --hosts two --secret-file secret --listen here --cases 1
echo short >short
expect 1 "openssl rand" "$program" fuzz --lane hosts --hosts two --secret-file short --cases 1
expect 1 "the lane hosts has no campaigns" \
  "$program" fuzz --lane hosts --hosts two --secret-file secret --campaign folder --cases 1
expect 1 "--store" "$program" rank
expect 1 "write tcp://HOST:PORT" "$program" rank --store here --secret-file secret --rank 0
expect 1 "cannot read the secret" "$program" rank --store tcp://127.0.0.1:1 --secret-file none --rank 0
expect 1 "is not a number of a rank" "$program" rank --store tcp://127.0.0.1:1 --secret-file secret --rank one
expect 1 "neither srun nor mpirun nor PMI" env -u SLURM_PROCID -u OMPI_COMM_WORLD_RANK -u PMIX_RANK -u PMI_RANK \
  "$program" rank --store tcp://127.0.0.1:1 --secret-file secret
expect 1 "does not resolve" "$program" rank --store tcp://no-such-host.invalid:1 --secret-file secret --rank 0

# A file of hosts: all of them this machine, with a command that starts the program. One of them is
# started by hand, as a launcher would, and a rank with another secret is refused meanwhile.
port=$((20000 + RANDOM % 10000))
cat >hosts <<TEXT
# the address, and what starts a program there
127.0.0.1 env FIRST=1
127.0.0.1 -
TEXT
openssl rand -hex 32 >other
"$program" fuzz --lane hosts --hosts hosts --secret-file secret --listen "tcp://127.0.0.1:$port" --cases 12 \
  --seed 3 --jobs 1 --faults rank_exit,operation_delay >fuzz.out 2>fuzz.err &
fuzz=$!
wait_for grep -q "waiting for rank 1" fuzz.err || fail "nobody waits for rank 1"
expect 1 "wrong secret" "$program" rank --store "tcp://127.0.0.1:$port" --secret-file other --rank 1
expect 1 "there is no rank 7" "$program" rank --store "tcp://127.0.0.1:$port" --secret-file secret --rank 7
SLURM_PROCID=1 "$program" rank --store "tcp://127.0.0.1:$port" --secret-file secret >rank.out 2>rank.err &
wait "$fuzz" || fail "the cases on hosts of a file ended with $?: $(cat fuzz.out fuzz.err)"
grep -q "hosts lane.*: 12 cases.* 0 failing" fuzz.out || fail "no 12 cases: $(cat fuzz.out fuzz.err)"
grep -q "wrong secret" fuzz.err || fail "the controller does not tell of a wrong secret"
wait_for nothing_runs || fail "ranks go on without their controller"

# A host whose command fails is named.
printf '127.0.0.1 false\n' >failing
expect 2 "the command of its host has ended" \
  "$program" fuzz --lane hosts --hosts failing --secret-file secret --cases 1 --jobs 1

# ssh hands one text to a shell at the other end: what the lane appends is quoted for it, and for nobody else.
mkdir "a b"
cp secret "a b/its secret"
cat >ssh <<'TEXT'
#!/usr/bin/env bash
printf '%s\n' "$@" >"$(dirname -- "$0")/${0##*/}.words"
exit 1
TEXT
chmod +x ssh
cp ssh other-shell
printf '127.0.0.1 ./ssh node\n' >by-ssh
printf '127.0.0.1 ./other-shell node\n' >by-other
expect 2 "the command of its host has ended" \
  "$program" fuzz --lane hosts --hosts by-ssh --secret-file "a b/its secret" --cases 1 --jobs 1
grep -qx -- "'a b/its secret'" ssh.words || fail "a word for ssh is not quoted: $(cat ssh.words)"
expect 2 "the command of its host has ended" \
  "$program" fuzz --lane hosts --hosts by-other --secret-file "a b/its secret" --cases 1 --jobs 1
grep -qx -- "a b/its secret" other-shell.words || fail "a word is quoted where no shell reads it: $(cat other-shell.words)"

# Namespaces.
"$program" doctor >doctor.txt
if ! grep -q '^lane hosts     ready: in network namespaces' doctor.txt; then
  echo "skipped: $(grep '^lane hosts ' doctor.txt)"
  if ((failures > 0)); then exit 1; fi
  exit 77
fi
# Whatever descriptors the caller left open, a rank's host gets its own two.
expect 0 " 0 failing" "$program" fuzz --lane hosts --netns 2 --cases 1 --seed 7 --jobs 1 3</dev/null
expect 0 " 0 failing" "$program" fuzz --lane hosts --netns 2 --cases 1 --seed 7 --jobs 1 3</dev/null 4</dev/null
expect 0 " 0 failing" "$program" fuzz --lane hosts --netns 3 --cases 30 --seed 7 --jobs 2 \
  --faults rank_exit,rank_pause,operation_delay,operation_stall
wait_for nothing_runs || fail "the lane left a process behind"
echo '{"schema": 1, "program": {"world": 4, "steps": [{"kind": "synced"}]}}' >four.json
expect 2 "the case has 4 ranks, and the lane has 3 hosts" "$program" replay four.json --lane hosts --netns 3
expect 0 "hosts lane" "$program" replay four.json --lane hosts --netns 4

# Neither Ctrl-C nor SIGKILL leaves a process, and so a namespace, behind.
for signal in INT KILL; do
  "$program" fuzz --lane hosts --netns 3 --time 60 --seed 1 --jobs 1 >long.out 2>long.err &
  wait_for ranks_run || fail "no rank ran before SIG$signal"
  kill -s "$signal" "$!"
  wait "$!" 2>/dev/null
  wait_for nothing_runs || fail "after SIG$signal $(count_processes rank) processes remain"
done

finish "ranks on hosts of their own run cases, and leave nothing behind"
