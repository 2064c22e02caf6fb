#!/usr/bin/env bash
# scalar-loss-counts-for-each-replica: a loss function that returns the mean of its batch has twice the gradient on two replicas
#
# Guess: the same model, rows and global batch have the same gradient under MirroredStrategy as on one device, for a loss of
# one's own as for a built-in one; a loss that Keras cannot divide among the replicas raises.
# Seen: Keras divides by the number of replicas what it reduces itself, which is a loss for each sample. A number is taken as it
# is, and added over the replicas: lambda y, p: mean(...) trains with W times the gradient, and so does a class whose call()
# returns a number, with reduction="sum" too. The loss that fit() shows is W times as large. add_loss() goes the other way: what
# a layer sums over its rows is divided by W, and counts 1 / W. Nothing is raised.
# Better: a loss that returns a number for each sample, and add_loss() of means.
source "$(dirname -- "$0")/lib.sh"
install "${tensorflow_2_21_0[@]}"
export KERAS_BACKEND=tensorflow
program <<'PY'
import keras
import numpy as np
import tensorflow as tf

REPLICAS = 2
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * REPLICAS)
mean, total = keras.ops.mean, keras.ops.sum
rows = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)  # the output of a row is the row times the weight, 1


class Scalar(keras.losses.Loss):
    def call(self, wanted, output):
        return mean(output)


class Adds(keras.layers.Layer):
    def __init__(self, penalty):
        super().__init__()
        self.penalty = penalty

    def call(self, output):
        self.add_loss(self.penalty(output))
        return output


def train(strategy, loss, layers):
    """The gradient of the weight, and the loss that is shown."""
    with strategy.scope():
        first = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), first] + [make() for make in layers])
        model.compile(keras.optimizers.SGD(1.0), loss)
    history = model.fit(rows, rows, batch_size=len(rows), verbose=0)
    return "gradient %g, loss %g" % (1 - first.kernel.numpy().item(), history.history["loss"][0])


def nothing():
    return lambda wanted, output: 0 * mean(output, -1)


def show(name, loss, *layers):
    alone = train(tf.distribute.get_strategy(), loss(), layers)
    mirrored = train(tf.distribute.MirroredStrategy(["CPU:%d" % replica for replica in range(REPLICAS)]), loss(), layers)
    print("%s: %s; two replicas: %s" % (name, alone, mirrored))


show("mean of each sample", lambda: lambda wanted, output: mean(output, -1))
show("mean of the batch", lambda: lambda wanted, output: mean(output))
show("class, mean of the batch", Scalar)
show('class, mean of the batch, reduction="sum"', lambda: Scalar(reduction="sum"))
show("add_loss, mean", nothing, lambda: Adds(mean))
show("add_loss, sum", nothing, lambda: Adds(total))
PY
expect <<'OUT'
mean of each sample: gradient 2.5, loss 2.5; two replicas: gradient 2.5, loss 2.5
mean of the batch: gradient 2.5, loss 2.5; two replicas: gradient 5, loss 5
class, mean of the batch: gradient 2.5, loss 2.5; two replicas: gradient 5, loss 5
class, mean of the batch, reduction="sum": gradient 2.5, loss 2.5; two replicas: gradient 5, loss 5
add_loss, mean: gradient 2.5, loss 2.5; two replicas: gradient 2.5, loss 2.5
add_loss, sum: gradient 10, loss 10; two replicas: gradient 5, loss 5
OUT
