# SPDX-License-Identifier: Apache-2.0
"""A forked child gets a clear error from every call, and the parent is unharmed."""

import multiprocessing

import horovod.numpy as hvd
import pytest


def _use_in_child(queue):
    try:
        hvd.allreduce(1.0)
    except BaseException as error:
        queue.put(f"{type(error).__name__}: {error}")
    else:
        queue.put("it worked")


@pytest.mark.usefixtures("engine")
def test_a_forked_child_gets_an_error():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_use_in_child, args=(queue,))
    child.start()
    text = queue.get(timeout=20)
    child.join(20)
    assert "Error" in text
    assert "fork" in text
    assert hvd.allreduce(1.0) == 1.0  # the parent is unharmed
