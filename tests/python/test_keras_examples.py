# SPDX-License-Identifier: Apache-2.0
"""The Keras examples run as they are, and what they print is true."""

import pathlib
import re
import sys

import nbformat
import pytest
import spawn
from nbclient import NotebookClient

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "tensorflow"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


@pytest.mark.row("c7", "c9", "c10", "c11", "k1", "k2", "k22")
def test_fit(tmp_path):
    command = [sys.executable, str(EXAMPLES / "keras_fit.py"), "--epochs", "2", "--checkpoints", str(tmp_path)]
    outputs = spawn.run(command, 3, env=QUIET, timeout=120, preloaded="tensorflow")
    assert "3 ranks, loss" in outputs[0]
    assert "Epoch 2/2" in outputs[0]
    assert "Epoch" not in outputs[1] + outputs[2]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1.keras", "2.keras"]


@pytest.mark.row("c7", "c9", "c11", "c13", "k1", "k22")
def test_house_numbers(tmp_path):
    words = ["--epochs", "6", "--checkpoints", str(tmp_path)]
    outputs = spawn.run([sys.executable, str(EXAMPLES / "house_numbers.py"), *words], 2, env=QUIET, timeout=120)
    for rank, output in enumerate(outputs):
        accuracy = re.search(rf"rank {rank} of 2: test accuracy ([\d.]+), identical weights: True", output)[1]
        assert float(accuracy) > 0.3
    assert (tmp_path / "checkpoint-6.h5").exists()


@pytest.mark.row("c17")
def test_mixed_precision():
    command = [sys.executable, str(EXAMPLES / "keras_mixed_precision.py")]
    outputs = spawn.run(command, 2, env=QUIET, timeout=120, preloaded="tensorflow")
    # 2 ** 15 at first, halved at the broken picture of each of four epochs.
    assert all(
        re.search(r"identical weights: True, the loss is multiplied with 2048 = 2 \*\* 11$", output.strip())
        for output in outputs
    ), outputs


def test_the_guide():
    page = (EXAMPLES.parent.parent / "docs/quickstart/keras.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, flags=re.S)
    assert blocks
    for block, expected in blocks:
        command = [sys.executable, "-c", block]
        outputs = spawn.run(command, 2, env=QUIET, timeout=120, preloaded="tensorflow")
        # TensorFlow has something to say of its own first.
        assert "".join(line for output in outputs for line in output.splitlines(True) if "ranks" in line) == expected


@pytest.mark.row("e15", "e16", "e20", "k22")
def test_notebook(monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    notebook = nbformat.read(EXAMPLES / "keras_notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    printed = "".join(output.get("text", "") for output in notebook.cells[4].outputs)
    assert "Epoch 8/8" in printed
    (result,) = notebook.cells[6].outputs
    assert re.search(r"'accuracy': 0\.[89]", result["data"]["text/plain"])
