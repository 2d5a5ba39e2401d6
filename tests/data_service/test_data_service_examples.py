# SPDX-License-Identifier: Apache-2.0
"""The examples and the guide run as they are."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import compute  # noqa: E402
import pytest  # noqa: E402
import spawn  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "tensorflow2"


@pytest.mark.row("d6", "d18", "d28")
@pytest.mark.parametrize(
    ("side", "options"), [("compute", ()), ("compute", ("--reuse-dataset", "--round-robin")), ("training", ())]
)
def test_example(tmp_path, side, options):
    command = [
        sys.executable,
        str(EXAMPLES / "tensorflow2_mnist_data_service.py"),
        str(tmp_path / "compute.json"),
        *options,
    ]
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    with compute.job(2, side=side, folder=tmp_path):
        outputs = spawn.run(command, 2, env=env, timeout=compute.PATIENCE_S, preloaded="tensorflow")
    for rank, output in enumerate(outputs):
        assert float(re.search(rf"rank {rank} of 2: accuracy ([\d.]+)", output)[1]) > 0.5


@pytest.mark.row("d21")
def test_the_train_functions_differ_in_the_dispatcher_only():
    files = sorted(EXAMPLES.glob("tensorflow2_mnist_data_service_train_fn_*"))
    found = subprocess.run(["diff", "-w", *files], capture_output=True, text=True, check=False).stdout
    changed = [line[1:].strip() for line in found.splitlines() if line[0] in "<>"]
    assert changed[0].startswith("from horovod.tensorflow.data.compute_service import")
    assert len(changed) == 8
    assert all(re.match(r"from|together|if round_robin|with tf_data_service|\.(send|apply)", line) for line in changed)
