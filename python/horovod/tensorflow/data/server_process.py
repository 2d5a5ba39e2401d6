# SPDX-License-Identifier: Apache-2.0
"""
One dispatcher or worker of TensorFlow's data service: a process of its own, run as a script.

    python server_process.py SPECIFICATION

It loads TensorFlow's server library and nothing else of TensorFlow, prints "ready" when the server answers, and ends
at once when its standard input ends, however that comes about. The supervisor of the rank is its only client.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

# The port that the preloaded library shows for a server that listens at a unix socket: see data_service/listen.c.
UNIX_PORT = 1
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02
# Packages above the server library whose own code, the whole of TensorFlow, is left out.
_HOLLOW = (
    "tensorflow",
    "tensorflow.python",
    "tensorflow.python.data",
    "tensorflow.python.data.experimental",
    "tensorflow.python.data.experimental.service",
    "tensorflow.core",
    "tensorflow.core.protobuf",
)


def load() -> tuple[Any, Any]:
    """Return TensorFlow's server library and the messages that configure servers."""
    found = importlib.util.find_spec("tensorflow")
    if found is None or not found.submodule_search_locations:
        raise ImportError("TensorFlow is not installed for this interpreter: install it on every host of the job")
    root = found.submodule_search_locations[0]
    try:
        for name in _HOLLOW:
            module = types.ModuleType(name)
            module.__path__ = [os.path.join(root, *name.split(".")[1:])]
            sys.modules[name] = module
        return _import()
    except ImportError:  # A release that needs more of TensorFlow: all of it, which is slower and as right.
        for name in _HOLLOW:
            sys.modules.pop(name, None)
        return _import()


def _import() -> tuple[Any, Any]:
    with _silence():
        return _import_both()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep lines off stderr that TensorFlow writes before it reads its level of logging."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _import_both() -> tuple[Any, Any]:
    library = importlib.import_module("tensorflow.python.data.experimental.service._pywrap_server_lib")
    messages = importlib.import_module("tensorflow.core.protobuf.service_config_pb2")
    return library, messages


def make(role: str, wanted: dict) -> Any:
    """Return a dispatcher or worker that is not started."""
    library, messages = load()
    if role == "dispatcher":
        config = messages.DispatcherConfig(
            port=0,
            protocol="grpc",
            fault_tolerant_mode=True,
            work_dir=wanted["work_dir"],
            job_gc_check_interval_ms=60_000,
        )
        return library.TF_DATA_NewDispatchServer(config.SerializeToString())
    config = messages.WorkerConfig(
        port=0,
        protocol="grpc",
        dispatcher_address=wanted["dispatcher"],
        worker_address=wanted["address"],
        heartbeat_interval_ms=1000,
        dispatcher_timeout_ms=int(wanted["timeout"] * 1000),
    )
    return library.TF_DATA_NewWorkerServer(config.SerializeToString())


def end_with_input() -> None:
    """End the process when the supervisor closes the pipe, or is gone."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def await_listener(address: str) -> None:
    """Return when somebody listens: TensorFlow's worker would wait for its dispatcher with Python's lock held."""
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(address[len("unix:") :])
                return
            except OSError:
                time.sleep(_POLL_S)


def main() -> None:
    """Be the server that the only argument describes."""
    parent = os.getppid()
    # A server that holds Python's lock cannot notice the end of its input. The supervising thread lives as long.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal; the supervisor decides
    wanted = json.loads(sys.argv[1])
    os.environ.pop("LD_PRELOAD", None)
    threading.Thread(target=end_with_input, daemon=True).start()
    path = wanted["address"][len("unix:") :]
    try:
        refused = ctypes.CDLL(None).hvd_listen_at(path.encode())
    except AttributeError:
        sys.exit("hvd data service: libhvd_listen.so is not preloaded: a server would listen at every interface")
    if refused:
        sys.exit(f"hvd data service: the path {path} is too long for a socket")
    server = make(wanted["role"], wanted)
    if wanted["role"] == "worker":
        await_listener(wanted["dispatcher"])
    server.start()
    if server.bound_port() != UNIX_PORT:
        sys.stderr.write("hvd data service: TensorFlow's server does not listen at its unix socket; it is ended\n")
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file: its neighbours are no modules of their own
    main()
