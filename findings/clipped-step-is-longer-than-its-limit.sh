#!/usr/bin/env bash
# clipped-step-is-longer-than-its-limit: Keras clips each replica's gradient by itself, and then adds them
#
# Guess: an optimizer with global_clipnorm=1 never makes a step (at learning rate 1) that is longer than 1, with a
# strategy too: the gradient is added over the replicas, and then clipped.
# Seen: under MirroredStrategy each replica clips its own part, and the sum is applied as it is: with two replicas the step
# is up to 2 long, with eight up to 8, and its direction is another one. clipnorm does likewise.
source "$(dirname -- "$0")/lib.sh"
install "${tensorflow_2_21_0[@]}"
program <<'PY'
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
import tensorflow as tf

host = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
gradients = [[3.0, 0.0], [0.0, 4.0]]
for options in ({}, {"clipnorm": 1.0}, {"global_clipnorm": 1.0}):
    with strategy.scope():
        weight = keras.Variable([0.0, 0.0])
        optimizer = keras.optimizers.SGD(1.0, **options)
        optimizer.build([weight])
    of_replica = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(gradients[context.replica_id_in_sync_group])
    )
    strategy.run(lambda gradient: optimizer.apply_gradients([(gradient, weight)]), args=(of_replica,))
    step = -weight.numpy()
    print("%s: step %s of length %.3f" % (options, [round(float(x), 3) for x in step], np.linalg.norm(step)))
PY
expect <<'OUT'
{} step [3.0, 4.0] of length 5.000
{'clipnorm': 1.0} step [1.0, 1.0] of length 1.414
{'global_clipnorm': 1.0} step [1.0, 1.0] of length 1.414
OUT
