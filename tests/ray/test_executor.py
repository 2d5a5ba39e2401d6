# SPDX-License-Identifier: Apache-2.0
"""RayExecutor on a cluster: results, ranks over nodes, executables, callbacks, resources, and what is refused."""

import pathlib
import subprocess
import sys

import pytest
from horovod.ray import BaseHorovodWorker, RayExecutor

SETTINGS = RayExecutor.create_settings(timeout_s=60)


def sum_of_ranks():
    def function(factor, offset=0):
        import horovod.numpy as hvd
        import numpy as np

        hvd.init()
        total = hvd.allreduce(np.full(3, float(hvd.rank() * factor + offset)), op=hvd.Sum)
        return hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), total.tolist()

    return function  # inside, so that it travels as code


@pytest.mark.row("r1")
def test_results_come_in_the_order_of_ranks_and_ranks_stay_for_the_next_run(executor):
    ranks = executor(3, use_current_placement_group=False)
    assert ranks.run(sum_of_ranks(), args=[2], kwargs={"offset": 1}) == [
        (rank, rank, 3, 0, 1, [9.0] * 3) for rank in range(3)
    ]

    def again():
        import os

        import horovod.numpy as hvd

        return hvd.is_initialized(), os.getpid()

    first, second = ranks.run(again), ranks.run(again)
    assert first == second
    assert all(initialized for initialized, _ in first)


@pytest.mark.row("r2")
def test_an_executable_lives_on_every_rank(executor):
    class Model:
        def __init__(self, start, step=1):
            self.value, self.step = start, step

        def forward(self):
            self.value += self.step
            return self.value

    ranks = executor(
        start={
            "executable_cls": Model,
            "executable_args": [10],
            "executable_kwargs": {"step": 5},
            "extra_env_vars": {"MINE": "x"},
        }
    )
    assert ranks.execute(lambda model: model.forward()) == [15, 15]
    assert ranks.execute_single(lambda model: model.forward()) == 20
    assert ranks.execute(lambda model: model.value) == [20, 15]
    assert ranks.run(lambda: __import__("os").environ["MINE"]) == ["x", "x"]


def test_references_are_rays_own(executor):
    import ray

    ranks = executor()
    assert [value[0] for value in ray.get(ranks.run_remote(sum_of_ranks(), args=[1]))] == [0, 1]

    def broken():
        raise LookupError("a sentence of the user's")

    with pytest.raises(LookupError, match="a sentence"):
        ray.get(ranks.run_remote(broken))
    assert ranks.run(sum_of_ranks(), args=[1])[0][-1] == [1.0] * 3  # ranks have met again


def test_callbacks_get_what_rank_0_logs(executor):
    def talk():
        from horovod.ray import ray_logger

        for step in range(3):
            ray_logger.log({"step": step})

    got = []
    ranks = executor()
    ranks.run(talk, callbacks=[got.append])
    ranks.execute(lambda unused: talk(), callbacks=[got.append])
    assert got == [{"step": 0}, {"step": 1}, {"step": 2}] * 2


@pytest.mark.row("r3")
def test_hosts_and_ranks_of_each_with_a_token_that_is_in_no_file_and_no_command_line(executor, cluster):
    ranks = executor(num_hosts=2, num_workers_per_host=2)
    places = ranks.run(sum_of_ranks(), args=[1])
    assert [place[:5] for place in places] == [(0, 0, 2, 0, 2), (1, 1, 2, 0, 2), (2, 0, 2, 1, 2), (3, 1, 2, 1, 2)]
    assert {tuple(place[5]) for place in places} == {(6.0,) * 3}

    def look():
        import os
        import pathlib

        token = pathlib.Path(os.environ["HOROVOD_TOKEN_FILE"]).read_text()
        seen = pathlib.Path("/proc/self/cmdline").read_bytes() + "".join(os.environ.values()).encode()
        return token, token.encode() in seen, os.stat(os.environ["HOROVOD_TOKEN_FILE"]).st_mode & 0o777

    (token, in_sight, mode), *others = ranks.run(look)
    assert len(token) == 64
    assert {other[0] for other in others} == {token}
    assert (in_sight, mode) == (False, 0o600)
    files = [file for file in pathlib.Path(cluster.folder).rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if token.encode() in file.read_bytes()]


@pytest.mark.row("r4")
def test_ranks_see_the_gpus_of_their_host(executor):
    ranks = executor(use_gpu=True)
    seen = ranks.run(lambda: __import__("os").environ["CUDA_VISIBLE_DEVICES"])
    assert seen[0] == seen[1]
    assert len(seen[0].split(",")) == 2


def test_ranks_start_in_the_placement_group_of_the_caller(cluster):
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = ray.util.placement_group([{"CPU": 1}] * 3)

    @ray.remote(num_cpus=1)
    def trial():
        one = RayExecutor(SETTINGS, num_workers=2)
        one.start()
        groups = one.run(lambda: __import__("ray").util.get_current_placement_group().id.hex())
        one.shutdown()
        return groups

    where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    assert ray.get(trial.options(scheduling_strategy=where).remote()) == [group.id.hex()] * 2
    ray.util.remove_placement_group(group)


@pytest.mark.row("r5")
def test_a_client_outside_of_the_cluster(cluster):
    program = f"""
import ray
from horovod.ray import RayExecutor
ray.init("{cluster.client}")
ranks = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=2, cpus_per_worker=0.5)
ranks.start()
def square(offset):
    import horovod.numpy as hvd
    hvd.init()
    if offset < 0:
        raise LookupError("a sentence of the user's")
    return hvd.rank() ** 2 + offset
got = []
print(ranks.run(square, args=[10], callbacks=[got.append]))
try:
    ranks.run(square, args=[-1])
except RuntimeError as error:
    print(type(error.__cause__).__name__, str(error)[:7])
ranks.shutdown()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[10, 11]"
    assert done.stdout.splitlines()[1].startswith("LookupError rank ")


def test_too_few_resources_are_an_error_with_both_numbers(cluster):
    settings = RayExecutor.create_settings(placement_group_timeout_s=0.3)
    with pytest.raises(TimeoutError, match=r"Ray did not reserve 7 times 1 CPU \(PACK\) in 0\.3 s; .* 6 CPU"):
        RayExecutor(settings, num_workers=7).start()
    with pytest.raises(TimeoutError, match=r"3 times 2 CPU, 2 GPU \(STRICT_SPREAD\)"):
        RayExecutor(settings, num_hosts=3, num_workers_per_host=2, use_gpu=True).start()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "num_workers=None, num_hosts=None: give"),
        ({"num_workers": 2, "num_hosts": 2}, "num_workers=2, num_hosts=2: give"),
        ({"num_workers": 0}, "num_workers=0: give a number"),
        ({"num_workers": True}, "num_workers=True"),
        ({"num_hosts": 1, "num_workers_per_host": 0}, "num_workers_per_host=0"),
        ({"num_workers": 1, "cpus_per_worker": -1}, "cpus_per_worker=-1"),
        ({"num_workers": 1, "gpus_per_worker": 1}, "gpus_per_worker=1 without use_gpu"),
        ({"num_workers": 1, "gpus_per_worker": 0, "use_gpu": True}, "gpus_per_worker=0"),
        ({"max_workers": 2}, "max_workers=2 without min_workers"),
        ({"num_workers": 2, "min_workers": 1}, "num_workers=2 and min_workers=1"),
        ({"min_workers": 1}, "min_workers=1: elastic jobs on Ray are not in this release"),
    ],
)
def test_bad_arguments_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        RayExecutor(SETTINGS, **arguments)


def test_calls_in_the_wrong_order_or_with_wrong_values_are_named():
    ranks = RayExecutor(SETTINGS, num_workers=2)
    ranks.shutdown()
    with pytest.raises(RuntimeError, match=r"has no ranks: call start\(\) first"):
        ranks.run(print)
    with pytest.raises(TypeError, match="fn=3 is not callable"):
        ranks.run(3)
    with pytest.raises(TypeError, match=r"extra_env_vars\['A'\]=1"):
        ranks.start(extra_env_vars={"A": 1})
    with pytest.raises(ValueError, match="timeout_s=0: give seconds"):
        RayExecutor.create_settings(timeout_s=0)
    with pytest.raises(NotImplementedError, match="min_workers=1"):
        RayExecutor(SETTINGS, min_workers=1, max_workers=2)


def test_a_worker_without_ray(monkeypatch):
    for name in ("HOROVOD_RANK", "HOROVOD_SIZE", "MINE"):
        monkeypatch.setenv(name, "")
    worker = BaseHorovodWorker(1, 2)
    worker.update_env_vars({"MINE": 3})
    assert [worker.env_vars()[name] for name in ("HOROVOD_RANK", "HOROVOD_SIZE", "MINE")] == ["1", "2", "3"]
    worker.start_executable(dict, [[("a", 1)]], {"b": 2})
    assert worker.execute(lambda one: one) == {"a": 1, "b": 2}
    assert worker.hostname() == __import__("socket").gethostname()
