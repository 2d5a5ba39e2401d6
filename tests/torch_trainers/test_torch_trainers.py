# SPDX-License-Identifier: Apache-2.0
"""Libraries that train models of PyTorch, over the engine: PyTorch Lightning and the Trainer of Hugging Face."""

import pathlib
import re
import subprocess
import sys

import pytest
import spawn

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch"


@pytest.mark.row("p20")
def test_lightning():
    first, second = spawn.run([sys.executable, str(EXAMPLES / "lightning_digits.py"), "--devices", "2"], 2, timeout=200)
    assert float(re.search(r"2 ranks, test accuracy ([\d.]+)", first)[1]) > 0.9
    assert "test accuracy" not in second


def test_lightning_is_told_another_number_of_ranks():
    results = spawn.spawn([sys.executable, str(EXAMPLES / "lightning_digits.py"), "--devices", "3"], 2, timeout=200)
    for result in results:
        assert "devices=3 and num_nodes=1, and the job has 2 ranks: give Trainer(devices=2" in result.output
        assert result.returncode == 1


@pytest.mark.row("p21")
def test_trainer_under_torchrun():
    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    command = [torchrun, "--standalone", "--nproc-per-node", "2", EXAMPLES / "transformers_trainer.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL, check=False)
    found = re.search(r"2 ranks over hvd, loss ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) < 0.5
