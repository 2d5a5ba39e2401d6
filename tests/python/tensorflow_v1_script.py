# SPDX-License-Identifier: Apache-2.0
"""
A program as users of Horovod 0.28 write them for graphs and sessions. test_tensorflow_v1.py runs it.

    tensorflow_v1_script.py FOLDER LAST_STEP before|after PASSES
"""

import hashlib
import json
import sys

import tensorflow as tf

folder, last_step, disabled, passes = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if disabled == "before":
    tf.compat.v1.disable_eager_execution()

import horovod.tensorflow as hvd  # noqa: E402

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
if disabled == "after":
    tf.compat.v1.disable_v2_behavior()  # with it go resource variables and today's control flow


class Report(tf.compat.v1.train.SessionRunHook):
    """Says with which step it begins, and with which weights it ends."""

    def after_create_session(self, session, coord):
        self.first = int(session.run(global_step))

    def end(self, session):
        weights = session.run(tf.compat.v1.global_variables())
        digest = hashlib.sha256(b"".join(value.tobytes() for value in weights)).hexdigest()
        report = {"rank": hvd.rank(), "size": hvd.size(), "first": self.first, "last": int(session.run(global_step))}
        print(json.dumps({**report, "digest": digest}), flush=True)


# Initialize Horovod, and pin a GPU to each process.
hvd.init()
hvd.init()
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1)
config.gpu_options.visible_device_list = str(hvd.local_rank())

# Each rank has its own initial weights, and its own data.
tf.compat.v1.set_random_seed(hvd.rank())
features = tf.compat.v1.random_normal([8, 5], seed=hvd.rank() + 10)
table = tf.compat.v1.get_variable("table", [20, 5])
matrix = tf.compat.v1.get_variable("matrix", [5, 3])
ids = tf.compat.v1.random_uniform([8], 0, 20, tf.int32, seed=hvd.rank() + 20)
loss = tf.reduce_mean(tf.square(tf.matmul(tf.gather(table, ids) + features, matrix) - 1.0))

global_step = tf.compat.v1.train.get_or_create_global_step()
opt = tf.compat.v1.train.AdagradOptimizer(0.01 * hvd.size())
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=passes, sparse_as_dense=passes > 1)
train_op = opt.minimize(loss, global_step=global_step)

hooks = [
    hvd.BroadcastGlobalVariablesHook(0),
    tf.compat.v1.train.StopAtStepHook(last_step=last_step),
    tf.compat.v1.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=5),
    Report(),
]

# Only rank 0 writes checkpoints: others would corrupt them.
checkpoint_dir = folder if hvd.rank() == 0 else None
with tf.compat.v1.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, config=config, hooks=hooks) as mon_sess:
    while not mon_sess.should_stop():
        mon_sess.run(train_op)
