#!/usr/bin/env bash
# store-answers-for-a-missing-key: compare_set of a key that is not there returns what the caller hoped to find
#
# Guess: compare_set(key, expected, desired) returns the value that the store has afterwards, so a lock was taken if it
# returns `desired`, and is held by whoever is named if it returns something else; for a key that is not there it
# returns nothing or raises.
# Seen: it returns the caller's own `expected`, although nothing is stored, before and after: a rank that waits for
# "rank 3" to hand over believes that rank 3 holds the key. Counters are a second trap: add() wraps at 2**63 silently,
# and num_keys() of a PrefixStore counts the keys of all prefixes, while list_keys() lists its own.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
program <<'PY'
import os
import tempfile

import torch.distributed as dist

folder = tempfile.mkdtemp(dir=".")
for store in (dist.HashStore(), dist.FileStore(os.path.join(folder, "store"), 1), dist.TCPStore("127.0.0.1", 0, 1, True)):
    print(type(store).__name__)
    answer = store.compare_set("lock", "rank 3", "rank 0")
    print("  compare_set of a missing key:", answer, "then there:", store.check(["lock"]))
    store.add("counter", 2**62)
    print("  2**62 + 2**62 =", store.add("counter", 2**62))
    mine = dist.PrefixStore("mine", store)
    print("  keys of a prefix without keys:", mine.num_keys(), mine.list_keys())
PY
expect <<'OUT'
HashStore
  compare_set of a missing key: b'rank 3' then there: False
  2**62 + 2**62 = -9223372036854775808
  keys of a prefix without keys: 1 []
FileStore
  compare_set of a missing key: b'rank 3' then there: False
  2**62 + 2**62 = -9223372036854775808
  keys of a prefix without keys: 2 []
TCPStore
  compare_set of a missing key: b'rank 3' then there: False
  2**62 + 2**62 = -9223372036854775808
  keys of a prefix without keys: 2 []
OUT
