# SPDX-License-Identifier: Apache-2.0
"""Somebody on the path between two hosts changes bytes: no such object is unpickled, no such control message obeyed."""

import pathlib
import pickle
import re
import subprocess
import sys

import cloudpickle
import pytest
import spawn

SOURCE = pathlib.Path(__file__).with_name("on_path.c")

# Two ranks that take each other for ranks of other hosts, so that they talk over TCP.
CODE = """
import os, pathlib, sys
rank = int(os.environ["HOROVOD_RANK"])
os.environ["HOROVOD_HOSTNAME"] = f"host{rank}"
import numpy as np, horovod.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(2), name="before")
try:
    if sys.argv[1] == "objects":
        print("GOT", hvd.broadcast_object(bytes.fromhex(sys.argv[2]) if rank == 0 else None))
    elif sys.argv[1] == "all objects":
        print("GOT", hvd.allgather_object(bytes.fromhex(sys.argv[2])))
    else:
        hvd.barrier()
        if rank == 0:
            pathlib.Path(sys.argv[2]).touch()
        for step in range(100):
            hvd.allreduce(np.ones(2), name=f"{step}")
        print("GOT it all")
except hvd.HorovodInternalError as error:
    print("REFUSED", error)
"""


class Exploit:
    """Creates a file where it is unpickled."""

    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.file),)


@pytest.fixture(scope="module")
def on_path(tmp_path_factory):
    library = tmp_path_factory.mktemp("on_path") / "on_path.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return str(library)


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("ab" * 32)
    return str(file)


def run(on_path, token, *words, **env):
    env = {"LD_PRELOAD": on_path, "HOROVOD_TOKEN_FILE": token, "HOROVOD_OP_TIMEOUT_SECONDS": "20", **env}
    return spawn.spawn([sys.executable, "-c", CODE, *map(str, words)], 2, env=env, timeout=60)


@pytest.mark.parametrize("what", ["objects", "all objects"])
def test_an_object_that_was_changed_is_not_unpickled(what, on_path, token, tmp_path):
    marker = tmp_path / "marker"
    evil = pickle.dumps(Exploit(marker), protocol=2)
    sent = bytes(i % 251 for i in range(2000))
    wire = cloudpickle.dumps(sent)
    # From the first byte of the pickle on, so that it is whole; what follows its end does not matter.
    find, put = wire[: len(evil)], evil
    words = {"ON_PATH_FIND": find.hex(), "ON_PATH_PUT": put.hex()}
    results = run(on_path, token, what, sent.hex(), **words)
    assert not marker.exists()
    assert "REFUSED" in results[1].output, spawn.describe(results[1])
    assert "was changed on its way" in results[1].output
    # Unchanged, it arrives.
    assert all("GOT" in result.output for result in run(on_path, token, what, sent.hex()))


CHANGED_SIZE = """
import horovod.numpy as hvd
from horovod.common import objects

received = objects._broadcast
def changed(array, root_rank, name, identifier):
    received(array, root_rank, name, identifier)
    if hvd.rank() == 1 and name.endswith(".sz"):
        array[0] = 1 << 62

hvd.init()
objects._broadcast = changed
try:
    hvd.broadcast_object("object")
    print("GOT it")
except hvd.HorovodInternalError as error:
    print("REFUSED", error)
"""


def test_no_memory_is_allocated_for_a_size_that_was_changed():
    results = spawn.spawn([sys.executable, "-c", CHANGED_SIZE], 2)
    assert re.search("REFUSED .*was changed on its way", results[1].output), spawn.describe(results[1])


def test_a_control_message_that_was_changed_ends_the_job(on_path, token, tmp_path):
    flag = tmp_path / "flag"
    results = run(on_path, token, "control", flag, ON_PATH_CONTROL=str(flag))
    for result in results:
        assert "REFUSED" in result.output, spawn.describe(result)
        assert "GOT" not in result.output
    assert any("a control message was changed on its way" in result.output for result in results)
