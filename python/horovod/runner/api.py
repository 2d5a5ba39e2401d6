# SPDX-License-Identifier: Apache-2.0
"""horovod.run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Callable

from horovod.runner import task
from horovod.runner.program import find_horovodrun, run_horovodrun


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    elastic_timeout: float | None = None,
) -> list[Any]:
    """
    Run ``func(*args, **kwargs)`` on `num_proc` ranks and return their results in the order of ranks.

    The function, its arguments and its results travel by cloudpickle through a folder that only this user can read.
    What ranks print appears here while they run. If a rank raises, its exception is raised here, with the rank and its
    traceback as cause; if one ends otherwise, a RuntimeError says how. The other parameters are horovodrun's flags.

    With `min_num_proc` or `host_discovery_script` the job is elastic: `func` calls a function that `hvd.elastic.run`
    decorates, and ranks may be lost and join. The list then has the results of the first `min_num_proc` ranks.

    >>> import horovod
    >>> def square():
    ...     import horovod.numpy as hvd
    ...     hvd.init()
    ...     return hvd.rank() ** 2
    >>> horovod.run(square, num_proc=3)
    [0, 1, 4]
    """
    num_proc = _renamed("np", np, "num_proc", num_proc)
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    network_interfaces = _renamed("network_interface", network_interface, "network_interfaces", network_interfaces)
    if hosts is not None and hostfile is not None:
        raise ValueError("hosts and hostfile: give one of them, not both")
    if use_gloo and use_mpi:
        raise ValueError("use_gloo and use_mpi: give one of them, not both")
    if not callable(func):
        raise TypeError(f"func must be callable, not {type(func).__name__}")
    flags = {
        "-np": num_proc,
        "--min-np": min_num_proc,
        "--max-np": max_num_proc,
        "--slots-per-host": slots,
        "--elastic-timeout": elastic_timeout,
        "--reset-limit": reset_limit,
        "--blacklist-cooldown-range": None if cooldown_range is None else str(tuple(cooldown_range)),
        "-H": hosts,
        "--hostfile": hostfile,
        "--host-discovery-script": host_discovery_script,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--disable-cache": disable_cache,
        "--output-filename": output_filename,
        "--verbose": verbose,
        "--gloo": use_gloo,
        "--mpi": use_mpi,
        "--mpi-args": mpi_args,
        "--network-interfaces": network_interfaces,
    }
    program = find_horovodrun()
    with task.Folder(func, tuple(args), dict(kwargs or {})) as folder:
        # mpirun makes no report, and looks after no folder.
        report = [] if use_mpi else ["--report-file", folder.report, "--task-folder", folder.path]
        command = [program, *_spelled(flags), "--die-with-parent", *report]
        exit_code, complaint = run_horovodrun([*command, *folder.command(executable)])
        is_elastic = min_num_proc is not None or host_discovery_script is not None
        ranks = (min_num_proc or num_proc) if is_elastic else num_proc
        return folder.results(ranks, exit_code, complaint)


def _renamed(old_name: str, old: Any, new_name: str, new: Any) -> Any:
    if old is None:
        return new
    warnings.warn(f"{old_name} is now called {new_name}", DeprecationWarning, stacklevel=3)
    return old


def _spelled(flags: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in flags.items():
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [name, str(value)]
    return words
