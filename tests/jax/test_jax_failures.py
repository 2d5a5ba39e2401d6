# SPDX-License-Identifier: Apache-2.0
"""What a program of JAX sees when a rank is lost, or when the ranks run programs that differ."""

import re
import sys

import pytest
import spawn

START = """
import os, signal, time
import jax, jax.numpy as jnp
import horovod.jax as hvd
hvd.init()
rank = hvd.rank()
step = jax.jit(lambda x: hvd.allreduce(x, name="step"))
step(jnp.ones(1000)).block_until_ready()
"""


def run(body, ranks=3, **env):
    return spawn.spawn([sys.executable, "-c", START + body], ranks, env=env, timeout=90, preloaded="jax")


@pytest.mark.row("x5")
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_rank_that_is_lost_is_named(size):
    body = f"""
x = jnp.ones({size})
for i in range(10):
    if rank == 1 and i == 5:
        print("killed at", time.monotonic(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        x = step(x)
        x.block_until_ready()
    except Exception as error:
        print("raised at", time.monotonic(), "by", error)
        assert i in (4, 5), i  # the other one may still have been at work
        try:
            step(jnp.ones({size})).block_until_ready()
        except Exception as again:
            print("again:", again)
        break
"""
    results = run(body)
    killed = float(re.search(r"killed at ([\d.]+)", results[1].output)[1])
    for result in (results[0], results[2]):
        raised = re.search(r"raised at ([\d.]+) by UNKNOWN: Horovod has been shut down: rank 1 .*died", result.output)
        assert raised, result
        seconds = float(raised[1]) - killed
        print(f"{seconds * 1000:.1f} ms from the death of rank 1 to the exception on rank {result.rank}")
        assert seconds < 10  # on a quiet machine a few ms; kill_jax.py measures it
        assert "again: UNKNOWN: Horovod has been shut down: rank 1" in result.output
        assert result.returncode == 0


def test_programs_that_differ_end_in_a_stall_report():
    body = """
other = jax.jit(lambda x: hvd.allreduce(x, name="other" if rank == 1 else "common"))
try:
    other(jnp.ones(3)).block_until_ready()
except Exception as error:
    print("raised:", error)
"""
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    results = run(body, 2, **limits)
    report = "".join(result.output for result in results)
    assert "Stalled for" in report, report
    assert "allreduce.common" in report
    assert "allreduce.other" in report
    assert all("raised: " in result.output for result in results), results
