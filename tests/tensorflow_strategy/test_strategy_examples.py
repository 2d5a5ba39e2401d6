# SPDX-License-Identifier: Apache-2.0
"""The examples of strategies, and the guide, run as they are written."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import spawn
import starters

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "tensorflow"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def as_tasks(command, order, **variables):
    """Run a command as each task of a cluster, started one after the other; return what they wrote, by index."""
    addresses = [f"localhost:{spawn.free_port()}" for _ in order]
    processes = {}
    for index in order:
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
        environment.update(QUIET, TF_CONFIG=json.dumps(config), **variables)
        processes[index] = subprocess.Popen(
            [*spawn.DIES_WITH_US, sys.executable, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        outputs = {index: process.communicate(timeout=120)[0] for index, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    assert all(process.returncode == 0 for process in processes.values()), outputs
    return [outputs[index] for index in sorted(order)]


def results(outputs):
    return [line for output in outputs for line in output.splitlines() if re.match(r"\d ranks", line)]


@pytest.mark.row("h1", "h17", "h18", "k22")
def test_ranks_of_mpirun():
    result = starters.mpirun(starters.OPEN_MPI, 2, str(EXAMPLES / "strategy_horovod.py"), "--epochs", "4", **QUIET)
    assert result.returncode == 0, result.stdout + result.stderr
    (line,) = results([result.stdout])
    assert float(re.fullmatch(r"2 ranks, test accuracy (0\.\d+), identical weights: True", line)[1]) > 0.8


@pytest.mark.row("h2", "h12", "h18", "k22")
def test_tasks_of_a_cluster_that_start_backwards():
    (line,) = results(as_tasks([str(EXAMPLES / "strategy_multi_worker.py"), "--epochs", "4"], [1, 0]))
    assert float(re.fullmatch(r"2 ranks, test accuracy (0\.\d+), identical weights: True", line)[1]) > 0.8


@pytest.mark.row("h18")
def test_the_two_programs_differ_in_the_strategy_line():
    one, other = (
        (EXAMPLES / f"strategy_{name}.py").read_text().split('"""', 2)[2].splitlines()
        for name in ("horovod", "multi_worker")
    )
    assert len(one) == len(other)
    different = [(a, b) for a, b in zip(one, other) if a != b]
    assert [a for a, _ in different] == [
        "from horovod.tensorflow.strategy import HorovodStrategy",
        "    strategy = HorovodStrategy()",
    ]


@pytest.mark.row("h12", "h15", "k22")
def test_the_estimator_resumes(tmp_path):
    command = [str(EXAMPLES / "estimator.py"), "--folder", str(tmp_path), "--steps", "60"]
    (line,) = results(as_tasks(command, [1, 0]))
    assert line.startswith("2 ranks, step 60, ")
    # Under the other strategy, with another number of ranks.
    (line,) = results(spawn.run([sys.executable, *command], 1, env=QUIET, timeout=120))
    assert float(re.fullmatch(r"1 ranks, step 120, test accuracy (0\.\d+)", line)[1]) > 0.8


def test_the_guide():
    page = (ROOT / "docs/guides/strategies.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", page, flags=re.S)
    assert blocks
    # One after the other in the same ranks: starting TensorFlow takes longer than they do.
    program = "print('=', flush=True)\n".join(block for block, _ in blocks)
    outputs = spawn.run([sys.executable, "-c", program], 2, env=QUIET, timeout=120)
    printed = zip(*(text.split("=\n") for text in outputs))
    for (_, expected), texts in zip(blocks, printed):
        lines = [line for text in texts for line in text.splitlines() if re.match(r"\d+ ranks", line)]
        assert lines == expected.splitlines()
