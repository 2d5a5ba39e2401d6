# SPDX-License-Identifier: Apache-2.0
"""Compute jobs under launchers: how they start, what they leave, who can reach them."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import compute  # noqa: E402
import launching  # noqa: E402
import pytest  # noqa: E402
import slurm  # noqa: E402
import starters  # noqa: E402
from horovod.tensorflow.data import places  # noqa: E402
from horovod.tensorflow.data.compute_service import TfDataServiceConfig  # noqa: E402
from ranks import on_ranks  # noqa: E402


def listening(pids) -> list[str]:
    """Return the lines of TCP listeners that belong to some processes."""
    found = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in found if any(f"pid={pid}," in line for pid in pids)]


def descendants(pid: int) -> list[int]:
    """Return a process and all that it and they have started."""
    found = [pid]
    for one in found:
        children = pathlib.Path(f"/proc/{one}/task").glob("*/children")
        found += [int(word) for file in children for word in file.read_text().split()]
    return found


def as_another_user(path: str) -> int:
    """Return the number of the error with which another user's connection to a socket fails, or 0."""
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setuid(65534)
        os._exit(socket.socket(socket.AF_UNIX).connect_ex(path))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.row("d1", "d2", "d25")
def test_a_job_under_horovodrun_begins_and_ends(tmp_path):
    file = tmp_path / "compute.json"
    with compute.launched(4, file) as launcher:
        config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
        client = config.compute_client()
        assert client.wait_for_dispatcher_registration(0).endswith("/d0")
        assert len(client.wait_for_dispatcher_worker_registration(0)) == 4
        assert (config.dispatchers, config.workers_per_dispatcher, config.timeout) == (1, 4, 60)
        assert sorted(compute.servers(config)) == ["d0", "w0", "w1", "w2", "w3"]
        servers = compute.servers(config).values()
        assert listening(servers) == []  # they have sockets in a folder of this user alone
        for pid in servers:  # the server library without the rest of TensorFlow, which needs NumPy
            assert "numpy" not in pathlib.Path(f"/proc/{pid}/maps").read_text()
        assert places.folder(config.key).stat().st_mode & 0o777 == 0o700
        if os.geteuid() == 0:
            assert as_another_user(places.address(config.key, "d0")[len("unix:") :]) == errno.EACCES
        ports = {port for found in config.addresses.values() for _, port in found}
        for line in listening(set(descendants(launcher.pid)) - {launcher.pid}):
            # The registration service, and rank 0's meeting place of the job.
            assert int(line.split()[3].rsplit(":", 1)[1]) in ports or line.split()[3].startswith("127."), line
        client.shutdown()
        assert launcher.wait(compute.PATIENCE_S) == 0
    assert compute.servers(config) == {}
    assert not file.exists()
    assert not places.folder(config.key).exists()


@pytest.mark.row("d13", "d26")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--dispatchers", "2"), "dispatchers=2: the 3 ranks of the compute job cannot be shared out evenly"),
        (("--dispatcher-side", "training", "--timeout", "1"), "dispatcher 0 of 1 did not register within 1 s"),
    ],
)
def test_a_job_that_cannot_be_ends_with_a_sentence(tmp_path, options, text):
    with compute.launched(3, tmp_path / "compute.json", *options) as launcher:
        output, _ = launcher.communicate(timeout=compute.PATIENCE_S)
        assert launcher.returncode == 1, output
    assert text in output
    assert "Traceback" not in output
    compute.until(lambda: list(tmp_path.iterdir()) == [], "removal of the config file")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_launcher_that_is_ended_leaves_nothing(tmp_path, number):
    file = tmp_path / "compute.json"
    with compute.launched(2, file) as launcher:
        config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
        config.compute_client().wait_for_dispatcher_worker_registration(0)
        os.kill(launcher.pid, number)
        launcher.wait(compute.PATIENCE_S)
        compute.until(lambda: compute.servers(config) == {}, "the end of the servers")
        compute.until(lambda: not file.exists(), "removal of the config file")
        compute.until(lambda: not places.folder(config.key).exists(), "removal of the folder")


@pytest.mark.row("d1")
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
def test_a_job_under_mpirun(tmp_path):
    file = tmp_path / "compute.json"
    launcher = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2")
    with compute.launched(2, file, launcher=launcher) as process:
        client = TfDataServiceConfig.read(file, wait_for_file_creation=True).compute_client()
        assert len(client.wait_for_dispatcher_worker_registration(0)) == 2
        client.shutdown()
        assert process.wait(compute.PATIENCE_S) == 0


@pytest.mark.row("d1")
def test_a_job_under_srun(tmp_path, tmp_path_factory):
    file = tmp_path / "compute.json"
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as variables:
        env = starters.environment(**variables)
        launcher = ("srun", "-n", "2", "--overcommit")
        with compute.launched(2, file, launcher=launcher, env=env) as process:
            client = TfDataServiceConfig.read(file, wait_for_file_creation=True).compute_client()
            assert len(client.wait_for_dispatcher_worker_registration(0)) == 2
            client.shutdown()
            assert process.wait(compute.PATIENCE_S) == 0


@pytest.mark.row("d10")
def test_a_job_listens_at_the_interface_of_its_launcher(tmp_path):
    file = tmp_path / "compute.json"
    horovodrun = str(pathlib.Path(sys.executable).parent / "horovodrun")
    launcher = (horovodrun, "-np", "1", "--network-interfaces", "lo")
    with compute.launched(1, file, launcher=launcher) as process:
        config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
        assert list(config.addresses) == ["lo"]
        config.compute_client().shutdown()
        assert process.wait(compute.PATIENCE_S) == 0


def test_a_training_launcher_that_is_killed_leaves_nothing(tmp_path):
    text = """
    for one in tf.data.Dataset.range(10).repeat().send_to_data_service(config, 0, 1):
        open(sys.argv[1] + ".reads", "w").close()
    """
    file = tmp_path / "compute.json"
    with compute.job(1, folder=tmp_path) as config:
        horovodrun = str(pathlib.Path(sys.executable).parent / "horovodrun")
        command = [horovodrun, "-np", "1", *compute.words(text, file)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
            compute.until((tmp_path / "compute.json.reads").exists, "reading")
            processes = descendants(training.pid)
            training.kill()
        compute.until(lambda: not any(map(launching.is_alive, processes)), f"the end of {processes}")
        assert config.compute_client().ping()  # other training jobs may use it
        assert sorted(compute.servers(config)) == ["d0", "w0"]


def test_each_generation_of_an_elastic_job_shares_passes_of_its_own(tmp_path):
    text = """
    import horovod.numpy as hvd
    hvd.init()
    @hvd.elastic.run
    def train(state):
        while state.passes < 3:
            data = tf.data.Dataset.range(60)
            data = numbers(data.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True))
            if hvd.rank() == 1 and not os.path.exists(sys.argv[1] + ".killed"):
                open(sys.argv[1] + ".killed", "w").close()
                os.kill(os.getpid(), 9)
            together = [one for part in hvd.allgather_object(data) for one in part]
            assert sorted(together) == list(range(60)), (hvd.size(), len(together))
            state.passes += 1
            state.commit()
        print("all passes")
    train(hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, passes=0))
    """
    horovodrun = str(pathlib.Path(sys.executable).parent / "horovodrun")
    with compute.job(2, folder=tmp_path):
        words = compute.words(text, tmp_path / "compute.json")
        done = launching.run([horovodrun, "-np", "2", "--min-np", "2", *words], dict(os.environ), compute.PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all passes" in done.stdout
    assert (tmp_path / "compute.json.killed").exists()


@pytest.mark.row("d27")
@on_ranks(2)
def test_main_in_a_thread_of_ranks():
    import tempfile
    import threading

    import horovod.numpy as hvd
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig
    from horovod.tensorflow.data.compute_worker import main

    folder = hvd.broadcast_object(tempfile.mkdtemp(dir="/tmp"), name="folder")
    thread = threading.Thread(target=main, args=(2, "compute", f"{folder}/compute.json", 120))
    thread.start()
    config = TfDataServiceConfig.read(f"{folder}/compute.json", wait_for_file_creation=True)
    client = config.compute_client()
    assert len(client.wait_for_dispatcher_worker_registration(hvd.rank())) == 1
    if hvd.rank() == 0:
        client.wait_for_dispatcher_worker_registration(1)
        client.shutdown()
    thread.join()
    hvd.barrier()
    assert hvd.rank() != 0 or os.listdir(folder) == []
    if hvd.rank() == 0:
        os.rmdir(folder)


@pytest.mark.row("d9")
def test_two_compute_jobs_and_two_training_jobs_at_once(tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    with compute.job(2, folder=folders[0]), compute.job(2, folder=folders[1]):
        import threading

        found: dict[int, list[str]] = {}

        def read(which: int) -> None:
            text = f"""
            import horovod.tensorflow as hvd
            hvd.init()
            data = tf.data.Dataset.range({which} * 100, {which} * 100 + 50)
            data = numbers(data.send_to_data_service(config, rank, size, reuse_dataset=True))
            data = hvd.allgather(tf.constant(data, tf.int64)).numpy().tolist()
            print(sorted(data) == list(range({which} * 100, {which} * 100 + 50)))
            """
            found[which] = compute.outputs(text, folders[which], 2)

        readers = [threading.Thread(target=read, args=(which,)) for which in (0, 1)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert found == {0: ["True\n"] * 2, 1: ["True\n"] * 2}
