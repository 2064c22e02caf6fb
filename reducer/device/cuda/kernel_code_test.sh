#!/usr/bin/env bash
# [ARCHITECTURES="sm_80 sm_90"] kernel_code_test.sh COMPILER SOURCE INCLUDE [FLAG...] -- CUOBJDUMP OBJECT
#
# The compiled kernels round every product and every sum by itself (contract G2, G3), and keep subnormals (G9).
# What is looked at:
#   PTX, which COMPILER makes of SOURCE: products and sums name their rounding (.rn), which is what forbids the
#        assembler to contract them; there is no fma, no mad of floats, and no .ftz;
#   the machine code in OBJECT, for each of ARCHITECTURES (else all it has), with CUOBJDUMP, where there is one: no FFMA, DFMA or HFMA2
#        computes with what the kernels were given, and no instruction but the conversions inside of an integer division
#        has .FTZ. (HFMA2 of -RZ and RZ with two constants is how the assembler writes a constant into a register.)
# An empty COMPILER leaves the PTX out: then the machine code alone is looked at, and has to be there.
# Each check is shown first what it must find. Exit code: 0 when all is right, 1 otherwise.
set -euo pipefail

compiler=$1
source=$2
include=$3
shift 3
flags=()
while [[ $1 != -- ]]; do
  flags+=("$1")
  shift
done
cuobjdump=${2:-}
object=${3:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# wrong_ptx, wrong_sass: the lines of stdin that are wrong.
wrong_ptx() {
  grep -E '(^|[[:space:]])(fma\.|mad\.(rn|rz|rm|rp|ftz|f32|f64)|(mul|add|sub)\.(f|bf)|[a-z0-9.]*\.ftz)' || true
}
wrong_sass() {
  grep -E '[[:space:]](U?[FDH]FMA|HFMA2|HMUL2|HADD2|[A-Z0-9.]*\.FTZ)' |
    grep -vE '[[:space:]]HFMA2(\.MMA)? R[0-9]+, -RZ, RZ, [^,R]+, [^,R]+ ;' |
    grep -vE '[[:space:]]HADD2\.F32 R[0-9]+, -RZ, R[0-9]+(\.reuse)?\.H[01]_H[01] ;' |
    grep -vE '[[:space:]]F2I\.FTZ\.U32(\.F32)?\.TRUNC\.NTZ ' || true
}

fail() {
  printf 'kernel_code_test: %s\n' "$1" >&2
  exit 1
}

# expect_found CHECK LINE, expect_passed CHECK LINE: the controls.
expect_found() { [[ -n $("$1" <<<"$2") ]] || fail "$1 does not find: $2"; }
expect_passed() { [[ -z $("$1" <<<"$2") ]] || fail "$1 finds what is right: $2"; }
expect_found wrong_ptx '	fma.rn.f32 	%f3, %f1, %f2, %f0;'
expect_found wrong_ptx '	mul.f32 	%f3, %f1, %f2;'
expect_found wrong_ptx '	add.rn.ftz.f32 	%f3, %f1, %f2;'
expect_found wrong_ptx '	mad.rn.f64 	%fd3, %fd1, %fd2, %fd0;'
expect_passed wrong_ptx '	mad.lo.s64 	%rd3, %rd1, %rd2, %rd0;'
expect_passed wrong_ptx '	mul.rn.f32 	%f3, %f1, %f2;'
expect_found wrong_sass '        /*0130*/                   FFMA R5, R2, R3, R4 ;'
expect_found wrong_sass '        /*0130*/              @!P0 DFMA R4, R2, R6, R8 ;'
expect_found wrong_sass '        /*0130*/                   FFMA2 R4, R2.F32x2.HI_LO, R6, R8 ;'
expect_found wrong_sass '        /*0130*/                   UFFMA UR5, UR2, UR3, UR4 ;'
expect_found wrong_sass '        /*0130*/                   HFMA2.MMA R5, R2, R3, R4 ;'
expect_found wrong_sass '        /*0130*/                   HFMA2 R5, -RZ, RZ, R7, R8 ;'
expect_found wrong_sass '        /*0130*/                   FADD.FTZ R5, R2, R3 ;'
expect_passed wrong_sass '        /*0130*/                   HFMA2.MMA R5, -RZ, RZ, 0, 5.9604644775390625e-08 ;'
expect_passed wrong_sass '        /*0130*/              @!P0 HADD2.F32 R7, -RZ, R4.reuse.H0_H0 ;'

if [[ -n $compiler ]]; then
  "$compiler" -ptx -arch=compute_90 -std=c++20 "${flags[@]}" -I "$include" -o "$scratch/kernels.ptx" "$source"
  grep -vE '^[[:space:]]*(//|\.)' "$scratch/kernels.ptx" >"$scratch/code.ptx"
  wrong=$(wrong_ptx <"$scratch/code.ptx" | sort | uniq -c)
  [[ -z $wrong ]] || fail "in PTX:
$wrong"
  kernels=$(grep -cE '^(\.visible |\.weak )?\.entry' "$scratch/kernels.ptx" || true)
  products=$(grep -cE 'mul\.rn\.f(32|64)' "$scratch/code.ptx" || true)
  sums=$(grep -cE 'add\.rn\.f(32|64)' "$scratch/code.ptx" || true)
  ((kernels > 0 && products > 0 && sums > 0)) || fail "no arithmetic was found: is $source right?"
  printf 'PTX: %d kernels, %d products and %d sums, each rounded by itself\n' "$kernels" "$products" "$sums"
fi

if [[ -z $cuobjdump ]] || ! command -v "$cuobjdump" >/dev/null; then
  [[ -n $compiler ]] || fail "there is no cuobjdump: nothing can be looked at"
  echo "machine code: skipped, no cuobjdump here"
  exit 0
fi
architectures=${ARCHITECTURES:-}
[[ -n $architectures ]] || architectures=$("$cuobjdump" -lelf "$object" | grep -oE 'sm_[0-9]+[a-z]*' | sort -u) || true
if [[ -z $architectures ]]; then
  [[ -n $compiler ]] || fail "there is no machine code in $object: build with CMAKE_CUDA_ARCHITECTURES set for a GPU"
  "$cuobjdump" -lptx "$object" | grep '\.ptx' >/dev/null || fail "there is neither machine code nor PTX in $object"
  echo "machine code: skipped, there is only PTX in $object"
  exit 0
fi
for arch in $architectures; do
  "$cuobjdump" -sass -arch "$arch" "$object" | sed -E 's|/\*[0-9a-fx]+\*/[[:space:]]*$||' >"$scratch/kernels.sass"
  wrong=$(wrong_sass <"$scratch/kernels.sass" | sed -E 's|/\*[0-9a-f]+\*/||; s/R[0-9]+/R/g' | sort | uniq -c)
  [[ -z $wrong ]] || fail "in the machine code for $arch:
$wrong"
  products=$(grep -cE '[[:space:]][FD]MUL ' "$scratch/kernels.sass" || true)
  sums=$(grep -cE '[[:space:]][FD]ADD ' "$scratch/kernels.sass" || true)
  constants=$(grep -cE '[[:space:]]HFMA2' "$scratch/kernels.sass" || true)
  ((products > 0 && sums > 0)) || fail "no arithmetic was found in the machine code for $arch"
  printf 'machine code for %s: %d products, %d sums, no contraction; %d HFMA2 that write constants\n' \
    "$arch" "$products" "$sums" "$constants"
done
