#!/usr/bin/env bash
# cuda_torch_model_test.sh: cuda_torch_model.py on the host says when there is no lockstep.torch, passes a reducer that has
# PyTorch's bits, and finds one that changes a gradient in its last bits. (Its lockstep.torch are stand-ins over PyTorch's own
# reducer.) Skipped (77) where python3 has no torch.
# shellcheck source=ci/checks/test_lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../ci/checks/test_lib.sh"
script=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/cuda_torch_model.py
/usr/bin/python3 -c 'import torch.distributed as d, sys; sys.exit(not d.is_available())' 2>/dev/null ||
  { echo "skipped: /usr/bin/python3 has no torch" && exit 77; }
model() { run env OMP_NUM_THREADS=1 /usr/bin/python3 "$script" --on-host --steps 3 --module "$scratch/$1" --json "$scratch/$1.json"; }
# stand_in NAME LINE...: a lockstep.torch of these lines, behind its import of PyTorch's reducer
stand_in() {
  mkdir -p "$scratch/$1/lockstep"
  : >"$scratch/$1/lockstep/__init__.py"
  printf '%s\n' 'from torch.nn.parallel import DistributedDataParallel as Ddp' "${@:2}" >"$scratch/$1/lockstep/torch.py"
}

claim "where nothing was built it says so"
mkdir "$scratch/none"
model none
expect_code 77
expect_text "^skipped: not built: there is no lockstep.torch in .*/none$"
stand_in broken 'raise ImportError("there is no extension for PyTorch 1.13")'
model broken
expect_code 77
expect_text '^skipped: not built: there is no extension for PyTorch 1.13$'

claim "equal bits are told with the time of a step"
stand_in right 'DistributedDataParallel = Ddp'
model right
expect_code 0
expect_text ', 2 ranks, 3 steps: equal bits in 8 parameters; a step takes [0-9.]+ ms with lockstep.torch, [0-9.]+ ms with PyTorch'
grep -q '"parameters": 8' "$scratch/right.json" || fail "expected the figures in the file"

claim "a gradient that is wrong in its last bits is found"
stand_in wrong 'def DistributedDataParallel(module):' '    run = Ddp(module)' \
  '    list(module.parameters())[3].register_hook(lambda gradient: gradient * (1 + 2.0 ** -20))' '    return run'
model wrong
expect_code 65
expect_text '^rank [01], against PyTorch.s reducer: other bits in '
[[ ! -e $scratch/wrong.json ]] || fail "expected no figures"

claim "an error of the reducer is a failure"
stand_in failing 'def DistributedDataParallel(module):' '    raise RuntimeError("out of order")'
model failing
expect_code 1
expect_text 'RuntimeError: out of order'
finish
