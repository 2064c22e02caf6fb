#!/usr/bin/env bash
# wrappers_test.sh [PROGRAM]: wrappers/run.py judges cells by what the program says of them, refuses wrong commands in one line,
# and leaves nothing behind. torch and the program are played by small scripts. With PROGRAM the kept cases of the wrappers are
# replayed by it, on a Python that has torch; exit code 77 where there is none.
program=$(realpath -- "${1:-/}")
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=properties/cli/expect.sh
source "$here/../../cli/expect.sh"

if [[ -f $program ]]; then
  # shellcheck source=properties/subject/torch/python.sh
  source "$here/../torch/python.sh"
  expect 0 "found; " timeout --signal KILL 600 python3 "$here/wrappers/run.py" --program "$program" --python "$python" --kept
  if grep -q "not \(found\|clean\)" out; then fail "a kept case is not what it was"; fi
  finish "the kept cases fail as they did, and not with the profiles that ship"
  exit
fi

# A folder of profiles, a torch that can be imported, and a program that says what a function's name asks for.
mkdir -p wrappers torch/distributed bin temporary
cp "$here"/wrappers/{run,profiles,unsayable}.py wrappers
echo 'some-library==1.2' >wrappers/requirements.txt
cp -r "$here/lockstep" .
touch torch/__init__.py torch/distributed/__init__.py
export PYTHONPATH=$work TMPDIR=$work/temporary
profile() { # profile NAME LINE...
  printf '%s\n' 'from profiles import guess' "${@:2}" 'def wrap(module):' '    pass' 'wrap.can = "frozen"' >"wrappers/$1.py"
}
function_of() { printf '@guess("", %s)\ndef %s(module):\n    pass\n' "$2" "$1"; }
profile good "$(function_of wrong '"bits"')" "$(function_of right None)"
profile other_cause "$(function_of wrong '"definedness"')"
profile never_found "$(function_of right '"bits"')"
profile dirty "$(function_of wrong None)"
profile few "$(function_of few None)"
profile unusable "$(function_of unusable None)"
profile elsewhere 'import some_library.part'
sed -i 's/^INSTALL = {/&"some_library": "some-library", /' wrappers/run.py
profile newer 'from torch import not_yet'
cat >bin/lockstep <<'SCRIPT'
#!/usr/bin/env bash
arguments=" $* "
subject=${arguments#* --subject } json=${arguments#* --json } out=${arguments#* --out }
subject=${subject%% *} json=${json%% *} out=${out%% *}
report() { if [[ $1 != replay* ]]; then echo "{\"cases\": $1}" >"$json"; fi; }
case ${subject##*:} in
  wrong)
    [[ $1 == replay ]] || { echo '{"cases": 7}' >"$json" && mkdir -p "$out" && echo '{}' >"$out/gloo-1-6.json"; }
    printf '%s\n' 'FAIL: wrong bits (oracle: bits, exit code 65)' '' 'rank 1, step 2, parameter p0, element 0 of 1:' \
      'found:  seed 1, case 6, after 0.4 s and 7 executions; made small'
    exit 65
    ;;
  few) report 2 ;;
  unusable) echo 'lockstep: the subject cannot be used' && exit 1 ;;
  slow) echo "$$" >"$SLOW" && exec sleep 4711 ;;
  *)
    [[ $1 == replay ]] || report 50
    echo '2 of 4 steps: uneven use' >>"$LOCKSTEP_EXCLUDED"
    ;;
esac
SCRIPT
chmod +x bin/lockstep
wrappers() { timeout --signal KILL 60 python3 wrappers/run.py --program bin/lockstep --python python3 "$@"; }
nothing_is_left() {
  local left
  left=$(ls temporary)
  [[ -z $left ]] || fail "it leaves $left in the temporary folder"
}
says() { grep -Eq -- "$1" out || fail "it does not say '$1'"; }

expect_match 0 "^good +wrong +found 7, 0 s$" wrappers good --json good.json
says '^good +wrap +clean 50$'
says '^good +right +clean 50$'
says 'excluded from 1 cases on: uneven use$'
says 'wrong bits - rank 1, step 2, parameter p0'
says '^\| wrong \| found 7, 0 s \|$'
expect 0 "7 wrong bits - rank 1" python3 -c 'import json
cells = json.load(open("good.json"))["cells"]
print([(cell["found_after_cases"], cell["cause"]) for cell in cells if cell["function"] == "wrong"][0][0], cells[1]["cause"])'
# With --cases cells end after their cases, and not after a time.
sed -i '2i [[ " $* " != *" --cases "* || " $* " == *" --time "* ]] || echo "$*" >>'"$work/by_cases" bin/lockstep
expect 0 "found 7" wrappers good --cases 4
limits=$(sed 's/.*--subject [^ ]*:\([a-z]*\) --cases \([0-9]*\) .*/\1 \2/' by_cases | tr '\n' ' ')
[[ $limits == "wrap 4 wrong 40 right 4 " ]] || fail "the cells have '$limits' cases"
expect_match 1 "^other_cause +wrong +not clean: wrong bits - rank 1" wrappers other_cause
expect_match 1 "^never_found +right +not found in 50$" wrappers never_found
expect_match 1 "^dirty +wrong +not clean: wrong bits" wrappers dirty
expect_match 2 "^few +few +no answer: 2 cases are too few$" wrappers few
expect_match 2 "^unusable +unusable +no answer: lockstep: the subject cannot be used$" wrappers unusable

# What is not there is left out, unless it was named.
rm wrappers/{other_cause,never_found,dirty,few,unusable}.py
expect_match 0 "^elsewhere +not installed: python3 -m pip install some-library==1.2$" wrappers
says '^newer +not for this version: ImportError: cannot import name'
says '^not sayable:$'
expect 1 "the wrapper elsewhere is not installed: python3 -m pip install some-library==1.2" wrappers elsewhere
expect 1 "the wrapper newer is not for this version: ImportError" wrappers newer
expect 1 "there is no wrapper 'gud'; there are: elsewhere good newer" wrappers gud
expect 1 "cannot write nowhere/good.json" wrappers good --json nowhere/good.json
expect 1 "./no_python cannot be started" python3 wrappers/run.py --program bin/lockstep --python ./no_python good
mv torch elsewhere
printf '%s\n' '#!/usr/bin/env bash' 'exec python3 -S "$@"' >bin/bare_python # the system's Python may have a torch of its own
chmod +x bin/bare_python
expect 1 "has no torch: bin/bare_python -m pip install torch" wrappers good --python bin/bare_python
mv elsewhere torch
expect 0 "elsewhere" wrappers --list

# Kept cases: the guess fails, and the profile does not.
expect 0 "found 7" wrappers good --keep
[[ -f wrappers/cases/good-wrong.json ]] || fail "the case is not kept"
expect_match 0 "^good +wrong +found; excluded$" wrappers good --kept
sed -i 's/^def wrap/def wrong_once(module):\n    pass\ndef wrap/; s/"bits"/"definedness"/' wrappers/good.py
expect_match 1 "^good +wrong +not found: wrong bits" wrappers good --kept
nothing_is_left

# Ctrl-C ends the program, and leaves neither process nor folder.
profile slow "$(function_of slow None)"
export SLOW=$work/slow.pid
# What a shell runs in the background ignores Ctrl-C.
cat >interrupts.py <<'SCRIPT'
import os, signal, subprocess, sys, time
heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None
run = subprocess.Popen([sys.executable, "wrappers/run.py", "--program", "bin/lockstep", "--python", "python3", "slow"], preexec_fn=heed)
while not os.path.exists(os.environ["SLOW"]):
    time.sleep(0.05)
run.send_signal(getattr(signal, sys.argv[1]))
print("code", run.wait())
SCRIPT
for each in SIGINT SIGTERM; do
  rm -f "$SLOW"
  expect 0 "code 130" timeout --signal KILL 60 python3 interrupts.py "$each"
  if kill -0 "$(cat "$SLOW")" 2>/dev/null; then fail "the program is still there after $each"; fi
  nothing_is_left
done
finish "wrappers are judged by their profiles"
