# SPDX-License-Identifier: Apache-2.0
"""Names of operations: what may be one, and that no two are taken for each other."""

import horovod.numpy as hvd
import numpy as np
import pytest

FUNCTIONS = {
    "allreduce": lambda name: hvd.allreduce(np.ones(2), name=name),
    "allreduce_": lambda name: hvd.allreduce_(np.ones(2), name=name),
    "allreduce_async": lambda name: hvd.synchronize(hvd.allreduce_async(np.ones(2), name=name)),
    "allreduce_async_": lambda name: hvd.synchronize(hvd.allreduce_async_(np.ones(2), name=name)),
    "allgather": lambda name: hvd.allgather(np.ones(2), name=name),
    "allgather_async": lambda name: hvd.synchronize(hvd.allgather_async(np.ones(2), name=name)),
    "broadcast": lambda name: hvd.broadcast(np.ones(2), 0, name=name),
    "broadcast_async": lambda name: hvd.synchronize(hvd.broadcast_async(np.ones(2), 0, name=name)),
    "broadcast_object": lambda name: hvd.broadcast_object(1, name=name),
    "allgather_object": lambda name: hvd.allgather_object(1, name=name),
    "broadcast_parameters": lambda name: hvd.broadcast_parameters([(name, np.ones(2))], 0),
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["weights", "", "a/b.c d", "größe", "重み", "\n", "x" * 60_000, np.str_("y")])
def test_any_text_may_be_a_name(function, name):
    FUNCTIONS[function](name)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_name_that_cannot_be_sent_is_a_value_error(function):
    for name, why in {
        "a\0b": r"name='a\\x00b' .*NUL",
        "\0": r"name='\\x00' .*NUL",
        "a\ud800": r"name='a\\ud800' .*UTF-8",
    }.items():
        with pytest.raises(ValueError, match=why):
            FUNCTIONS[function](name)
    with pytest.raises(ValueError, match=r"65536|64 KiB|at most"):
        FUNCTIONS[function]("x" * 70_000)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", [3, b"weights", 1.5, ["weights"]])
def test_a_name_that_is_no_text_is_a_type_error(function, name):
    with pytest.raises(TypeError, match=r"name=.*give a str"):
        FUNCTIONS[function](name)
