# SPDX-License-Identifier: Apache-2.0
"""Programs as users of horovod.torch write them, with every option, on 2 ranks and alone."""

import pathlib
import re
import sys

import pytest
import spawn

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def run(program, *options, ranks=2):
    return spawn.run([sys.executable, str(PROGRAMS / program), *options], ranks, timeout=120, preloaded="torch")


@pytest.mark.row("p1")
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--fp16-allreduce", "--gradient-predivide-factor", "2"),
        ("--use-adasum",),
        ("--use-mixed-precision",),
    ],
)
def test_mnist(options):
    first, second = run("mnist.py", *options)
    found = [float(one) for one in re.findall(r"Accuracy: ([\d.]+)%", first)]
    assert len(found) == 2
    assert found[-1] > 30, first
    assert second == ""


@pytest.mark.row("p1")
def test_mnist_alone():
    assert "Accuracy" in run("mnist.py", "--epochs", "1", ranks=1)[0]


@pytest.mark.row("p2")
@pytest.mark.parametrize("options", [(), ("--fp16-allreduce",), ("--use-adasum",)])
def test_synthetic_benchmark(options):
    first, second = run("synthetic_benchmark.py", "--no-cuda", *options)
    assert "Total img/sec on 2 CPU(s)" in first
    assert second == ""


@pytest.mark.row("p3")
def test_imagenet(tmp_path):
    options = ("--checkpoint-format", str(tmp_path / "checkpoint-{epoch}.pt"))
    first, _ = run("imagenet.py", "--epochs", "1", *options)
    assert "Train Epoch #1" in first
    again, _ = run("imagenet.py", "--epochs", "2", *options)
    assert "Train Epoch #1" not in again
    assert "Validate Epoch #2" in again
