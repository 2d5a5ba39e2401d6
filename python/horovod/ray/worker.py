# SPDX-License-Identifier: Apache-2.0
"""The actor that is one rank."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, Callable

from horovod.common.basics import HorovodBasics
from horovod.ray import ray_logger
from horovod.runner import layout
from horovod.runner.outcome import describe

_basics = HorovodBasics()


class Seat:
    """
    Part of this process in a job: variables, the token, and the port at which rank 0 may listen.

    Thread safety: none. The process has one.
    """

    def __init__(self) -> None:
        self._reserved: socket.socket | None = None
        self._token: int | None = None

    def offer(self, address: str) -> layout.Whereabouts:
        """Leave the job, if this process is in one, and return where this process can be a rank."""
        _basics.shutdown()
        if self._reserved is not None:
            self._reserved.close()
        self._reserved = layout.reserve(address)
        return layout.whereabouts(self._reserved.getsockname()[:2])

    def take(self, variables: Mapping[str, str], token: str | None) -> None:
        """Be the rank that `variables` describe. `token` is that of a job on several hosts."""
        for name in ("HOROVOD_TOKEN_FILE", "HOROVOD_INSECURE", "HOROVOD_JOB_ID"):
            os.environ.pop(name, None)
        os.environ.update(variables)
        if self._token is not None:
            os.close(self._token)
        self._token = None
        if token is not None:
            # No file: the kernel forgets it with this process.
            self._token = os.memfd_create("token")
            os.fchmod(self._token, 0o600)
            os.write(self._token, token.encode())
            os.environ["HOROVOD_TOKEN_FILE"] = f"/proc/{os.getpid()}/fd/{self._token}"


class BaseHorovodWorker:
    """
    One rank. Ray makes an actor of it; RayExecutor calls the methods.

    Thread safety: Ray calls one method at a time.
    """

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        os.environ["HOROVOD_RANK"] = str(world_rank)
        os.environ["HOROVOD_SIZE"] = str(world_size)
        self._seat = Seat()
        self._failed = False

    def hostname(self) -> str:
        """Return the name of the host."""
        return socket.gethostname()

    def node_id(self) -> str:
        """Return Ray's name of the node. Two nodes of Ray may be one host."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def get_gpu_ids(self) -> list[Any]:
        """Return the GPUs that Ray has given to this rank."""
        import ray

        return ray.get_gpu_ids()

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        """Set variables of this process."""
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """Return the variables of this process."""
        return dict(os.environ)

    def start_executable(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: list[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the object that `execute` gives to functions."""
        if executable_cls is not None:
            self.executable = executable_cls(*(executable_args or ()), **(executable_kwargs or {}))

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """Return func(executable). If `func` raises, this rank leaves the job, so that no other rank waits for it."""
        try:
            return func(self.executable)
        except BaseException:
            self._failed = True
            _basics.shutdown()  # sends the exception to the other ranks as the reason
            raise

    def set_queue(self, queue: Any) -> None:
        """Have ray_logger.log send its values to `queue`."""
        ray_logger.configure(queue)

    # For RayExecutor.

    def offer_seat(self) -> layout.Whereabouts:
        """Leave the job and return where this process can be a rank."""
        import ray

        self._failed = False
        return self._seat.offer(ray.util.get_node_ip_address())

    def take_seat(self, variables: Mapping[str, str], token: str | None) -> None:
        """Be the rank that `variables` describe."""
        self._seat.take(variables, token)

    def attempt(self, method: str, *arguments: Any) -> Any:
        """Return what the method returns, or a Failure: an exception of the function passes through Ray as it is."""
        try:
            return getattr(self, method)(*arguments)
        except BaseException as error:
            return describe(error)

    def has_failed(self) -> bool:
        """Whether a function has raised since this rank took its seat."""
        return self._failed

    def leave(self) -> None:
        """Leave the job in good order."""
        _basics.shutdown()
