# Stand-ins for what ci/gpu runs and asks: source it, do not run it. They are small scripts that print and write what the real
# ones do; a test or a rehearsal then replaces one by another.
#
#   stand_in_machine FOLDER      a copy of ci/gpu in FOLDER/root, and all that it finds there: a driver, a nvidia-smi, the tools
#                                of a toolkit, python3 without torch, and programs; PATH holds nothing else
#   play FILE LINE...            a script of that name
#   play_all                     all of them as on a machine where all is right
#   play_gpu NAME DRIVER CUDA CAPABILITY MIB FREE_MIB   what nvidia-smi says
# shellcheck shell=bash disable=SC2016  # what a stand-in expands is its own

play() {
  rm -f "$1"
  printf '#!/bin/bash\n' >"$1"
  printf '%s\n' "${@:2}" >>"$1"
  chmod +x "$1"
}

stand_in_machine() {
  local ci tool kernel_code_test=reducer/device/cuda/kernel_code_test.sh
  ci=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
  place=$1 root=$1/root programs=$1/programs
  mkdir -p "$root/ci" "$root/${kernel_code_test%/*}" "$programs/lib" "$place/bin" "$place/driver/gpus/0"
  cp "$ci/gpu" "$ci/gpu_run.sh" "$ci/lib.sh" "$root/ci/"
  cp "$ci/../$kernel_code_test" "$root/$kernel_code_test"
  export LOCKSTEP_RESULTS=$place/results LOCKSTEP_GPU_TOOLKIT=$place/toolkit LOCKSTEP_GPU_DRIVER=$place/driver
  unset LOCKSTEP_GPU_MINUTE_MS LOCKSTEP_GPU_SEED LOCKSTEP_GPU_BUILD LOCKSTEP_NCCL CUDA_HOME LD_LIBRARY_PATH
  # Nothing of a toolkit that this machine may have: of its programs those alone that the script needs.
  for tool in awk basename bash cat chmod cp cut date dirname env find getconf grep gzip head ldd ln ls mkdir mktemp mv nproc readlink \
    rm sed sleep sort stat strip tail tar tee timeout tr truncate uniq wc; do
    ln -s "$(command -v "$tool")" "$place/bin/$tool"
  done
  PATH=$place/bin
  printf 'toolkit 13.0.88\narchitectures 80-real;90-real;100\n' >"$programs/gpu_programs.txt"
}

play_gpu() {
  play "$place/bin/nvidia-smi" "case \$* in" "-L) echo 'GPU 0: $1' ;;" "*name,*) echo '$1, $2, $4, $5' ;;" \
    "*memory.free*) echo '$6' ;;" "*) echo '| NVIDIA-SMI $2   Driver Version: $2   CUDA Version: $3 |' ;;" esac
}

play_all() {
  local name
  play_gpu "NVIDIA H200" 580.159.04 13.0 9.0 143771 143000
  play "$place/bin/ldconfig" 'exit 0'
  play "$place/bin/python3" 'exit 1'
  play "$place/bin/compute-sanitizer" 'echo "sanitized=${LOCKSTEP_SANITIZED:-} $*" >>"'"$place"'/tools"' \
    'while [[ $1 == --* ]]; do shift 2; done' 'exec "$@"'
  play "$place/bin/cuobjdump" '[[ $1 != -lelf ]] || echo "ELF file 1: kernels.sm_90.cubin"' \
    'echo "        /*0100*/  FMUL R1, R2, R3 ;"' 'echo "        /*0110*/  FADD R1, R2, R3 ;"'
  play "$place/bin/nvdisasm"
  # As GoogleTest: where the filter takes in the test of a machine without a GPU, that is skipped.
  play "$programs/reducer_cuda_test" 'echo "[  PASSED  ] 9 tests."' \
    '[[ $* == *-CudaDeviceWithoutAGpu.* || $* != *CudaDevice\** ]] || echo "skipped: there is a CUDA device"'
  play "$programs/reducer_cuda_nccl_test" 'echo "[  PASSED  ] 15 tests, NCCL ${LOCKSTEP_NCCL:-of the loader}"'
  play "$programs/libnccl-net-lockstep.so"
  for name in cuda_kernels_benchmark cuda_reducer_benchmark; do
    play "$programs/$name" 'printf "argument %s\n" "$@"' 'echo "libraries of '"$name"': ${LD_LIBRARY_PATH:-none}"' \
      'for a; do [[ $a != *out=* ]] || echo {} >"${a#*=}"; done'
  done
  play "$programs/lockstep-seeded" 'echo "$LOCKSTEP_NCCL_PLUGIN" "$@" >>"'"$place"'/fuzzed"' \
    '[[ $* != *seeded:* ]] || exit 71' \
    '[[ $* != replay* ]] || exit 1' \
    'while (($# > 1)); do [[ $1 != --json ]] || echo "{\"cases\": 40}" >"$2"; shift; done' \
    'echo "nccl lane, subject reducer, seed 1: 40 cases in 60.0 s (1 a second), 38 ok, 2 ok with faults, 0 failing"'
}
