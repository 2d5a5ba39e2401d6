# SPDX-License-Identifier: Apache-2.0
"""
Ranks that begin with a framework already imported.

A server imports it once, starts nothing and keeps a single thread; each rank is a fork of it that has its own session,
environment, working directory and output, and then runs a script or `-c` as an interpreter does. Two servers serve a
job, one for rank 0 and one for the others: Python's hashes differ among these ranks as among separate interpreters.

Tests that are about starting start interpreters of their own.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import hashlib
import importlib
import json
import os
import pathlib
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence

# What a server imports, by its name.
MODULES = {
    "numpy": "pytest _pytest.assertion.rewrite ml_dtypes horovod.numpy horovod.common.objects",
    "torch": "pytest _pytest.assertion.rewrite torch horovod.torch",
    "jax": "pytest _pytest.assertion.rewrite jax jax.numpy optax horovod.jax",
    "tensorflow": "pytest _pytest.assertion.rewrite tensorflow horovod.tensorflow.names horovod.tensorflow.keras",
}
# Names of the folder with the servers' sockets and of the process that they live for; set by the first that asks.
HOME = "PRELOADED_RANKS"
# Variables that are read when a framework is imported, or before: a server of its own for each value of them.
_READ_EARLY = ("TF_", "KERAS_", "PYTHON", "LD_", "HVD_LIBRARY", "HOROVOD_COMPAT")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def home() -> tuple[pathlib.Path, int]:
    """Return the folder of the servers and the process with which they end."""
    if HOME not in os.environ:
        folder = tempfile.mkdtemp(prefix="hvd-servers-", dir="/tmp")
        os.environ[HOME] = f"{folder}:{os.getpid()}"
        atexit.register(_remove, folder, os.getpid())
    folder, owner = os.environ[HOME].rsplit(":", 1)
    return pathlib.Path(folder), int(owner)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class Rank:
    """One forked rank; has what spawn.py uses of subprocess.Popen."""

    def __init__(self, kind: str, rank: int, command: Sequence[str], env: Mapping[str, str], output: int) -> None:
        self.returncode: int | None = None
        self._text = b""
        self._server = _connect(kind, rank, env)
        words = list(command)
        assert words[0] == sys.executable, words
        text = json.dumps({"words": words[1:], "env": dict(env), "folder": os.getcwd()}).encode()
        files = array.array("i", [output]).tobytes()
        self._server.sendmsg([len(text).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        self._server.sendall(text)

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self._look(timeout) is None:
            raise subprocess.TimeoutExpired("a forked rank", timeout or 0)
        return self.returncode  # type: ignore[return-value]

    def kill(self) -> None:
        """End it with all that it started in its session."""
        with contextlib.suppress(OSError):
            self._server.sendall(b"k")

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._server], [], [], timeout)[0]:
            text = self._server.recv(64)
            if not text:
                raise RuntimeError("a server of ranks ended: see tests/python/preloaded.py")
            self._text += text
            if self._text.endswith(b"\n"):
                self.returncode = int(self._text)
                self._server.close()
        return self.returncode


def _connect(kind: str, rank: int, env: Mapping[str, str]) -> socket.socket:
    """Return a connection to the server for such ranks, which is started if there is none yet."""
    early = {name: value for name, value in env.items() if name.startswith(_READ_EARLY)}
    key = hashlib.sha256(json.dumps([sys.executable, sorted(early.items())]).encode()).hexdigest()[:12]
    folder, owner = home()
    path = folder / f"{kind}-{min(rank, 1)}-{key}"
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _start(kind, path, owner, early)
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(str(path))
    except OSError as error:
        server.close()
        log = pathlib.Path(f"{path}.log").read_text()
        raise RuntimeError(f"the server of ranks with {kind} is gone: {error}\n{log}") from None
    return server


def _start(kind: str, path: pathlib.Path, owner: int, early: Mapping[str, str]) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD_", *_READ_EARLY))}
    # Threads of OpenBLAS would be a second thread of the server.
    env = {**kept, **early, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with socket.socket(socket.AF_UNIX) as listener, open(f"{path}.log", "wb") as log:
        listener.bind(str(path))
        listener.listen(256)
        subprocess.Popen(
            [sys.executable, __file__, kind, str(listener.fileno()), str(owner)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            cwd="/",
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )


class Server:
    """Forks ranks until its owner has ended."""

    def __init__(self, listener: socket.socket, owner: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._owner = os.pidfd_open(owner)
        self._pids: dict[socket.socket, int] = {}  # of ranks that run
        self._request: dict | None = None
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._owner, selectors.EVENT_READ, self._end)

    def serve(self) -> dict:
        """Return in each rank, with what it shall be; the server itself never returns."""
        while self._request is None:
            for key, _ in self._selector.select():
                key.data()
                if self._request is not None:
                    break
        return self._request

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        length, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_LEN(4))
        output = int.from_bytes(ancillary[0][2], sys.byteorder)
        text, size = b"", int.from_bytes(length, "big")
        while len(text) < size:  # and no more: the one who asks may follow with a request to kill
            text += connection.recv(size - len(text))
        alone = len(os.listdir("/proc/self/task")) == 1
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._leave(connection, output, server)
            self._request = json.loads(text)
            if not alone:  # another thread would not be in the rank, and what it holds would never be free
                os.execve(sys.executable, [sys.executable, *self._request["words"]], self._request["env"])
            return
        os.close(output)
        self._pids[connection] = pid
        ended = os.pidfd_open(pid)
        self._selector.register(connection, selectors.EVENT_READ, functools.partial(self._hear, connection))
        self._selector.register(ended, selectors.EVENT_READ, functools.partial(self._reap, connection, ended))

    def _leave(self, connection: socket.socket, output: int, server: int) -> None:
        """Keep nothing of the server in a rank."""
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        connection.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._selector.close()

    def _end(self) -> None:
        """Nobody is left to ask, and an owner that was killed could not clean up."""
        shutil.rmtree(pathlib.Path(self._listener.getsockname()).parent, ignore_errors=True)
        os._exit(0)

    def _hear(self, connection: socket.socket) -> None:
        """Kill a rank when it is asked for, or when the one who asked for the rank has gone."""
        if not connection.recv(64):
            self._selector.unregister(connection)
        # Its group is not there before its session is.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(self._pids[connection], signal.SIGKILL)

    def _reap(self, connection: socket.socket, ended: int) -> None:
        _, status = os.waitpid(self._pids.pop(connection), 0)
        self._selector.unregister(ended)
        os.close(ended)
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        connection.close()


def be(request: dict) -> None:
    """Run a script, or a text after -c, as the interpreter does."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # forks would draw the same numbers
    first, *words = request["words"]
    main = types.ModuleType("__main__")
    if first == "-c":
        source, name, folder = words.pop(0), "<string>", ""
    else:
        source, name, folder = pathlib.Path(first).read_bytes(), first, str(pathlib.Path(first).resolve().parent)
        main.__file__ = first
    sys.argv[:] = [first, *words]
    sys.path[0] = folder
    sys.modules["__main__"] = main
    exec(compile(source, name, "exec"), main.__dict__)


def serve(kind: str, listener: str, owner: str) -> None:
    """Be a server, and then each of its ranks."""
    server = Server(socket.socket(fileno=int(listener)), int(owner))
    for module in MODULES[kind].split():
        importlib.import_module(module)
    gc.freeze()  # a collection in a rank, and its end, would look at all that was imported, and copy it
    be(server.serve())


if __name__ == "__main__":
    serve(*sys.argv[1:])
