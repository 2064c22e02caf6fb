#!/usr/bin/env bash
# python_test.sh PROGRAM [--all]: wrappers in Python under test. Good ones pass, wrong ones are found and replayed, and
# whoever misbehaves is reported in one line, and leaves no process. Without --all (ci/torch python, ci/torch wheel) some
# are left out, as every run loads torch twice; with it the Python needs pytest, too.
# Exit code 77, and a line that says why, where no python3 has torch.
program=$(realpath -- "$1")
all=${2:-}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=properties/subject/torch/python.sh
source "$here/../torch/python.sh"
# shellcheck source=properties/cli/expect.sh
source "$here/../../cli/expect.sh"
export LOCKSTEP_PYTHON=$python

# In a folder of this test, so that its processes can be told from others.
cp -r "$here/examples" "$here/faulty_wrappers.py" .
wrong() { echo "python:$work/faulty_wrappers.py:$1"; }
run() { timeout --signal KILL 300 "$program" "$@"; }

expect 0 " 0 failing" run fuzz --subject "python:$work/examples/all_reduce.py:wrap" --cases 16 --seed 1 --jobs 1

# A rank says how long it waited for a processor, so that a busy machine is told from a failure (rerun.h): two loops on one
# processor wait for each other.
PYTHONPATH=$(dirname -- "$program")/lockstep-python "$python" -W ignore - <<'PY' || fail "a rank does not see that it waits for a processor"
import os, signal, time

from lockstep.training import waits

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
before, other = waits()[str(os.getpid())], os.fork()
while not other:
    pass
until = time.monotonic() + 1
while time.monotonic() < until:
    pass
os.kill(other, signal.SIGKILL)
os.waitpid(other, 0)
assert waits()[str(os.getpid())] - before > 0.1
PY

# Positive controls: what is wrong is found, made small and replayed; the right one passes the same case.
expect 65 "definedness" run fuzz --subject "$(wrong skips_none)" --time 60 --seed 3 --jobs 1 --shrink-time 2 --out found
case_file=$(ls found/gloo-3-*.json | grep -v found.json | head -n 1)
expect 65 "definedness" run replay "$case_file" --subject "$(wrong skips_none)"
expect 0 "ok" run replay "$case_file" --subject "python:$work/examples/all_reduce.py:wrap"

# Ranks connect within the timeout of this case, on a busy machine, too.
echo '{"schema": 1, "timeout_ms": 3000, "program": {"steps": [{}]}}' >case.json

# What a profile declares of loops: an optimizer that steps, ranks that begin with other weights, where no_sync() belongs,
# and steps that it excludes, which are counted.
found() { # found CODE TEXT FUNCTION
  expect "$1" "$2" run fuzz --subject "$(wrong "$3")" --time 60 --seed 5 --jobs 1 --shrink-time 0 --fresh --out found
}
right() { # right FUNCTION
  expect 0 " 0 failing" run fuzz --subject "$(wrong "$1")" --cases 10 --seed 5 --jobs 1 --fresh --out found
}
# The bits of a gradient are those of its values, also if its memory holds the negative.
right negates_lazily
found 71 "the module saw a parameter with the value" computes_with_old_values
found 71 "the module saw a parameter with the value" begins_alone
found 65 "definedness" hides_that_the_backward_decides
LOCKSTEP_EXCLUDED=$work/excluded right counts_passes_that_nobody_makes
grep -Eq '^[1-9][0-9]* of [1-9][0-9]* steps: local step$' excluded || fail "what was excluded is not counted"
expect 1 "its attribute \`no_sync\` is 'sideways': give one of" run replay case.json --subject "$(wrong unknown_place_of_no_sync)"
expect 1 "its attribute \`excludes\` must be a list" run replay case.json --subject "$(wrong excludes_without_a_list)"

# A hook that runs twice in a backward: both of its contributions count, where that is declared.
found 65 "oracle: bits" first_hook
right last_hook
expect 1 "it declares 'repeated_hooks', which is an error in the contract 'torch'" run replay case.json \
  --subject "$(wrong repeated_hooks_of_torch)"

# A rank that skips a step: the others raise in it, within the timeout, where that is declared.
absent='"variants": [{"forwards": [{"nodes": [{}], "outputs": [{}]}]}, {"skip": true}]'
echo '{"schema": 4, "timeout_ms": 3000, "program": {"steps": [{'"$absent"'}, {}]}}' >absent.json
expect 71 "a rank it depends on has left it alone" run replay absent.json --subject "$(wrong swallows_errors)"
expect 0 "ok" run replay absent.json --subject "$(wrong notices_absent_ranks)"
expect 1 "the case needs absent (ranks that take no part in a pass)" run replay absent.json --subject "$(wrong skips_none)"

# One case shows each of the others.
misbehaves() { # misbehaves CODE FUNCTION TEXT
  expect "$1" "$3" run replay case.json --subject "$(wrong "$2")"
}
misbehaves 71 changes_inputs "the module received the input 2.0"
echo '{"schema": 1, "timeout_ms": 3000, "program": {"parameters": [{"dtype": "bfloat16"}], "steps": [{}]}}' >bfloat16.json
expect 65 "oracle: bits" run replay bfloat16.json --subject "$(wrong takes_bfloat16_for_float16)"
expect 71 "a gradient is torch.float32, and its parameter torch.bfloat16" run replay bfloat16.json --subject "$(wrong main_grad_with_a_rest)"
expect 0 "ok" run replay bfloat16.json --subject "$(wrong main_grad)"
expect 1 "the case needs bfloat16" run replay bfloat16.json --subject "$(wrong skips_none)"
misbehaves 65 ignores_roots "oracle: bits"
misbehaves 65 loses_moved_parameters "oracle: bits"
expect 0 "ok" run replay case.json --subject "$(wrong allows_everything)"
misbehaves 71 keeps_own_buffers "step 0 the module saw a buffer with the value 2, and it is 1 on rank 0"
two_forwards='{"variants": [{"forwards": [{"nodes": [{}], "outputs": [{}]}, {"nodes": [{}], "outputs": [{}]}]}]}'
echo '{"schema": 1, "timeout_ms": 3000, "program": {"steps": ['"$two_forwards"']}}' >two_forwards.json
expect 71 "modified by an inplace operation" run replay two_forwards.json --subject "$(wrong broadcasts_in_place)"
expect 0 "ok" run replay two_forwards.json --subject "$(wrong broadcasts_copies)"
# The same with buffers of the program: a node keeps one, which the second forward's broadcast changes.
sed 's/"program": {/&"buffers": [{"sizes": [2]}], /' two_forwards.json >with_buffers.json
expect 71 "modified by an inplace operation" run replay with_buffers.json --subject "$(wrong ddp_with_buffers)"
expect 0 "ok" run replay with_buffers.json --subject "$(wrong broadcasts_copies)"
expect 1 "state (buffers and values of parameters), which the subject" run replay with_buffers.json --subject "$(wrong skips_none)"
misbehaves 71 late_on_one_rank "the ranks are out of step after the backwards of step 0"
expect 0 "ok" run replay case.json --subject "$(wrong late_on_one_rank_alone)"
misbehaves 68 leaves_a_process "left processes behind"
expect 1 "there is no file 'nowhere.py'" run replay case.json --subject python:nowhere.py:wrap
expect 1 "has no function 'nothing'; it has: Wrapper" run replay case.json --subject "$(wrong nothing)"
printf '#!/bin/sh\nexec %s -S "$@"\n' "$python" >without_torch && chmod +x without_torch
LOCKSTEP_PYTHON=./without_torch expect 1 "has no torch (ModuleNotFoundError" run replay case.json --subject "$(wrong raises)"

# Where ranks start other collectives, PyTorch's detailed checks say what they are. What ends by itself has no such line.
mismatch() { # mismatch FUNCTION TEXT
  run replay case.json --subject "$(wrong "$1")" >out 2>err && fail "$1: the ranks' collectives differ, and nothing is said"
  grep -Eq "^  rank 0, step 0: .*$2" out || fail "$1: the error of the detailed checks is not told: $(cat out)"
}
mismatch gathers_on_one_rank "Detected mismatch between collectives on ranks.*ALLREDUCE.*ALLGATHER"
mismatch leaves_one_out "Ranks 1 failed to pass monitoredBarrier"
misbehaves 68 ends_the_process "exited with status 3"
if grep -q "detailed checks" out; then fail "a process that ends by itself is explained by a mismatch"; fi

nothing_is_left() {
  if pgrep -f "$work/|sleep 4711" >left; then fail "processes are left: $(tr '\n' ' ' <left)"; fi
}
nothing_is_left
if [[ $all != --all ]]; then finish "every wrapper is reported as what it is"; exit; fi

expect 0 " 0 failing" run fuzz --subject "python:$work/examples/ddp.py:wrap" --cases 40 --seed 2 --jobs 2
for each in broadcasts_copies main_grad allows_everything sees_what_the_optimizer_did begins_together lets_the_backward_decide; do right "$each"; done

# The calls come in the order of the program: the gradients of microbatches under no_sync are averaged one by one, which
# is what is known of PyTorch's reducer, and not what Lockstep's contract says.
pipeline=$here/../../corpus/pipeline-of-microbatches.json
expect 0 "ok" run replay "$pipeline" --subject "python:$work/examples/ddp.py:wrap"
expect 65 "bits" run replay "$pipeline" --subject "python:$work/examples/ddp.py:wrap" --contract lockstep

# What a wrapper declares of its sums: then values round, and cases have three ranks. Right ones pass, and lies are found.
expect 0 " 0 failing" run fuzz --subject "$(wrong adds_by_rank)" --cases 30 --seed 5 --jobs 2
expect 65 "bits" run fuzz --subject "$(wrong adds_from_the_last)" --time 60 --seed 5 --jobs 2 --shrink-time 0 --out found
expect 65 "bits" run fuzz --subject "$(wrong divides_before)" --time 60 --seed 5 --jobs 2 --shrink-time 0 --out found
expect 0 " 0 failing" run fuzz --subject "$(wrong sums)" --cases 20 --seed 5 --jobs 2
expect 65 "bits" run fuzz --subject "$(wrong averages)" --time 60 --seed 5 --jobs 2 --shrink-time 0 --out found
expect 1 "it declares the order 'alphabetical': give a library" run replay case.json --subject "$(wrong unknown_order)"
expect 1 "it declares the order 'mpich==1.0', and known are those of" run replay case.json --subject "$(wrong unknown_library)"
expect 1 "it declares the scale 'halve': give 'multiply before'" run replay case.json --subject "$(wrong unknown_scale)"

# A wrapper that looks at its flag in the backward says so; else its local backwards are averages where they must not be.
expect 0 " 0 failing" run fuzz --subject "$(wrong flag_in_backward)" --cases 40 --seed 4 --jobs 2
expect 65 "bits" run fuzz --subject "$(wrong loses_local_gradients)" --time 60 --seed 4 --jobs 2 --shrink-time 0 --out found
expect 65 "oracle: (bits|definedness)" run fuzz --subject "$(wrong flag_in_backward_undeclared)" --time 60 --seed 4 --jobs 2 --shrink-time 0 --out found
expect 1 "its attribute .no_sync. is 'both', and it declares interleaved" run replay case.json --subject "$(wrong cannot_interleave)"

expect 65 "bits" run fuzz --subject "$(wrong counts_passes)" --time 60 --seed 4 --jobs 2 --shrink-time 0 --out found
misbehaves 65 does_not_divide "these bits are"
misbehaves 71 raises "ValueError: the wrapper does not like this module"
misbehaves 71 raises_in_backward "ValueError: no backward today"
misbehaves 71 raises_without_a_text "SaysNothing"
misbehaves 71 exits "SystemExit: 3"
misbehaves 66 hangs "no end within the time limit"
misbehaves 66 hangs_in_backward "no end within the time limit"
misbehaves 71 returns_a_list "has to return a torch.nn.Module"
misbehaves 71 changes_inputs_in_place "the wrapper changed the input that it was given"
misbehaves 71 returns_a_dict "the wrapper returned dict, and the module a list of tensors"
misbehaves 71 changes_outputs "the wrapper returned other values than the module"
misbehaves 71 does_not_call "without calling the module"
misbehaves 68 leaves_an_orphan "left processes behind"
misbehaves 68 closes_descriptors "the process of the subject ended: rank"
misbehaves 68 forks "came back twice from a call of the wrapper, which forks"

# What cannot be a subject is refused in one line.
expect 1 "does not name a function" run replay case.json --subject python:case.json
expect 1 "is no function" run replay case.json --subject "$(wrong not_a_function)"
expect 1 "it declares 'teleport', and a wrapper in Python can have: dynamic" run replay case.json --subject "$(wrong wrong_declaration)"
expect 1 "it declares the contract 'nobody's'" run replay case.json --subject "$(wrong wrong_contract)"
expect 1 "has the lane gloo alone" run replay case.json --lane sim --subject "$(wrong raises)"
expect 1 "takes no faults" run fuzz --faults node_throws --subject "$(wrong raises)"
echo 'import torch; x = (' >broken.py
expect 1 "broken.py cannot be loaded (line 1): SyntaxError" run replay case.json --subject python:broken.py:wrap
echo 'import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()' >threads.py
expect 1 "starts threads when it is loaded" run replay case.json --subject python:threads.py:wrap
echo 'import os; os._exit(0)' >ends.py
expect 1 "exited with status 0 without an answer" run replay case.json --subject python:ends.py:wrap
LOCKSTEP_PYTHON=./no_python expect 1 "./no_python: it cannot be started: name the program of a Python" run replay case.json --subject "$(wrong raises)"
echo '{"schema": 1, "program": {"values": "general", "steps": [{}]}}' >general.json
expect 1 "the case needs rounding" run replay general.json --subject "$(wrong raises)"

# A torch that crashes while it is loaded, and a file that hangs then.
mkdir -p crashing/torch
echo 'import os, signal; os.kill(os.getpid(), signal.SIGSEGV)' >crashing/torch/__init__.py
PYTHONPATH=$work/crashing expect 1 "it was killed by signal 11 (Segmentation fault) without an answer" \
  run replay case.json --subject "$(wrong raises)"
echo 'import time; time.sleep(4711)' >hangs_at_once.py
expect 1 "it has not loaded the file within 120 s" run replay case.json --subject python:hangs_at_once.py:wrap

# The module: a session of five lines, what it raises, and the fixture for pytest. A wheel has both beside each other.
package=$(dirname -- "$program")/lockstep-python
fixture=()
if [[ -d $package ]]; then
  export PYTHONPATH=$package
  fixture=(-p lockstep.pytest_plugin)
fi
script() { # script FILE LINE...
  printf '%s\n' "${@:2}" >"$1"
}
script mine.py 'import lockstep' 'from examples.all_reduce import wrap as all_reduced' 'def wrap(module, **options):' \
  '    return all_reduced(module)' 'lockstep.fuzz(wrap, cases=4, seed=1, jobs=1, least=4)'
expect 0 " 4 ok, 0 ok with faults, 0 failing" "$python" mine.py
sed 's/, least=4//' mine.py >few.py
"$python" few.py >out 2>err && fail "a run of four cases is no evidence, and passes"
grep -q "inconclusive: 4 of the cases passed, and fewer than 50 say little" out || fail "few cases are not told"
# The command that is printed ends as the fuzzing did, and so does the case alone.
replays() { # replays CODE FUNCTION
  expect "$1" "replay: " run fuzz --subject "$(wrong "$2")" --time 60 --seed 5 --jobs 1 --shrink-time 2 --fresh --out found
  local line
  line=$(sed -n 's/^replay: //p' out)
  case_file=$(sed -n 's/^case:   //p' out)
  expect "$1" "FAIL: " timeout --signal KILL 300 bash -c "$line"
  expect "$1" "FAIL: " run replay "$case_file"
}
replays 65 skips_none
replays 65 does_not_divide
replays 71 raises_in_backward
sed 's/cases=4/seconds=1000/' mine.py >endless.py
script interrupts.py 'import signal, subprocess, sys' \
  '# What a shell runs in the background ignores Ctrl-C.' \
  'heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)' \
  'session = subprocess.Popen([sys.executable, "endless.py"], stdout=subprocess.PIPE, text=True, preexec_fn=heed)' \
  'session.stdout.readline()' 'session.send_signal(signal.SIGINT)' 'said = session.communicate()[0]' \
  'print("a summary:", " 0 failing" in said, "signal:", -session.returncode)'
expect 0 "a summary: True signal: 2" "$python" interrupts.py
nothing_is_left
script excludes.py 'import lockstep' 'from faulty_wrappers import counts_passes_that_nobody_makes as wrap' \
  'lockstep.fuzz(wrap, cases=10, seed=5, jobs=1, least=1)'
expect_match 0 "^excluded by the profile: [1-9][0-9]* cases end before a step with: local step$" "$python" excludes.py
script wrong.py 'import lockstep' 'from faulty_wrappers import does_not_divide' 'try:' \
  '    lockstep.fuzz(does_not_divide, cases=30, seed=1, jobs=1, shrink_time=0)' 'except lockstep.Failure as failure:' \
  '    print("code", failure.code, "bits" in failure.report)'
expect 0 "code 65 True" "$python" wrong.py
script refused.py 'import lockstep' 'for wrap in (lambda module: module, len):' '    try:' '        lockstep.fuzz(wrap)' \
  '    except lockstep.Refused as refusal:' '        print("refused", refusal.code, refusal)'
expect 0 "is no function at the top level of a file, where each rank could load it" "$python" refused.py
script no_file.py 'import lockstep' 'from faulty_wrappers import wrong_contract' 'try:' '    lockstep.fuzz(wrong_contract)' \
  'except lockstep.Refused as refusal:' '    print("refused", refusal.code, "nobody" in str(refusal))'
expect 0 "refused 1 True" "$python" no_file.py
if "$python" -c 'import pytest' 2>/dev/null; then
  script test_mine.py 'import lockstep, pytest' 'from faulty_wrappers import does_not_divide' \
    'from examples.all_reduce import wrap' 'def test_right(lockstep_fuzz):' \
    '    lockstep_fuzz(wrap, cases=4, seed=1, jobs=1, least=4)' 'def test_wrong(lockstep_fuzz, tmp_path):' \
    '    with pytest.raises(lockstep.Failure, match="^wrong bits"):' \
    '        lockstep_fuzz(does_not_divide, cases=30, seed=1, jobs=1, shrink_time=0)' \
    '    assert list(tmp_path.glob("gloo-1-*.json"))'
  expect 0 "2 passed" "$python" -m pytest -q "${fixture[@]}" test_mine.py
else
  fail "$python has no pytest: pip install pytest, or ci/setup --torch for Debian's"
fi

nothing_is_left
finish "every wrapper is reported as what it is"
