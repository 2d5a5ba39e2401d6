# SPDX-License-Identifier: Apache-2.0
"""What programs ask about this installation before `init`: which frameworks and libraries can be used."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from typing import Any

from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics

_basics = HorovodBasics()


def mpi_built(verbose: bool = False) -> bool:
    """
    Return whether this build can use MPI.

    >>> from horovod.common.util import mpi_built
    >>> mpi_built()
    True
    """
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """
    Return whether this build can use Gloo. It has an engine of its own instead.

    >>> from horovod.common.util import gloo_built
    >>> gloo_built()
    False
    """
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """
    Return NCCL's version code, or 0 when this build cannot use NCCL.

    >>> from horovod.common.util import nccl_built
    >>> nccl_built()
    0
    """
    return _basics.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """
    Return whether this build can use IBM's DDL.

    >>> from horovod.common.util import ddl_built
    >>> ddl_built()
    False
    """
    return _basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """
    Return whether this build can use Intel's oneCCL.

    >>> from horovod.common.util import ccl_built
    >>> ccl_built()
    False
    """
    return _basics.ccl_built()


def cuda_built(verbose: bool = False) -> bool:
    """
    Return whether this build can use CUDA.

    >>> from horovod.common.util import cuda_built
    >>> cuda_built()
    False
    """
    return _basics.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    """
    Return whether this build can use ROCm.

    >>> from horovod.common.util import rocm_built
    >>> rocm_built()
    False
    """
    return _basics.rocm_built()


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """
    Return whether a framework can be used: its module in this package and the framework itself are installed.

    `ext_base_name` is "tensorflow", "keras", "torch", "jax" or the like. With `verbose`, the reason is printed if it is
    not. Nothing of the framework is imported.

    >>> from horovod.common.util import extension_available
    >>> extension_available("no_such_framework")
    False
    """
    if not isinstance(ext_base_name, str):
        raise TypeError(f"{show('ext_base_name', ext_base_name)} is no name: give a str such as 'tensorflow'")
    lacking = next((one for one in (f"horovod.{ext_base_name}", ext_base_name) if not _is_there(one)), None)
    if lacking is not None and verbose:
        print(f"{ext_base_name} cannot be used: {lacking} is not installed for {sys.executable}", file=sys.stderr)
    return lacking is None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: Any) -> None:
    """
    Raise ImportError unless a module of this package can be imported.

    `ext_env_var`, `pkg_path` and what follows them belong to installations that were built part by part; nothing
    depends on them here.

    >>> from horovod.common.util import check_extension
    >>> check_extension("horovod.numpy")
    """
    importlib.import_module(ext_name)


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """
    Return whether version `ver` is `target` or newer. Both have three numbers; what follows those is ignored.

    >>> from horovod.common.util import is_version_greater_equal_than
    >>> is_version_greater_equal_than("2.13.0", "2.9.1")
    True
    >>> is_version_greater_equal_than("2.9.0rc1", "2.9.1")
    False
    """
    return _numbers("ver", ver) >= _numbers("target", target)


def _numbers(argument: str, version: Any) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version) if isinstance(version, str) else None
    if found is None:
        raise ValueError(f"{show(argument, version)} is no version: give three numbers, such as '2.13.0'")
    return tuple(int(number) for number in found.groups())


def is_iterable(x: Any) -> bool:
    """
    Return whether something can be iterated over.

    >>> from horovod.common.util import is_iterable
    >>> is_iterable([1]), is_iterable(1)
    (True, False)
    """
    return isinstance(x, Iterable)


def num_rank_is_power_2(num_rank: int) -> bool:
    """
    Return whether a number of ranks is a power of two.

    >>> from horovod.common.util import num_rank_is_power_2
    >>> num_rank_is_power_2(8), num_rank_is_power_2(6)
    (True, False)
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
