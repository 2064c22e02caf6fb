#!/usr/bin/env bash
# statistics-of-the-first-replica: Keras 3 keeps the batch statistics of one replica and forgets the others'
#
# Guess: after a batch that was spread over two replicas, the moving mean of BatchNormalization is the mean over the
# replicas (or that of the whole batch, where it is synchronized).
# Seen: it is the first replica's alone: 1.5 of the rows 1, 2 | 6, 7, whose mean is 4, and the variance is that of the
# first half. What the model does in evaluation is thus learned from 1/n of the data. With synchronized=True it is 4.
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
for synchronized in (False, True):
    with strategy.scope():
        layer = keras.layers.BatchNormalization(momentum=0.0, synchronized=synchronized)
        model = keras.Sequential([keras.layers.Input((1,)), layer])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    rows = np.array([[1.0], [2.0], [6.0], [7.0]])
    model.fit(rows, np.zeros((4, 1)), batch_size=4, epochs=1, verbose=0, shuffle=False)
    mean, variance = [weight.item() for weight in layer.get_weights()[2:]]
    print("synchronized=%s: moving mean %.2f, moving variance %.2f" % (synchronized, mean, variance))
PY
expect <<'OUT'
OUT
