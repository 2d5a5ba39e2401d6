# SPDX-License-Identifier: Apache-2.0
"""
What a Spark task does for its rank: registers at the driver, starts the rank, sends its lines and its result.

    task -> driver   {"hello": ...}, {"line": stream}, {"raised": ...}, {"ended": ...}
    driver -> task   {"start": variables, ...} with the job as body; the end of the connection ends the rank
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from typing import Any

from horovod.runner import layout
from horovod.spark import channel

# Seconds until the driver must have answered a connection.
_CONNECT = 30
# Bytes of output that may wait for the driver; what a rank prints beyond that is dropped, so that it never waits.
_BACKLOG = 8 << 20
_READ = 65536
# Seconds without output after which a pipe that some process outside the rank's group holds is no longer read.
_DRAIN = 0.1
# A longer line is sent in pieces.
_LONGEST_LINE = 65536


def own_path() -> list[str]:
    """Return the folders of sys.path that are not the interpreter's own, such as those of --py-files."""
    own = tuple(os.path.join(os.path.realpath(prefix), "") for prefix in {sys.prefix, sys.base_prefix})
    return [folder for folder in sys.path if folder and not os.path.realpath(folder).startswith(own)]


def supervise(partition: int, address: tuple[str, int], token: bytes, executable: str | None, cores: int) -> None:
    """Be one task, until the rank has ended and the driver knows how."""
    try:
        driver = channel.connect(address, token, _CONNECT)
    except OSError as error:
        raise ConnectionError(
            f"{socket.gethostname()} cannot reach the driver at {address[0]}:{address[1]}: {error}; "
            "set spark.driver.host to an address of the driver that executors reach"
        ) from error
    with contextlib.closing(driver), layout.reserve(driver.socket.getsockname()[0]) as reserved:
        where = layout.whereabouts(reserved.getsockname()[:2])
        driver.put({"hello": partition, **dataclasses.asdict(where)})
        with contextlib.suppress(EOFError, ConnectionError):
            start, job = _wait_for_start(driver)
            if start["several hosts"]:
                start["token"] = hmac.digest(token, b"token of the ranks", "sha256").hex()
            _Rank(driver, start, job, executable, cores).run()


def _wait_for_start(driver: channel.Channel) -> tuple[dict[str, Any], bytes]:
    with selectors.DefaultSelector() as selector:
        selector.register(driver, selectors.EVENT_READ)
        driver.socket.setblocking(True)
        driver.flush()
        driver.socket.setblocking(False)
        while True:
            selector.select()
            for header, body in driver.take():
                return header, body


def _variables(start: dict[str, Any], cores: int) -> dict[str, str]:
    # Spark's own variables, secrets among them, are no business of the rank.
    kept = {
        name: value
        for name, value in os.environ.items()
        if "SECRET" not in name
        and not name.startswith(("PYTHON_WORKER", "PYTHON_DAEMON", "PYTHON_UDF"))
        and (not name.startswith(("SPARK_", "_SPARK", "_PYSPARK")) or name == "SPARK_HOME")
        and name not in ("PYTHONHASHSEED", "HOROVOD_TOKEN_FILE", "HOROVOD_INSECURE")
    }
    return {**kept, "OMP_NUM_THREADS": str(cores), "PYTHONUNBUFFERED": "1", **start["start"]}


def _in_memory(name: str, data: bytes = b"") -> int:
    # No file: the kernel forgets it with the last process that has it open.
    descriptor = os.memfd_create(name)
    os.fchmod(descriptor, 0o600)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class _Rank:
    """A rank that runs, and its warden."""

    def __init__(
        self, driver: channel.Channel, start: dict[str, Any], job: bytes, executable: str | None, cores: int
    ) -> None:
        self._driver = driver
        self._status: int | None = None
        self._report: tuple[dict[str, Any], bytes] | None = None
        self._pid = 0
        self._dropped = 0
        about = {"task path": own_path(), "driver path": start["path"], "versions": start["versions"]}
        variables = _variables(start, cores)
        given = [_in_memory("job", json.dumps(about).encode() + b"\n" + job), _in_memory("result")]
        self._result = given[1]
        self._news, told = os.pipe()
        passed = [*given, told]
        if "token" in start:
            passed.append(_in_memory("token", start["token"].encode()))
            variables["HOROVOD_TOKEN_FILE"] = f"/proc/self/fd/{passed[-1]}"
        code = "from horovod.spark.child import main; main()"
        words = [executable or sys.executable, "-c", code, *map(str, [*given, told, os.getpid()])]
        try:
            self._warden = subprocess.Popen(
                words,
                env=variables,
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        finally:
            for descriptor in passed:
                if descriptor != self._result:
                    os.close(descriptor)
        self._rest = {"news": b"", "stdout": b"", "stderr": b""}

    def run(self) -> None:
        """Pass on what the rank writes until it has ended; end it if the driver goes away."""
        pipes = {"news": self._news, "stdout": self._warden.stdout.fileno(), "stderr": self._warden.stderr.fileno()}
        with selectors.DefaultSelector() as self._selector, self._warden:
            for name, pipe in pipes.items():
                os.set_blocking(pipe, False)
                self._selector.register(pipe, selectors.EVENT_READ, name)
            self._selector.register(self._driver, selectors.EVENT_READ, "driver")
            try:
                self._turn()
            finally:
                # Asked once, the warden gives the rank a moment and then kills it.
                if self._warden.poll() is None:
                    self._warden.send_signal(signal.SIGTERM)
                self._warden.wait()
                os.close(self._news)
                os.close(self._result)

    def _turn(self) -> None:
        while self._selector.get_map().keys() - {self._driver.fileno()}:
            events = selectors.EVENT_READ | (0 if self._driver.flush() else selectors.EVENT_WRITE)
            self._selector.modify(self._driver, events, "driver")
            events = self._selector.select(None if self._status is None else _DRAIN)
            if not events:
                return self._end()
            for key, _ in events:
                if key.data == "driver":
                    # It says nothing more. EOFError, once it is gone.
                    self._driver.take()
                else:
                    self._read(key)
        self._end()

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            data = os.read(key.fd, _READ)
        except BlockingIOError:
            return
        lines = (self._rest[key.data] + data).split(b"\n")
        self._rest[key.data] = lines.pop()
        if not data or len(self._rest[key.data]) > _LONGEST_LINE:
            lines += filter(None, [self._rest[key.data]])
            self._rest[key.data] = b""
        if not data:
            self._selector.unregister(key.fd)
        for line in lines:
            if key.data == "news":
                self._hear(json.loads(line))
            elif self._driver.backlog > _BACKLOG:
                self._dropped += 1
            else:
                self._driver.put({"line": key.data}, line)

    def _hear(self, news: dict[str, Any]) -> None:
        self._pid = news.get("pid", self._pid)
        self._status = news.get("status", self._status)
        if "result" in news:
            os.lseek(self._result, 0, os.SEEK_SET)  # the rank wrote by the same open file
            with open(self._result, "rb", closefd=False) as file:
                self._report = json.loads(file.readline()), file.read()
            if self._report[0]["raised"]:
                # At once: the end of a large process takes a while.
                self._driver.put({"raised": self._report[0], "pid": self._pid}, self._report[1])

    def _end(self) -> None:
        status = self._status
        if status is None:
            status = self._warden.wait()
            how = (
                "lost its warden"
                if self._pid
                else f"did not start: {self._warden.args[0]} ended with exit code {status}"
            )
        elif os.WIFSIGNALED(status):
            how = f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
        elif os.WEXITSTATUS(status):
            how = f"ended with exit code {os.WEXITSTATUS(status)}"
        elif self._report is None:
            how = "ended without a result: it left the function by os._exit or the like"
        else:
            how = ""
        body = self._report[1] if self._report and not how and not self._report[0]["raised"] else b""
        self._driver.put({"ended": how, "pid": self._pid, "dropped": self._dropped}, body)
        self._driver.socket.setblocking(True)
        self._driver.flush()
