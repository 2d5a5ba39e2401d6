# SPDX-License-Identifier: Apache-2.0
"""Ray Train with HvdConfig: its workers are the ranks of one job."""

import json
import os
import signal

import pytest


@pytest.fixture
def fit(cluster, tmp_path):
    """Runs a training function on two workers."""
    from horovod.ray.train import HvdConfig
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def run(function, **options):
        trainer = DataParallelTrainer(
            function,
            backend_config=HvdConfig(**options),
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
            run_config=RunConfig(name="job", storage_path=str(tmp_path)),
        )
        return trainer.fit()

    return run


@pytest.mark.row("r8")
def test_workers_are_ranks(fit, tmp_path):
    def train():
        import horovod.numpy as hvd
        import numpy as np
        import ray.train

        hvd.init()
        ranks = hvd.allgather(np.array([ray.train.get_context().get_world_rank()]))
        total = hvd.allreduce(np.full(3, 1.0 + hvd.rank()), op=hvd.Sum, name="total")
        found = [total.tolist(), ranks.tolist(), os.environ["HOROVOD_EXTRA"]]
        (tmp_path / f"rank{hvd.rank()}").write_text(json.dumps(found))

    fit(train, env_vars={"HOROVOD_EXTRA": "given"})
    for rank in range(2):
        assert json.loads((tmp_path / f"rank{rank}").read_text()) == [[3] * 3, [0, 1], "given"]


def test_a_killed_worker_is_named(fit):
    def train():
        import horovod.numpy as hvd
        import numpy as np

        hvd.init()
        for number in range(1000):
            hvd.allreduce(np.ones(3), name="x")
            if hvd.rank() == 1 and number == 5:
                os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Exception, match=r"rank 1|Worker 1|Rank 1") as caught:
        fit(train)
    assert 1 in caught.value.worker_failures


def test_bad_arguments_are_named():
    from horovod.ray.train import HvdConfig

    with pytest.raises(ValueError, match=r"timeout_s=0"):
        HvdConfig(timeout_s=0)
    with pytest.raises(TypeError, match=r"env_vars\['A'\]=1"):
        HvdConfig(env_vars={"A": 1})
