#!/usr/bin/env bash
# hostile_test.sh PROGRAM: what others have written (a case, an array, a campaign's folder, names of files, a controller) does
# nothing to the terminal on which the program prints it, and no file keeps the program waiting, grows without an error, or leads
# a report elsewhere.
program=$1
# shellcheck source=properties/cli/expect.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/expect.sh"

# harmless CODE COMMAND...: the command ends with the code, in time, and prints no control character but line feeds and tabs,
# and what it was told by others is there, spelled out.
escape=$'\e]0;title\a\e[31m\u009b2J'
harmless() {
  local code=$1 got=0
  shift
  timeout 120 "$@" >out 2>err || got=$?
  ((got == code)) || fail "$* gave exit code $got instead of $code"
  if LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' out err; then fail "$* prints control characters"; fi
  grep -q '\\u001b' out err || fail "$* says nothing of the text that this test has hidden"
}

# A case: what it is about, the name of a field, and the name of the file.
python3 - "$escape" <<'END'
import json, sys
text = sys.argv[1]
json.dump({"schema": 2, "about": text, "program": {}}, open("about.json", "w"))
json.dump({"schema": 2, "program": {text: 1}}, open("field.json", "w"))
json.dump({"schema": 2, "program": {}}, open(f"name{text.replace('/', '')}.json", "w"))
header = f"{{'descr': '{text}', 'fortran_order': False, 'shape': (1,), }}".encode()
header += b" " * (64 - (len(header) + 11) % 64) + b"\n"
open("dtype.npy", "wb").write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 8)
END
harmless 0 "$program" show about.json
harmless 1 "$program" show field.json
harmless 1 "$program" show "absent$escape.json"
harmless 1 "$program" replay "name$escape.json" --lane "$escape"
harmless 1 "$program" explain-bits dtype.npy --rank dtype.npy --rank dtype.npy
harmless 1 "$program" fuzz --subject "./$escape.so" --cases 1
harmless 1 "$program" fuzz --cases 1 --json "none/$escape"
harmless 1 "$program" "$escape"

# A campaign's folder: its plan, and the messages of its failures.
"$program" fuzz --campaign mine --part 0/1 --cases 300 --seed 2 --subject seeded:R02 --shrink-time 1 >out 2>err
python3 - "$escape" <<'END'
import json, pathlib, sys
text = sys.argv[1]
plan = pathlib.Path("mine/campaign.json")
plan.write_text(json.dumps(json.loads(plan.read_text()) | {"commit": text}))
log = pathlib.Path("mine/part-0000/log.jsonl")
lines = [json.loads(line) for line in log.read_text().splitlines()]
for line in lines:
    for record in line.values():
        if isinstance(record, dict) and "message" in record:
            record["message"] = record["oracle" if "oracle" in record else "message"] = text
log.write_text("".join(json.dumps(line) + "\n" for line in lines))
END
harmless 71 "$program" campaign report mine
harmless 1 "$program" campaign merge mine

# A controller that nobody has authenticated refuses this rank, with a sentence of 500 bytes; and one that speaks nonsense.
umask 077
echo 0123456789abcdef0123456789abcdef >secret
cat >controller.py <<'END'
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
open("port", "w").write(str(server.getsockname()[1]))
line = server.accept()[0]
what = sys.argv[1].encode()
if sys.argv[2] == "refuse":
    line.sendall(b"lockstp1" + b"n" * 32)
    line.recv(16)
    line.sendall(b"\0" + len(what).to_bytes(2, "big") + what)
line.sendall(what)
line.recv(1)
END
for how in refuse greet; do
  rm -f port
  python3 controller.py "$escape" "$how" &
  controller=$!
  for ((i = 0; i < 600; ++i)); do if [[ -s port ]]; then break; else sleep 0.05; fi; done
  "$program" rank --store "tcp://127.0.0.1:$(cat port)" --secret-file secret --rank 0 >out 2>err
  [[ $? -eq 1 ]] || fail "a rank does not refuse a controller that does not speak like one ($how)"
  [[ $(wc -l <err) == 1 ]] || fail "a rank says more or less than a line of its controller"
  if LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]' out err; then fail "a rank prints what its controller sends ($how)"; fi
  if [[ $how == refuse ]] && ! grep -q 'refused this rank: \\u001b' err; then fail "a rank does not say why it was refused"; fi
  wait "$controller"
done

# Files. A pipe that nobody opens at the other end keeps nobody waiting.
mkfifo pipe
"$program" fuzz --cases 3 --seed 1 >out 2>err || fail "fuzz does not run"
for file in --json --junit --html; do
  timeout 120 "$program" fuzz --cases 3 --seed 1 --fresh "$file" pipe >out 2>err
  [[ $? -eq 1 ]] || fail "fuzz $file does not refuse a pipe that nobody reads"
  grep -q '^lockstep: cannot write pipe: it is a pipe that nobody reads' err || fail "fuzz $file does not say what is wrong with a pipe"
done
expect 1 "the file is empty" timeout 60 "$program" show pipe
expect 1 "not a regular file" timeout 60 "$program" explain-bits pipe --rank pipe --rank pipe
# A symbolic link is not followed: somebody else may have laid it.
echo precious >precious
ln -s precious report.json
expect 1 "it is a symbolic link" "$program" fuzz --cases 3 --seed 1 --json report.json
mkdir found
ln -s "$PWD/precious" "found/sim-1-0.json"
expect 1 "it is a symbolic link" "$program" generate 1 0 -o found/sim-1-0.json
[[ $(cat precious) == precious ]] || fail "a link was followed"
# A limit on the size of files is an error with a line.
bash -c 'ulimit -f 8; exec "$@"' limited "$program" fuzz --cases 200 --seed 1 --json large.json >out 2>err
[[ $? -eq 1 ]] || fail "a report beyond ulimit -f is no error"
grep -q '^lockstep: cannot write large.json: File too large; raise the limit on file sizes (ulimit -f)$' err ||
  fail "nobody says that a report is beyond ulimit -f"
[[ ! -e large.json ]] || fail "a part of a report is left"
# A run that was killed leaves its folder, and the next one removes it.
mkdir temporary
TMPDIR=$PWD/temporary "$program" fuzz --lane sim --time 600 --seed 1 >out 2>err &
run=$!
for ((i = 0; i < 600; ++i)); do if [[ -n $(find temporary -name owner) ]]; then break; else sleep 0.05; fi; done
kill -9 "$run"
wait "$run" 2>/dev/null
[[ $(find temporary -maxdepth 1 -name 'lockstep-run-*' | wc -l) == 1 ]] || fail "a killed run leaves no folder"
left=$(find temporary -maxdepth 1 -name 'lockstep-run-*')
for ((i = 0; i < 600; ++i)); do pgrep -g "$run" >/dev/null || break; sleep 0.05; done
touch -d '-1 hour' "$left/owner"
exec 9<"$left/owner"
flock 9
TMPDIR=$PWD/temporary "$program" fuzz --lane sim --cases 3 --seed 1 >out 2>err
[[ -d $left ]] || fail "a folder that a process still uses is removed"
exec 9<&-
for ((i = 0; i < 100; ++i)); do
  TMPDIR=$PWD/temporary "$program" fuzz --lane sim --cases 3 --seed 1 >out 2>err
  [[ -d $left ]] || break
  sleep 0.1
done
[[ -d $left ]] && fail "the folder of a killed run is still there"

finish "nothing that others wrote did anything"
