# SPDX-License-Identifier: Apache-2.0
"""What the documentation shows works as written."""

import doctest
import importlib
import json
import pathlib
import re
import subprocess
import sys

import pytest
import spawn

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_demo():
    result = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "demo.py")], capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "ok: accuracy must be at least 0.95" in result.stdout
    assert re.search(r"weights have the same bits on all ranks *\| *yes \| *yes \|", result.stdout)


def test_digits():
    command = [sys.executable, str(ROOT / "examples/numpy/digits.py"), "--epochs", "2"]
    outputs = spawn.run(command, 3, preloaded="numpy")
    assert outputs[0].startswith("3 ranks, loss")
    assert outputs[1:] == ["", ""]
    one, three = (json.loads(spawn.run([*command, "--json"], ranks, preloaded="numpy")[0]) for ranks in (1, 3))
    assert three["identical_weights"]
    assert max(abs(a - b) for a, b in zip(one["weights"], three["weights"])) <= 1e-6


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/quickstart/numpy.md",
        "docs/guides/join.md",
        "docs/guides/process_sets.md",
        "docs/reference/operations.md",
        "docs/reference/python.md",
        "docs/operate/timeline.md",
    ],
)
def test_python_in_the_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # What stands right under a program is what its ranks print.
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", (ROOT / page).read_text(), flags=re.S)
    assert blocks
    for block, expected in blocks:
        outputs = spawn.run([sys.executable, "-c", block], 2, timeout=60, preloaded="numpy")
        assert not expected or "".join(outputs) == expected


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "module",
    [
        "horovod.numpy",
        "horovod.numpy.ops",
        "horovod.numpy.exchange",
        "horovod.numpy.grouped",
        "horovod.numpy.adapter",
        "horovod.common.objects",
        "horovod.common.basics",
        "horovod.common.process_sets",
        "horovod.chaos.worker",
        "horovod.chaos.soak_report",
    ],
)
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0
