# SPDX-License-Identifier: Apache-2.0
"""Examples and the programs in the pages of PyTorch run as written."""

import pathlib
import re
import sys

import pytest
import spawn

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "torch"


def run(name, *options, ranks=2):
    return spawn.run([sys.executable, str(EXAMPLES / name), *options], ranks, timeout=200, preloaded="torch")


@pytest.mark.row("p18")
def test_digits():
    first, second = run("digits.py", "--epochs", "3")
    assert float(re.search(r"2 ranks, test accuracy ([\d.]+)", first)[1]) > 0.9
    assert second == ""
    assert run("digits.py", "--epochs", "1", ranks=1)[0].startswith("1 ranks")


def test_synthetic_benchmark():
    options = ("--batch", "2", "--side", "16", "--width", "4", "--steps", "2")
    assert "images/s" in run("synthetic_benchmark.py", *options)[0]
    assert "images/s" in run("synthetic_benchmark.py", *options, "--fp16-allreduce")[0]


def test_transformer():
    first, _ = run("transformer.py", "--steps", "100", "--compile", "--backend", "aot_eager")
    assert float(re.search(r"loss ([\d.]+)", first)[1]) < 2.2, first


def test_benchmark_of_tensors():
    command = [sys.executable, "-m", "horovod.benchmark", "--framework", "torch", "--sizes", "4,4K", "--calls", "3"]
    operations = "allreduce,allgather,broadcast,alltoall,reducescatter,barrier"
    table = spawn.run([*command, "--ops", operations], 2, timeout=120)[0]
    assert "float32 in tensors of torch" in table
    assert len(table.splitlines()) == 2 + 5 * 2 + 1


@pytest.mark.parametrize("page", ["docs/quickstart/pytorch.md", "docs/guides/pytorch.md"])
def test_python_in_the_pages_runs(page):
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", (ROOT / page).read_text(), flags=re.S)
    assert blocks
    for block, expected in blocks:
        outputs = spawn.run([sys.executable, "-c", block], 2, timeout=60, preloaded="torch")
        assert not expected or "".join(outputs) == expected
