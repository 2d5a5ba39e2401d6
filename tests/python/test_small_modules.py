# SPDX-License-Identifier: Apache-2.0
"""Modules that programs import beside those of frameworks, and words for those that are not there."""

import importlib
import importlib.util
import sys
import threading

import pytest
from horovod.common import util
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.common.util.network import NoValidAddressesFound
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.util.threads import in_thread


@pytest.mark.parametrize("name", ["mxnet", "no_such"])
def test_a_framework_that_is_not_there(name, capsys):
    module = f"horovod.{name}"
    assert importlib.util.find_spec(module) is None
    assert not util.extension_available(name, verbose=True)
    assert module in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError) as error:
        importlib.import_module(module)
    assert error.value.name == module
    if name != "no_such":
        assert f"{module} is not in this release of hvd: " in str(error.value)


def test_the_words_are_not_repeated_in_a_second_import():
    from horovod import _missing

    before = len(sys.meta_path)
    _missing.register()
    assert len(sys.meta_path) == before


def test_extensions_that_are_there():
    assert util.extension_available("numpy")
    assert "jax" not in sys.modules
    with pytest.raises(TypeError, match="ext_base_name=3 is no name"):
        util.extension_available(3)


def test_what_is_built_is_what_the_frameworks_modules_say():
    import horovod.numpy as hvd

    for name in ("mpi_built", "gloo_built", "nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"):
        assert getattr(util, name)() == getattr(hvd, name)()
        assert getattr(util, name)(verbose=True) == getattr(hvd, name)()


@pytest.mark.parametrize(
    ("version", "target", "newer"),
    [("2.10.0", "2.9.0", True), ("2.9.0", "2.9.0", True), ("2.9.0", "2.10.0", False), ("2.9.1.post1", "2.9.1", True)],
)
def test_versions(version, target, newer):
    assert util.is_version_greater_equal_than(version, target) == newer


def test_a_text_that_is_no_version():
    with pytest.raises(ValueError, match=r"target='2\.9' is no version: give three numbers"):
        util.is_version_greater_equal_than("2.9.0", "2.9")


def test_rank_and_size_of_launchers(monkeypatch):
    for name in (
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PMI_RANK",
        "PMI_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "2")
    assert get_env_rank_and_size() == (0, 1)  # half of a pair says nothing
    monkeypatch.setenv("PMI_SIZE", "4")
    assert get_env_rank_and_size() == (2, 4)
    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    assert get_env_rank_and_size() == (0, 3)
    monkeypatch.setenv("HOROVOD_SIZE", "three")
    with pytest.raises(ValueError, match="HOROVOD_SIZE='three' is no number"):
        get_env_rank_and_size()


def test_an_exception_that_programs_catch():
    with pytest.raises(Exception, match="no address"):
        raise NoValidAddressesFound("no address")


def test_a_limit_of_time():
    limit = Timeout(0, "{activity} took more than {timeout} s")
    while not limit.timed_out():
        pass
    assert limit.remaining() == 0
    with pytest.raises(TimeoutException) as error:
        limit.check_time_out_for("the start")
    assert error.value.message == "the start took more than 0 s"
    Timeout(3600, "no").check_time_out_for("the start")


def test_a_function_in_a_thread():
    seen = []
    thread = in_thread(lambda *given: seen.append((given, threading.current_thread())), args=(1, 2), name="worker")
    thread.join()
    assert seen == [((1, 2), thread)]
    assert (thread.name, thread.daemon) == ("worker", True)

    def fails():
        raise RuntimeError("dropped")

    in_thread(fails, silent=True).join()
    with pytest.raises(ValueError, match="a single argument is args="):
        in_thread(print, args="x")
