#!/usr/bin/env bash
# findings/without_cuda.sh FOLDER
#
# PyPI's torch for Linux links NVIDIA's libraries, of 2.8 GB, which a program on CPUs never calls. For each of those that
# is missing in the virtual environment FOLDER, this script compiles a library of that name whose functions return
# cudaErrorInsufficientDriver (35), so that torch imports and finds no GPU. It does nothing where there is no torch.
set -euo pipefail
libraries=$(echo "$1"/lib/python3*/site-packages/torch/lib)
[[ -e $libraries/libtorch_cuda.so ]] || exit 0
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
cd -- "$libraries"
users=(libtorch*.so libc10*.so libcaffe2*.so)

# The functions that torch asks for, as NAME or NAME@VERSION.
LC_ALL=C readelf --wide --dyn-syms "${users[@]}" |
  awk '$7 == "UND" && $8 ~ /^_*(cu|nv|nccl)/ { print $8 }' | sort -u >"$scratch/asked"

# The names of functions that a library without symbol versions has.
prefix_of() {
  case $1 in
    libcuda.*) echo '^cu[A-Z]' ;;
    libcudart.*) echo '^_*cuda' ;;
    libcufile.*) echo '^cuFile' ;;
    libcusparseLt.*) echo '^cusparseLt' ;;
    libnccl.*) echo '^nccl' ;;
    *) sed 's/^lib/^/; s/[.].*//' <<<"$1" ;;
  esac
}

for library in $(objdump -p "${users[@]}" | awk '$1 == "NEEDED" { print $2 }' | grep -E '^lib(cu|nv|nccl)' | sort -u); do
  [[ ! -e $library ]] || continue
  versions=$(objdump -p "${users[@]}" |
    awk -v of="$library:" '/required from/ { on = $3 == of } on && /^ +0x/ { print $4 }' | sort -u)
  rm -f -- "$scratch/code.c" "$scratch/versions"
  for version in $versions; do
    sed -n "s/@$version\$//p" "$scratch/asked" >"$scratch/names"
    sed 's/.*/int &(void) { return 35; }/' "$scratch/names" >>"$scratch/code.c"
    { echo "$version { global:" && sed 's/$/;/' "$scratch/names" && echo "};"; } >>"$scratch/versions"
  done
  options=()
  if [[ -n $versions ]]; then
    options=("-Wl,--version-script=$scratch/versions")
  else
    { grep -v @ "$scratch/asked" | grep -E "$(prefix_of "$library")" || true; } |
      sed 's/.*/int &(void) { return 35; }/' >"$scratch/code.c"
  fi
  cc -w -shared -fPIC -o "$library" "$scratch/code.c" -Wl,-soname,"$library" "${options[@]}"
done
