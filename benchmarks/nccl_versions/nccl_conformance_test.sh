#!/usr/bin/env bash
# nccl_conformance_test.sh PROGRAM PLUGIN EMPTY_PLUGIN FOLDER
#
# `nccl_conformance` finds what is planted in libraries that play NCCL (FOLDER/played_nccl_*.so), and
# nothing in a library beside itself. It needs no NCCL.
# shellcheck disable=SC2016  # the report has such quotes
# shellcheck source=ci/checks/test_lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../ci/checks/test_lib.sh"
program=$1 plugin=$2 empty=$3 played=$4
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
cache=$scratch/cache

# conformance VERSION...: the program's two streams, in $output
conformance() {
  run "$program" --cache "$cache" --stubs "$root/reducer/comm/nccl/test_headers" --plugin "$plugin" \
    --empty-plugin "$empty" --limit 2 --json "$scratch/report.json" "$@"
}

# put VERSION LIBRARY [FIELD...]: a version in the cache; the fields stand behind those of 2.18.3
put() {
  local folder=$cache/$1 field
  mkdir -p "$folder/lib" "$folder/include"
  cp "$played/played_nccl_$2.so" "$folder/lib/libnccl.so.2"
  {
    cat <<'HEADER'
#include <cuda_runtime.h>
#include <limits.h>
#define NCCL_MAJOR 2
#define NCCL_VERSION_CODE 21803
#define NCCL_CONFIG_INITIALIZER {                      \
  sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, \
  INT_MIN, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN }
typedef struct ncclComm* ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;  // typedef struct { int none; } ncclComment_t;
typedef struct ncclConfig_v21700 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  /* int commented; */
  int blocking, cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char *netName;
  int splitShare;
HEADER
    for field in "${@:3}"; do printf '  %s;\n' "$field"; done
    printf '} ncclConfig_t;\nint ncclGetVersion(int* version);\nint ncclCommFinalize(ncclComm_t comm);\n'
  } | sed 's/int blocking, cgaClusterSize;/int blocking;\n  int cgaClusterSize;/' >"$folder/include/nccl.h"
}

claim "a library beside itself has no difference, and contradicts nothing"
put 2.18.3 nothing
put 2.18.3-again nothing
conformance 2.18.3 2.18.3-again
expect_code 0
expect_text '^\| ncclGetVersion \| 21803 \| 21803 \|$'
expect_text '^\| network with our plug-in \| Lockstep \| Lockstep \|$'
expect_text '^\| empty plug-in: ncclNetPlugin \| v6 \| v6 \|$'
expect_text '^\| our plug-in: ncclNetPlugin \| v6\* \| v6\* \|$'
expect_text '^\| splitShare \| at 40, undefined \| at 40, undefined \|$'
expect_text '^\| ncclCommInitRankConfig, one rank, blocking \| ncclUnhandledCudaError \| ncclUnhandledCudaError \|$'
expect_no_text '2.18.3 -> 2.18.3-again'
[[ $(grep -c '^None\.$' <<<"$output") == 2 ]] || fail "expected no problem and no difference"
grep -q '"problems": \[\]' "$scratch/report.json" || fail "expected an empty list of problems in the JSON"

claim "every planted difference is a line with both values"
put 2.18.3-planted differences
conformance 2.18.3 2.18.3-planted
expect_code 0
expect_text '^- 2.18.3 -> 2.18.3-planted, other functions: `-` -> `exported alone`: ncclPlanted$'
expect_text '^- 2.18.3 -> 2.18.3-planted, environment: `-` -> `yes`: NCCL_PLANTED$'
expect_text '^- 2.18.3 -> 2.18.3-planted, plug-in tables: `-` -> `yes`: ncclNetPlugin_v7$'
expect_text '^- 2.18.3 -> 2.18.3-planted, lookups in a plug-in: `v6` -> `v7 v6`: empty plug-in: ncclNetPlugin$'
expect_text '^- 2.18.3 -> 2.18.3-planted, calls without a device: `ncclInvalidUsage` -> `ncclSuccess`: ncclGroupEnd, of an empty group; ncclGroupEnd, without a start$'
[[ $(grep -c '^- 2.18.3 -> ' <<<"$output") == 6 ]] || fail "expected six differences"

claim "a call that ends the process contradicts what Lockstep assumes, however it ends it"
put 2.18.3-crash crash
put 2.18.3-exit exit
conformance 2.18.3-crash 2.18.3-exit
expect_code 2
expect_text '^- 2.18.3-crash: ncclCommAbort, null ended the process by signal 6 \(Aborted\)$'
expect_text '^- 2.18.3-exit: ncclCommDestroy, null ended the process with code 0$'
expect_text '^nccl_conformance: 2.18.3-exit: ncclCommDestroy, null ended the process with code 0$'

claim "a call that does not return is ended at its limit"
put 2.18.3-hang hang
conformance 2.18.3-hang
expect_code 2
expect_text '^- 2.18.3-hang: ncclCommCount, null did not return within 2 s$'

claim "a library that takes no plug-in contradicts"
put 2.18.3-own own_network
conformance 2.18.3-own
expect_code 2
expect_text "^- 2.18.3-own: with our plug-in the network is 'Socket', and not 'Lockstep' \(tables looked up: -\)$"

claim "a function that the version should have, and lacks, is named with the version"
put 2.18.3-small without_split
conformance 2.18.3-small
expect_code 2
expect_text '^- 2.18.3-small: nccl_api.h has ncclCommSplit since 2.18.1, and the library lacks it$'

claim "a library without a function that every version has is refused with the name and the version"
put 2.18.3-none without_all_reduce
conformance 2.18.3-none
expect_code 2
expect_text "^- 2.18.3-none: NCCL: '.*' says that it is 2.18.3, but lacks ncclAllReduce: use NCCL as it was released$"

claim "a field that nccl_api.h does not know, and one at another place, are named"
put 2.18.3-field nothing 'int planted'
sed -i 's/int minCTAs;/double wide;\n  int minCTAs;/; s/INT_MIN, NULL/INT_MIN, INT_MIN, NULL/' "$cache/2.18.3-field/include/nccl.h"
conformance 2.18.3-field
expect_code 2
expect_text '^- 2.18.3-field: ncclConfig_t has 56 bytes in the header, 48 in nccl_api.h$'
expect_text '^- 2.18.3-field: the field planted of ncclConfig_t is not known to nccl_api.h$'
expect_text '^- 2.18.3-field: the field wide of ncclConfig_t is not known to nccl_api.h$'
expect_text '^- 2.18.3-field: the field minCTAs of ncclConfig_t is at 32 with 4 bytes in the header, at 24 with 4 bytes in nccl_api.h$'

claim "a default that differs is named with both values"
put 2.18.3-default nothing
sed -i 's/INT_MIN, NULL/7, NULL/' "$cache/2.18.3-default/include/nccl.h"
conformance 2.18.3-default
expect_code 2
expect_text '^- 2.18.3-default: the field maxCTAs of ncclConfig_t begins as 7 in the header, as undefined in nccl_api.h$'

claim "a folder with another version in it is told, and so is a header of another version"
put 2.21.5 nothing
sed -i 's/21803/21805/' "$cache/2.21.5/include/nccl.h"
conformance 2.21.5
expect_code 2
expect_text '^- 2.21.5: the library in this folder is 2.18.3$'
expect_text '^- 2.21.5: the library is 2.18.3, and its header 2.18.5$'

claim "a library for another machine is refused in one line"
put 2.18.3-other nothing
printf '\363\000' | dd of="$cache/2.18.3-other/lib/libnccl.so.2" bs=1 seek=18 conv=notrunc 2>/dev/null
conformance 2.18.3-other
expect_code 1
expect_lines 1
expect_text "^nccl_conformance: NCCL 2.18.3-other: '.*/libnccl.so.2' is for machine 243, and this machine is "

claim "a library that is torn, empty, or none, is refused in one line"
head -c 4000 "$cache/2.18.3/lib/libnccl.so.2" >"$cache/2.18.3-other/lib/libnccl.so.2"
conformance 2.18.3-other
expect_code 1
expect_lines 1
expect_text 'is torn: it ends too early$'
echo text >"$cache/2.18.3-other/lib/libnccl.so.2"
conformance 2.18.3-other
expect_lines 1
expect_text 'is no shared library$'
rm "$cache/2.18.3-other/lib/libnccl.so.2"
conformance 2.18.3-other
expect_lines 1
expect_text 'cannot be opened, or is empty$'

claim "a header that does not compile is told with the compiler's reason"
put 2.18.3-header nothing 'no_such_type planted'
conformance 2.18.3-header
expect_code 1
expect_lines 1
expect_text "include/nccl.h' does not compile with .*no_such_type"

finish
