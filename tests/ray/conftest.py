# SPDX-License-Identifier: Apache-2.0
"""The one Ray cluster of the suite: two nodes on this machine, which the ranks of some tests take for two hosts."""

import os
import socket

import launching
import pytest

# What a job needs of Ray, and no more: no dashboard, and few of the workers that Ray starts ahead.
_SETTINGS = {"include_dashboard": False, "num_cpus": 3, "num_gpus": 3, "object_store_memory": 80 << 20}


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="session")
def cluster():
    os.environ["RAY_AUTH_MODE"] = "disabled"  # it would write a file into the home folder
    os.environ["RAY_DEDUP_LOGS"] = "0"
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    import ray
    from ray.cluster_utils import Cluster

    port = _free_port()
    cluster = Cluster(initialize_head=True, head_node_args={**_SETTINGS, "ray_client_server_port": port})
    cluster.client = f"ray://127.0.0.1:{port}"
    cluster.add_node(**_SETTINGS, env_vars={"HOROVOD_HOSTNAME": "the-other-host"})
    ray.init(address=cluster.address, log_to_driver=True)
    cluster.folder = ray._private.worker.global_worker.node.get_session_dir_path()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def executor(cluster):
    """Makes executors that are started, and ends them."""
    from horovod.ray import RayExecutor

    made = []

    def make(num_workers=2, start=None, **options):
        if "num_hosts" not in options:
            options["num_workers"] = num_workers
        one = RayExecutor(RayExecutor.create_settings(), cpus_per_worker=0.5, **options)
        made.append(one)
        one.start(**(start or {}))
        return one

    yield make
    pids = [where.pid for one in made if one._crew for where in one._crew._where]
    for one in made:
        one.shutdown()
    launching.wait_until(lambda: not any(map(launching.is_alive, pids)))
