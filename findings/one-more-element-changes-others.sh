#!/usr/bin/env bash
# one-more-element-changes-others: in TensorFlow's ring the 61st element changes the sums of the 17th to the 60th
#
# Guess: parts of a ring grow by an element when a vector of 60 gets one more, so that only sums at borders can change.
# Seen: a part is the next whole 64 bytes above its share, and a share of exactly 64 bytes takes 128: with four workers 60
# float32 are parts of 16, and 61 are parts of 32. All parts begin then at other workers, half of the workers begin
# none, and most of the first 60 sums have another order of additions.
source "$(dirname -- "$0")/lib.sh"
install "${tensorflow_2_21_0[@]}"
ranks 4 <<'PY'
import json
import os
import socket
import time

rank = int(os.environ["RANK"])
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    with open("port.%d.new" % rank, "w") as out:
        out.write(str(probe.getsockname()[1]))
    os.rename("port.%d.new" % rank, "port.%d" % rank)
while not all(os.path.exists("port.%d" % peer) for peer in range(4)):
    time.sleep(0.1)
workers = ["127.0.0.1:" + open("port.%d" % peer).read() for peer in range(4)]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
import tensorflow as tf

ring = tf.distribute.experimental.CommunicationImplementation.RING
options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
for length in (59, 60, 61, 62):
    mine = tf.fill([length], tf.constant([1.0, 2.0**24, -(2.0**24), 0.0][rank]))
    sums = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, mine)).numpy()
    print("%d elements: sums %s" % (length, " ".join("%g" % each for each in sums[:60:10])), flush=True)
os._exit(0)
PY
expect <<'OUT'
all ranks: 59 elements: sums 0 0 1 1 1 0
all ranks: 60 elements: sums 0 0 1 1 1 0
all ranks: 61 elements: sums 0 0 0 0 1 1
all ranks: 62 elements: sums 0 0 0 0 1 1
OUT
