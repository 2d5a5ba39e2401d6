# SPDX-License-Identifier: Apache-2.0
"""The examples and the guide for TensorFlow run as they are written, and leave equal weights on all ranks."""

from __future__ import annotations

import pathlib
import re
import sys

import launching
import pytest
import spawn

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_example(name, ranks, *words):
    command = [sys.executable, str(ROOT / "examples/tensorflow" / f"{name}.py"), *words]
    outputs = spawn.run(command, ranks, env=QUIET, timeout=240, preloaded="tensorflow")
    ends = re.findall(r"identical weights: (\w+)", "".join(outputs))
    assert ends
    assert set(ends) == {"True"}, outputs
    return "".join(outputs)


def accuracy(text):
    return float(re.search(r"test accuracy ([\d.]+)", text)[1])


@pytest.mark.row("b8", "b9", "b12", "b17", "k2", "k3", "k22")
def test_tape():
    assert accuracy(run_example("tape", 2, "--steps", "200")) > 0.7


@pytest.mark.row("a2", "a13", "k22")
def test_monitored_session():
    assert accuracy(run_example("v1_monitored_session", 2, "--steps", "200")) > 0.7


def run_old_example(name, *words, timeout=240):
    path = str(ROOT / "examples/tensorflow" / f"{name}.py")
    result = launching.horovodrun("-np", "2", "--compat", "tf1", sys.executable, path, *words, timeout=timeout)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, result.stderr


@pytest.mark.row("a2", "a3", "a5", "a9", "a11", "a13", "k22")
def test_a_program_of_tensorflow_1_as_it_was_written(tmp_path):
    printed, logged = run_old_example("tf1_session", "--steps", "200", "--folder", str(tmp_path))
    assert "2 ranks, test accuracy" in printed
    assert "identical weights: True" in printed
    assert accuracy(printed) > 0.7
    assert "[0]<stderr>:INFO:tensorflow:Saving checkpoints for 0 into" in logged
    assert "[1]<stderr>:INFO:tensorflow:Saving checkpoints" not in logged
    assert {f"[{rank}]<stderr>:INFO:tensorflow:loss" for rank in (0, 1)} <= {
        line.partition(" = ")[0] for line in logged.splitlines()
    }


@pytest.mark.row("a10", "a11", "a13", "a14", "i5", "k2", "k22")
def test_the_cpu_sample(tmp_path):
    printed, logged = run_old_example("cpu_sample", "--steps", "100", "--folder", str(tmp_path))
    assert printed.count("Number of tasks:  2") == 1
    assert printed.count("Total time is: ") == 1
    assert (tmp_path / "model.ckpt-50.index").exists()
    assert all(f"[{rank}]<stderr>:INFO:tensorflow:loss = " in logged for rank in (0, 1))


@pytest.mark.row("f7", "f8", "g1", "g4", "g9")
def test_partial_embedding_does_not_depend_on_the_number_of_ranks():
    alone, together = (accuracy(run_example("partial_embedding", ranks, "--steps", "60")) for ranks in (1, 2))
    assert alone > 0.7
    assert abs(alone - together) < 0.03


@pytest.mark.row("k9")
def test_process_sets():
    text = run_example("process_sets", 3, "--steps", "60")
    assert "learning rate 0.1: 2 ranks" in text
    assert "learning rate 0.001: 1 ranks" in text


@pytest.mark.row("b10", "b11", "k1")
def test_checkpoint_and_resume(tmp_path):
    assert "epochs 0 to 2" in run_example("checkpoint_resume", 2, "--epochs", "2", "--folder", str(tmp_path))
    assert "epochs 2 to 3" in run_example("checkpoint_resume", 1, "--epochs", "1", "--folder", str(tmp_path))


def test_python_in_the_guide_runs():
    pages = "".join((ROOT / "docs" / folder / "tensorflow.md").read_text() for folder in ("quickstart", "guides"))
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", pages, flags=re.S)
    assert len(blocks) >= 2
    # One after the other in the same ranks: starting TensorFlow takes longer than they do.
    program = "print('=', flush=True)\n".join(block for block, _ in blocks)
    outputs = spawn.run([sys.executable, "-c", program], 2, env=QUIET, timeout=240, preloaded="tensorflow")
    printed = zip(*(text.split("=\n") for text in outputs))
    for (_, expected), texts in zip(blocks, printed):
        lines = [line for text in texts for line in text.splitlines() if re.match(r"\[|\d+ ranks", line)]
        assert lines == expected.splitlines()
