# SPDX-License-Identifier: Apache-2.0
"""hvd.elastic.shard: the elements of a data set among ranks whose number changes, in loops and in fit."""

import contextlib
import random
from unittest import mock

import changing_job
import pytest
from keras_training import modules, with_each_keras
from ranks import in_one_start


@contextlib.contextmanager
def ranks_are(rank, size):
    from horovod.common import elastic_sampler
    from horovod.tensorflow import elastic_data

    basics = mock.Mock(rank=lambda: rank, size=lambda: size)
    with mock.patch.object(elastic_data, "_basics", basics), mock.patch.object(elastic_sampler, "_basics", basics):
        yield


def state_of(hvd, **objects):
    import tensorflow as tf

    return hvd.elastic.TensorFlowState([tf.Variable(0.0)], **objects)


@in_one_start(1)
def test_ranks_of_any_number_take_each_element_once():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    draws = random.Random(5)
    data = tf.data.Dataset.range(23)
    for exact, shuffle in ((True, 0), (True, 23), (False, 23)):
        state, done = state_of(hvd, epoch=0, processed_num=0), []
        while state.processed_num < 23:
            size, steps = draws.randint(1, 4), draws.randint(1, 4)
            per_rank = []
            for rank in range(size):
                with ranks_are(rank, size):
                    tf.random.set_seed(rank)
                    share = hvd.elastic.shard(data, state, batch_size=2, shuffle=shuffle, seed=3, exact=exact)
                    per_rank.append([batch.numpy().tolist() for batch in share.take(steps)])
            done += [one for batches in per_rank for batch in batches for one in batch]
            state.processed_num += 2 * size * steps
            if not exact:
                assert len({len(batches) for batches in per_rank}) == 1
        assert sorted(done) == list(range(23)) if exact else set(done) == set(range(23))


@in_one_start(1)
def test_a_global_batch_has_the_same_elements_for_any_number_of_ranks():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((tf.range(10.0), tf.range(10)))
    state = state_of(hvd, epoch=1, processed_num=4)
    seen = []
    for size in (1, 2, 3, 4):
        batches = [([], 0.0), ([], 0.0)]
        for rank in range(size):
            with ranks_are(rank, size):
                for number, (x, y, weights) in enumerate(hvd.elastic.shard(data, state, global_batch=4, shuffle=10)):
                    values, mean = batches[number]
                    assert x.numpy().tolist() == y.numpy().tolist()
                    batches[number] = (
                        sorted(values + y.numpy().tolist()),
                        mean + float(tf.reduce_mean(x * weights)) / size,
                    )
        seen.append(batches)
    for batches in seen:
        assert [values for values, _ in batches] == [values for values, _ in seen[0]]
        assert [mean for _, mean in batches] == pytest.approx([mean for _, mean in seen[0]])


@in_one_start(1)
def test_arguments_are_checked():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    data, state = tf.data.Dataset.range(3), state_of(hvd, processed_num=0)
    with pytest.raises(TypeError, match=r"dataset=\[1\] is no tf.data.Dataset"):
        hvd.elastic.shard([1], state)
    with pytest.raises(ValueError, match="the state has no processed_num: make it with processed_num=0"):
        hvd.elastic.shard(data, state_of(hvd))
    with pytest.raises(ValueError, match="the state has no epoch"):
        hvd.elastic.shard(data, state, shuffle=3)
    with pytest.raises(ValueError, match="global_batch: give it without batch_size and exact"):
        hvd.elastic.shard(data, state, batch_size=1, global_batch=2)
    with pytest.raises(ValueError, match="does not know its number of elements"):
        hvd.elastic.shard(data.filter(lambda _: True), state)


class Fault(Exception):
    pass


def recording(keras, job, ends, size):
    """A callback that ends the generation, in which the number of ranks changes, after some batches."""

    class Recording(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, batch, logs=None):
            self.batches += 1
            if self.batches in ends:
                size[0] = ends[self.batches]
                job.end(Fault())

    return Recording()


@with_each_keras(ranks=(1,))
def test_fit_takes_each_global_batch_once_whatever_happens():
    """Rank 0 of jobs of 1 to 3 ranks, of which the others only take their part: numbers of batches and their data."""
    import tensorflow as tf

    keras, hvd = modules()
    epochs, batch = 3, 6
    taken = []
    for ends in ({}, {5: 2, 9: 3, 14: 1}):
        size, seen = [1], []

        def note(x, seen=seen):
            seen.append(x.numpy().tolist())
            return x

        data = tf.data.Dataset.from_tensor_slices((tf.range(27.0)[:, None], tf.zeros([27, 1])))
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
        whole = model.train_step

        def train_step(batch, whole=whole, note=note):
            note(batch[0][:, 0])
            return whole(batch)

        model.train_step = train_step
        with changing_job.ChangingJob() as job:
            state = hvd.elastic.KerasState(model, batch=0, epoch=0, processed_num=0)
            callbacks = [
                hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.UpdateBatchStateCallback(state),
                recording(keras, job, ends, size),
            ]

            @job.run
            def train(state):
                with ranks_are(0, size[0]):  # noqa: B023
                    mine = hvd.elastic.shard(data, state, global_batch=batch, shuffle=27)  # noqa: B023
                    model.fit(mine, epochs=epochs - state.epoch, callbacks=callbacks, verbose=0)  # noqa: B023

            train(state)
        assert (state.epoch, state.batch, state.processed_num) == (epochs, 0, 0)
        assert job.formed == 1 + len(ends)
        taken.append(seen)
    # The commit of step 14 came before the end of its generation; those of steps 5 and 9 did not.
    kept = [one for number, one in enumerate(taken[1], start=1) if number not in (5, 9)]
    assert len(kept) == len(taken[0]) == epochs * 5
    for number, (whole, part) in enumerate(zip(taken[0], kept)):
        assert part == whole[:: 1 if number in (0, 1, 2, 3) or number > 11 else 2 if number in (4, 5, 6) else 3]
