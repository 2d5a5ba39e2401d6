# SPDX-License-Identifier: Apache-2.0
"""From a cluster to ranks, and what is said where that fails."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import pytest  # noqa: E402
from both import cluster, variables  # noqa: E402
from ranks import in_one_start  # noqa: E402

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python" / "horovod" / "tensorflow"


@pytest.mark.row("h13")
@in_one_start(2)
def test_a_cluster_says_who_is_who():
    from horovod.tensorflow.strategy import cluster as of

    jobs = {"chief": ["a:1"], "worker": ["b:1", "b:2"], "evaluator": ["c:1"], "ps": ["d:1"]}
    assert [of.of_jobs(jobs, kind, index).rank for kind, index in (("chief", 0), ("worker", 0), ("worker", "1"))] == [
        0,
        1,
        2,
    ]
    assert of.of_jobs(jobs, "worker", 1).size == 3
    assert (of.of_jobs(jobs, "evaluator", 0).rank, of.of_jobs(jobs, "evaluator", 0).size) == (0, 1)
    assert of.of_jobs({}, None, None) is of.ALONE
    for wrong, kind, index, text in (
        (jobs, "ps", 0, "'ps' has no part in synchronous"),
        (jobs, None, None, "does not say which task"),
        (jobs, "worker", 7, "worker 7 is not in the cluster, whose tasks are: chief 0, worker 0, worker 1"),
        (jobs, "worker", "x", "'x' is not a whole number"),
        ({"worker": ["a"]}, "worker", 0, "worker 0 has the address 'a': give host:port"),
        ({"worker": ["a:0"]}, "worker", 0, "give host:port"),
        ({"worker": ["a:1", "a:1"]}, "worker", 0, "an address twice"),
        ({"worker": {"1": "a:1"}}, "worker", 1, "list every address"),
        ({"chief": ["a:1", "a:2"]}, "chief", 0, "2 chiefs"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            of.of_jobs(wrong, kind, index)


@pytest.mark.row("h2", "h13")
@in_one_start(2)
def test_tasks_that_do_not_come_together():
    import horovod.tensorflow as hvd
    from horovod.tensorflow.strategy import MultiWorkerStrategy

    rank = hvd.rank()
    with pytest.raises(ValueError, match="leave hvd"), variables(TF_CONFIG=_config(["a:1", "b:1", "c:1"], 0)):
        MultiWorkerStrategy()
    with variables(TF_CONFIG="{"), pytest.raises(ValueError, match=r"TF_CONFIG='\{' gives no cluster: "):
        MultiWorkerStrategy()
    with pytest.raises(ValueError, match=r"^Unreachable gives no cluster: no pods$"):
        MultiWorkerStrategy(Unreachable())
    with cluster(chief=True, HOROVOD_START_TIMEOUT="0.5"):
        if rank == 0:
            with pytest.raises(
                hvd.HorovodTimeoutError, match=r"rank 1 of 2 did not come .*rank 1 is worker 0 at localh"
            ):
                MultiWorkerStrategy()
    with cluster_of_two_minds(rank), pytest.raises(ValueError, match="rank 1 has another cluster than rank 0"):
        MultiWorkerStrategy()
    assert not hvd.is_initialized()
    hvd.init()
    with cluster(chief=True):
        strategy = MultiWorkerStrategy()
        assert (strategy.num_replicas_in_sync, hvd.rank()) == (2, rank)
        assert strategy.cluster_resolver.task_type == ("worker" if rank else "chief")


class Unreachable:
    """A resolver whose source does not answer."""

    task_type, task_id = "worker", 0

    def cluster_spec(self):
        raise ValueError("no pods")


def _config(addresses, index):
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def cluster_of_two_minds(rank):
    import horovod.tensorflow as hvd
    import spawn

    hvd.init()
    port = hvd.broadcast_object(spawn.free_port())
    hvd.shutdown()
    return variables(TF_CONFIG=_config([f"localhost:{port}", f"localhost:{1 + rank}"], rank))


@pytest.mark.row("h14")
@in_one_start(2)
def test_tasks_on_two_hosts():
    import os
    import secrets
    import socket
    import tempfile

    import horovod.tensorflow as hvd
    from horovod.common.exceptions import HorovodInitError
    from horovod.tensorflow.strategy import MultiWorkerStrategy

    rank = hvd.rank()
    with tempfile.NamedTemporaryFile("w", delete=False) as file:  # of mode 0600
        file.write(hvd.broadcast_object(secrets.token_hex(32)))
    with cluster(HOROVOD_TOKEN_FILE=file.name, HOROVOD_HOSTNAME=f"host{rank}"):
        with socket.create_server(("", 0)) as server:
            address = f"localhost:{server.getsockname()[1]}"
            there = pytest.raises(HorovodInitError, match=rf"listens at {address}\. If it is a tf\.distribute\.Server")
            with variables(TF_CONFIG=_config([address, "localhost:1"], 0)), there:
                MultiWorkerStrategy()
        strategy = MultiWorkerStrategy()
        assert (hvd.local_size(), hvd.cross_size(), strategy.num_replicas_in_sync) == (1, 2, 2)
        assert strategy.reduce("SUM", rank + 1.0) == 3.0
    os.unlink(file.name)


@pytest.mark.row("h16", "h20")
@in_one_start(2)
def test_names_of_the_device_package():
    import tensorflow as tf
    from horovod.tensorflow import estimator, ipu, strategy

    hvd = ipu.horovod
    assert hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum) == 3.0
    assert hvd.broadcast(tf.constant(hvd.rank()), root_rank=1) == 1
    one = hvd.ipu_horovod_strategy.IPUHorovodStrategy(variables_on_host=True)
    assert isinstance(one, strategy.HorovodStrategy)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    other = ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategy(resolver, ipu_device="/device:IPU:1")
    assert isinstance(other, strategy.MultiWorkerStrategy)
    assert other.num_replicas_in_sync == one.num_replicas_in_sync == 2
    named = ipu.config.IPUConfig()
    named.auto_select_ipus, named.device_connection.version = 1, "ipu2"
    named.configure_ipu_system()
    with pytest.raises(ValueError, match="num_ipus=2: each rank has one device"):
        named.auto_select_ipus = 2
    assert ipu.horovod.ipu_horovod_strategy.IPUHorovodStrategyV1 is ipu.IPUHorovodStrategy
    assert ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1 is ipu.IPUMultiWorkerStrategy
    # An MPI that is not installed is not missed, because nothing opens its library.
    assert "libmpi" not in pathlib.Path("/proc/self/maps").read_text()
    options = ipu.utils.auto_select_ipus(ipu.utils.create_ipu_config(profiling=True), num_ipus=1)
    run = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=10, ipu_options=options)
    assert isinstance(ipu.ipu_run_config.RunConfig(ipu_run_config=run, train_distribute=one), estimator.RunConfig)
    assert issubclass(ipu.ipu_estimator.IPUEstimator, estimator.Estimator)
    assert issubclass(ipu.ipu_estimator.IPUEstimatorSpec, estimator.EstimatorSpec)
    for module in (tf, tf.compat.v1):
        assert module.estimator.ModeKeys.TRAIN == "train"
        assert module.estimator.StopAtStepHook is tf.compat.v1.train.StopAtStepHook
        with pytest.raises(AttributeError, match="has no DNNClassifier: it has Estimator, "):
            module.estimator.DNNClassifier  # noqa: B018


@in_one_start(2)
def test_examples_in_docstrings():
    import doctest
    import importlib
    import pkgutil

    found = 0
    for package in ("strategy", "estimator", "ipu"):
        prefix = f"horovod.tensorflow.{package}"
        parent = importlib.import_module(prefix)
        for name in [prefix, *(one.name for one in pkgutil.walk_packages(parent.__path__, f"{prefix}."))]:
            result = doctest.testmod(importlib.import_module(name))
            assert result.failed == 0, name
            found += result.attempted
    assert found > 20


@in_one_start(2)
def test_private_names_of_tensorflow_are_there():
    from horovod.tensorflow.strategy import private

    assert private.missing() == []


def test_private_names_of_tensorflow_stand_in_one_file():
    found = subprocess.run(
        ["grep", "-rl", "--include=*.py", "tensorflow[.]python", *(PACKAGE / one for one in ("strategy", "estimator"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert found == [str(PACKAGE / "strategy" / "private.py")]
