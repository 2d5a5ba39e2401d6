# SPDX-License-Identifier: Apache-2.0
"""Examples and the programs in the pages of JAX run as written."""

import pathlib
import re
import sys

import pytest
import spawn

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "jax"


@pytest.mark.row("x6")
def test_digits():
    def run(*options, ranks=2):
        return spawn.run([sys.executable, str(EXAMPLES / "digits.py"), *options], ranks, timeout=120, preloaded="jax")

    first, second = run()
    assert float(re.search(r"2 ranks, test accuracy ([\d.]+)", first)[1]) > 0.9
    assert second == ""
    assert run("--epochs", "1", "--passes", "2", ranks=1)[0].startswith("1 ranks")


def test_keras_fit():
    command = [sys.executable, str(EXAMPLES / "keras_fit.py")]
    first, second = spawn.run(command, 2, env={"KERAS_BACKEND": "jax"}, timeout=120, preloaded="jax")
    assert float(re.search(r"2 ranks, Keras on jax, test accuracy ([\d.]+)", first)[1]) > 0.85
    assert second == ""


def test_benchmark_of_tensors():
    command = [sys.executable, "-m", "horovod.benchmark", "--framework", "jax", "--sizes", "4,4K", "--calls", "3"]
    operations = "allreduce,allgather,broadcast,alltoall,reducescatter,barrier"
    table = spawn.run([*command, "--ops", operations], 2, timeout=120)[0]
    assert "float32 in tensors of jax" in table
    assert len(table.splitlines()) == 2 + 5 * 2 + 1


@pytest.mark.parametrize("page", ["docs/quickstart/jax.md", "docs/guides/jax.md"])
def test_python_in_the_pages_runs(page):
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", (ROOT / page).read_text(), flags=re.S)
    assert blocks
    for code, wanted in blocks:
        printed = spawn.run([sys.executable, "-c", code], 2, timeout=120, preloaded="jax")
        assert not wanted or "".join(printed).split() == wanted.split(), code


def test_examples_in_docstrings():
    code = """
import doctest, importlib
for name in ("", ".ops", ".training", ".functions"):
    failed, tried = doctest.testmod(importlib.import_module(f"horovod.jax{name}"))
    assert tried and not failed, name
"""
    spawn.run([sys.executable, "-c", code], 1, timeout=120, preloaded="jax")
