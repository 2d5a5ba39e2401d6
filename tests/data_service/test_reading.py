# SPDX-License-Identifier: Apache-2.0
"""Who gets which elements, and what is refused."""

from __future__ import annotations

import ast
import contextlib
import pathlib
import secrets
import sys
import threading

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import compute  # noqa: E402
import pytest  # noqa: E402
from horovod.tensorflow.data.compute_service import tf_data_service  # noqa: E402


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Compute jobs by their arguments, each started once."""
    made: dict[tuple, pathlib.Path] = {}
    with contextlib.ExitStack() as stack:

        def get(workers=2, dispatchers=1, side="compute"):
            key = (workers, dispatchers, side)
            if key not in made:
                folder = tmp_path_factory.mktemp("job")
                stack.enter_context(compute.job(workers, dispatchers, side, folder))
                made[key] = folder
            return made[key]

        yield get


def values(text: str, folder: pathlib.Path, ranks: int = 1, **more) -> list:
    """Return what each rank printed last."""
    return [ast.literal_eval(one.strip().splitlines()[-1]) for one in compute.outputs(text, folder, ranks, **more)]


@pytest.mark.row("d5", "d7", "d8", "d11", "d17")
def test_one_reader_by_method_and_function(jobs):
    (found,) = values(
        """
        def where(x):  # the process that computes this has no Python; the environment shows it
            return x * 10
        data = tf.data.Dataset.range(100).map(where).send_to_data_service(config, rank, size).map(lambda x: x + 1)
        both = numbers(send_to_data_service(tf.data.Dataset.range(5), config, rank))
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            twice = numbers(tf.data.Dataset.range(3).send_to_data_service(config, 0, 1, "parallel_epochs"))
        seen = [str(one.message) for one in seen if "send_to_data_service" in str(one.message)]
        print((numbers(data), both, twice, seen))
        """,
        jobs(),
    )
    assert found[0] == [10 * x + 1 for x in range(100)]
    assert found[1] == list(range(5))
    assert found[2] == [0, 0, 1, 1, 2, 2]
    assert len(found[3]) == 1
    assert "processing_mode='parallel_epochs' with one dispatcher: every rank gets the whole data set" in found[3][0]


def test_elements_keep_their_structure(jobs):
    ((specs, total),) = values(
        """
        import collections
        Point = collections.namedtuple("Point", "x y")
        whole = tf.data.Dataset.range(10)
        made = [whole, whole.map(lambda x: (x,)), whole.map(lambda x: ((x,),)), whole.map(lambda x: (x, x)),
                whole.map(lambda x: {"a": x}), whole.map(lambda x: Point(x, x)), whole.map(lambda x: (Point(x, x),))]
        specs = [(repr(one.element_spec), repr(one.send_to_data_service(config, 0, 1).element_spec)) for one in made]
        strategy = tf.distribute.MirroredStrategy(["CPU:0"])
        with strategy.scope():
            data = whole.batch(5).send_to_data_service(config, 0, 1)
            total = sum(int(tf.reduce_sum(one)) for one in strategy.experimental_distribute_dataset(data))
        print((specs, total))
        """,
        jobs(),
    )
    assert [after for _, after in specs] == [before for before, _ in specs]
    assert total == 45


def test_a_reader_joins_each_generation_of_an_elastic_job(jobs):
    first, other = values(
        """
        from horovod.tensorflow.data import reader
        shared = [numbers(tf.data.Dataset.range(40).send_to_data_service(config, rank, size, reuse_dataset=True))]
        try:
            tf.data.Dataset.range(3).send_to_data_service(config, 1 - rank, size)
        except ValueError as error:
            refused = str(error)
        for generation, new_rank in ((2, 1 - rank), (3, rank)):
            reader.generation = lambda: generation
            data = tf.data.Dataset.range(40).send_to_data_service(config, new_rank, size, reuse_dataset=True)
            shared.append(numbers(data))
        print((shared, refused))
        """,
        jobs(),
        2,
    )
    for one, two in zip(first[0], other[0]):
        assert sorted(one + two) == list(range(40))
    assert "this process has registered as rank 0 before" in first[1]


@pytest.mark.row("d11", "d15")
def test_two_readers_share_or_do_not(jobs):
    text = """
    own = numbers(tf.data.Dataset.range(100).send_to_data_service(config, rank, size))
    shared = numbers(tf.data.Dataset.range(200).send_to_data_service(config, rank, size, reuse_dataset=True))
    again = numbers(tf.data.Dataset.range(300, 400).send_to_data_service(config, rank, size, reuse_dataset=True))
    print((own, shared, again))
    """
    for _ in range(2):  # the second run gets its own data although names of jobs are counted anew
        one, other = values(text, jobs(), 2)
        assert one[0] == other[0] == list(range(100))
        assert sorted(one[1] + other[1]) == list(range(200))
        assert sorted(one[2] + other[2]) == list(range(300, 400))


@pytest.mark.row("d16")
def test_two_readers_take_turns(jobs):
    one, other = values(
        """
        data = tf.data.Dataset.range(10).repeat()
        data = data.send_to_data_service(config, rank, size, reuse_dataset=True, round_robin=True)
        print([int(x) for x in data.take(40)])
        """,
        jobs(),
        2,
    )
    assert len(one) == len(other) == 40
    assert set(one) | set(other) == set(range(10))


@pytest.mark.row("d6")
def test_the_chain_of_the_guide_trains(jobs):
    (losses,) = values(
        """
        x = np.random.default_rng(1).normal(size=(512, 4)).astype("float32")
        y = x @ np.array([[1.0], [2.0], [3.0], [4.0]], "float32")
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(100).batch(128)
        dataset = dataset.send_to_data_service(config, rank, size).prefetch(tf.data.experimental.AUTOTUNE)
        weights, losses = tf.Variable(tf.zeros([4, 1])), []
        for features, labels in dataset.take(60):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((features @ weights - labels) ** 2)
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
            losses.append(float(loss))
        print((losses[0], losses[-1]))
        """,
        jobs(),
    )
    assert losses[1] < losses[0] / 100


@pytest.mark.row("d12", "d14")
def test_each_task_has_its_own_dispatcher(jobs):
    one, other = values(
        """
        import horovod.tensorflow as hvd
        hvd.init()
        try:
            tf.data.Dataset.range(3).send_to_data_service(config, rank, 3)
        except ValueError as error:
            refused = [str(error)]
        address = config.compute_client().wait_for_dispatcher_registration(rank)
        workers = config.compute_client().wait_for_dispatcher_worker_registration(rank)
        data = numbers(tf.data.Dataset.range(50).send_to_data_service(config, rank, size))
        print((data, address, sorted(one["address"] for one in workers), refused))
        """,
        jobs(4, 2),
        2,
    )
    assert one[0] == other[0] == list(range(50))
    assert one[1] != other[1]
    assert len(one[2]) == len(other[2]) == 2
    assert not set(one[2]) & set(other[2])
    assert "the compute job has 2 dispatchers and the training job 3 ranks" in one[3][0]
    assert "--dispatchers 3, or 2 training ranks" in one[3][0]


@pytest.mark.row("d18", "d19", "d20")
@pytest.mark.parametrize("dispatchers", [1, 2])
def test_dispatchers_of_the_training_job(jobs, dispatchers):
    text = """
    import horovod.tensorflow as hvd
    hvd.init()
    try:
        tf.data.Dataset.range(3).send_to_data_service(config, rank, size)
    except RuntimeError as error:
        refused = str(error)
    with tf_data_service(config, rank) as address:
        data = numbers(tf.data.Dataset.range(60).apply(distribute("distributed_epoch", address)))
        if rank == 1:  # rank 0 has left the block meanwhile, or is about to
            data += numbers(tf.data.Dataset.range(60, 90).apply(distribute("distributed_epoch", address)))
    print((data, refused))
    """
    for _ in range(2):  # another training job uses the same compute job
        one, other = values(text, jobs(2, dispatchers, "training"), 2)
        assert one[0] == list(range(60))
        assert other[0] == list(range(90))
        assert "tf_data_service(compute_config, rank)" in one[1]


@pytest.mark.row("d19", "d25")
def test_a_block_is_left_after_the_compute_job_was_shut_down():
    key = secrets.token_bytes(32)
    service = compute.ComputeService(1, 1, key)
    config = compute.TfDataServiceConfig(1, 1, "training", service.addresses(), key, compute.PATIENCE_S)
    worker = threading.Thread(target=compute.compute_worker_fn, args=(config, 0, 1))
    worker.start()
    with tf_data_service(config, rank=0):
        config.compute_client().shutdown()
        worker.join()
        service.close()


@pytest.mark.row("d14", "d17")
def test_traps_are_refused_or_said(jobs):
    ((refused, said),) = values(
        """
        import warnings
        from tensorflow.data.experimental.service import ShardingPolicy
        numbers = tf.data.Dataset.range(10)
        python = numbers.map(lambda x: tf.py_function(lambda y: y, [x], tf.int64))
        generator = tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_signature=tf.TensorSpec([], tf.int64))
        shared = {"reuse_dataset": True, "round_robin": True}
        refused = []
        for dataset, size, arguments in (
            (python, 1, {}), (generator, 1, {}), (numbers, 1, {"processing_mode": ShardingPolicy.FILE}),
            (numbers, 1, {"round_robin": True}), (numbers, None, shared), (numbers, 1, shared)):
            try:
                dataset.send_to_data_service(config, 0, size, **arguments)
                refused.append("")
            except ValueError as error:
                refused.append(str(error))
        said = []
        for dataset in (numbers.take(3), numbers.skip(3), numbers.shard(2, 0), tf.data.Dataset.range(20_000)):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                dataset.send_to_data_service(config, 0, 1)
            said.append([str(one.message) for one in seen if "send_to_data_service" in str(one.message)])
        print((refused, said))
        """,
        jobs(),
    )
    for found, wanted in zip(
        refused,
        (
            "the step MapDataset calls Python",
            "calls Python (from_generator, py_function or numpy_function)",
            "this sharding policy needs workers at ports that are known before",
            "round_robin=True needs reuse_dataset=True",
            "round_robin=True needs size=hvd.size()",
            "round_robin=True needs an endless data set",
        ),
    ):
        assert wanted in found
    for found, wanted in zip(said, ("take() before the call", "skip() before", "shard() before", "has 20000 elements")):
        assert len(found) == 1, found
        assert wanted in found[0]


@pytest.mark.row("j9")
def test_two_workers_are_not_slower_than_local_input(jobs):
    ((local, moved),) = values(
        """
        from tensorflow.python.data.experimental.ops import testing

        def seconds(data):
            begin = 0.0
            for number, _ in enumerate(data.take(15)):
                if number == 3:  # a pass of the data service takes a second to begin
                    begin = time.perf_counter()
            return time.perf_counter() - begin

        slow = tf.data.Dataset.range(1000).repeat().apply(testing.sleep(150_000))  # the step waits and takes no core
        times = [(seconds(slow), seconds(slow.send_to_data_service(config, rank, size))) for _ in range(2)]
        print(tuple(min(one) for one in zip(*times)))
        """,
        jobs(),
    )
    assert moved < local


def test_docstrings(jobs):
    (found,) = values(
        """
        import doctest, importlib, pkgutil
        import horovod.tensorflow.data as package
        attempted = 0
        for one in pkgutil.iter_modules(package.__path__, "horovod.tensorflow.data."):
            result = doctest.testmod(importlib.import_module(one.name))
            assert result.failed == 0, one.name
            attempted += result.attempted
        print(attempted)
        """,
        jobs(),
    )
    assert found > 30
