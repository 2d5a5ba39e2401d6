# SPDX-License-Identifier: Apache-2.0
"""RayExecutor."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable

from horovod.common.exceptions import HorovodUnsupportedError
from horovod.ray.coordinator import Coordinator
from horovod.ray.crew import Crew
from horovod.ray.settings import MiniSettings
from horovod.ray.strategy import ColocatedStrategy, PGStrategy, Share
from horovod.runner import layout

if TYPE_CHECKING:
    from ray import ObjectRef

__all__ = ["Coordinator", "MiniSettings", "RayExecutor"]


class RayExecutor:
    """
    Ranks that are actors of Ray. They live from `start` to `shutdown`, and run one function after another.

    Give `num_workers`, the number of ranks, or `num_hosts` and `num_workers_per_host`. Each rank gets `cpus_per_worker`
    CPUs and, with `use_gpu`, `gpus_per_worker` GPUs (1). With `use_current_placement_group`, a program that runs in a
    placement group of Ray starts its ranks there. `min_workers`, `max_workers`, `reset_limit`, `cooldown_range`,
    `elastic_timeout` and `override_discovery` belong to elastic jobs, which are not in this release.

    Thread safety: one thread uses an executor at a time.

    >>> import ray                                                       # doctest: +SKIP
    >>> from horovod.ray import RayExecutor                              # doctest: +SKIP
    >>> def square():
    ...     import horovod.numpy as hvd
    ...     hvd.init()
    ...     return hvd.rank() ** 2
    >>> ray.init()                                                       # doctest: +SKIP
    >>> executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)   # doctest: +SKIP
    >>> executor.start()                                                 # doctest: +SKIP
    >>> executor.run(square)                                             # doctest: +SKIP
    [0, 1]
    >>> executor.shutdown()                                              # doctest: +SKIP
    """

    def __init__(
        self,
        settings: MiniSettings,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: float | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: tuple[int, int] | None = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
    ) -> None:
        _refuse_elastic(num_workers, min_workers, max_workers)
        if (num_workers is None) == (num_hosts is None):
            raise ValueError(
                f"num_workers={num_workers!r}, num_hosts={num_hosts!r}: give the number of ranks (num_workers), or "
                "num_hosts and num_workers_per_host, not both"
            )
        self.settings = settings
        share = _share(cpus_per_worker, use_gpu, gpus_per_worker)
        if num_workers is not None:
            _check_count("num_workers", num_workers)
            self._strategy = PGStrategy(settings, num_workers, share, use_current_placement_group)
        else:
            _check_count("num_hosts", num_hosts)
            _check_count("num_workers_per_host", num_workers_per_host)
            self._strategy = ColocatedStrategy(settings, num_hosts, num_workers_per_host, share)
        self._crew: Crew | None = None

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100,
        nics: str | Sequence[str] | None = None,
    ) -> MiniSettings:
        """
        Return settings: the seconds that Ray has to reserve resources, and after that to start the actors.

        `ssh_identity_file` and `ssh_str` have no effect, because Ray starts the ranks. Nor has `nics`: ranks connect at
        the addresses of Ray's nodes.
        """
        for name, value in (("timeout_s", timeout_s), ("placement_group_timeout_s", placement_group_timeout_s)):
            if not value > 0:
                raise ValueError(f"{name}={value!r}: give seconds, more than 0")
        return MiniSettings(
            nics=nics,
            key=ssh_str,
            ssh_identity_file=ssh_identity_file,
            timeout_s=timeout_s,
            placement_group_timeout_s=placement_group_timeout_s,
        )

    @property
    def num_workers(self) -> int:
        """The number of ranks."""
        return self._strategy.num_workers

    @property
    def workers(self) -> list[Any]:
        """The actors, in the order of ranks."""
        return self._started().workers

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: list[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """
        Start the ranks, and on each of them make an object, executable_cls(*executable_args, **executable_kwargs).

        Ranks get this program's HOROVOD_* variables and `extra_env_vars`. Raises TimeoutError if Ray does not start
        the actors in time.
        """
        if self._crew is not None:
            raise RuntimeError("the ranks of this RayExecutor are started already: call shutdown() first")
        variables = {**layout.job_variables(), **layout.checked_variables("extra_env_vars", extra_env_vars or {})}
        self._crew = Crew(self._strategy, variables)
        try:
            self._crew.start()
            if executable_cls is not None:
                arguments = (executable_cls, executable_args, executable_kwargs)
                self._crew.everywhere("start_executable", *arguments)
        except BaseException:
            self.shutdown()
            raise

    def execute(self, fn: Callable[[Any], Any], callbacks: Iterable[Callable[[Any], None]] | None = None) -> list[Any]:
        """
        Run fn(executable) on every rank and return the results in the order of ranks.

        `executable` is the object that `start` has made, or None. If a rank fails, the RuntimeError names the rank and
        the cause; its `__cause__` is the exception of the rank. Each of `callbacks` gets what rank 0 gives to
        horovod.ray.ray_logger.log, while the function runs.
        """
        _check_function(fn)
        return self._started().run(fn, list(callbacks or ()))

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Iterable[Callable[[Any], None]] | None = None,
    ) -> list[Any]:
        """Run fn(*args, **kwargs) on every rank, as `execute` does."""
        _check_function(fn)
        return self._started().run(_without_executable(fn, args, kwargs), list(callbacks or ()))

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> list[ObjectRef]:
        """
        Start fn(*args, **kwargs) on every rank and return Ray's references to the results, in the order of ranks.

        ray.get of a reference raises Ray's errors.
        """
        _check_function(fn)
        return self._started().begin(_without_executable(fn, args, kwargs))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Run fn(executable) on rank 0 and return the result."""
        _check_function(fn)
        return self._started().run(fn, [], ranks=1)[0]

    def shutdown(self) -> None:
        """End the ranks and give Ray its resources back. `start` may follow."""
        if self._crew is not None:
            self._crew.end()
        self._crew = None

    def _started(self) -> Crew:
        if self._crew is None:
            raise RuntimeError("this RayExecutor has no ranks: call start() first")
        return self._crew


def _without_executable(
    fn: Callable[..., Any], args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> Callable[[Any], Any]:
    return functools.partial(_call, fn, tuple(args or ()), dict(kwargs or {}))


def _call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], unused: Any) -> Any:
    return fn(*args, **kwargs)


def _check_function(fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"fn={fn!r} is not callable: give the function that the ranks are to run")


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r}: give a number, 1 or more")


def _share(cpus: float, use_gpu: bool, gpus: float | None) -> Share:
    if not cpus >= 0:
        raise ValueError(f"cpus_per_worker={cpus!r}: give the number of CPUs of a rank, 0 or more")
    if gpus is not None and not use_gpu:
        raise ValueError(f"gpus_per_worker={gpus!r} without use_gpu=True: give both, or neither")
    if gpus is not None and not gpus > 0:
        raise ValueError(f"gpus_per_worker={gpus!r}: give the number of GPUs of a rank, more than 0")
    return Share(cpus, (1 if gpus is None else gpus) if use_gpu else 0)


def _refuse_elastic(num_workers: int | None, min_workers: int | None, max_workers: int | None) -> None:
    if max_workers is not None and min_workers is None:
        raise ValueError(f"max_workers={max_workers!r} without min_workers: give num_workers for a job of fixed size")
    if min_workers is None:
        return
    if num_workers is not None:
        raise ValueError(f"num_workers={num_workers!r} and min_workers={min_workers!r}: give one of them")
    raise HorovodUnsupportedError(
        f"min_workers={min_workers!r}: elastic jobs on Ray are not in this release; give num_workers, a fixed number"
    )
