# SPDX-License-Identifier: Apache-2.0
"""Elastic programs under horovodrun: the examples, and a loss that does not depend on who is lost."""

import json
import os
import pathlib
import re
import signal
import sys

import horovod.numpy as hvd
import numpy as np
import spawn
from launching import horovodrun, started

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Rank 3 ends itself after 50 steps, rank 0 after 100. New processes wait until two are left, and those at step 150 for
# the new ones.
PROGRAM = """
import os, pathlib, signal, sys, time
import horovod.numpy as hvd
import numpy as np
import test_elastic_programs as test

folder = pathlib.Path(sys.argv[1])
while int(os.environ["HOROVOD_ELASTIC_ID"]) >= 4 and not (folder / "2").exists():
    time.sleep(0.01)
hvd.init()

@hvd.elastic.run
def train(state):
    (folder / str(hvd.size())).touch()
    wait(state)
    for loss in test.losses_of(state, 200):
        if (state.step, hvd.size(), hvd.rank()) in ((50, 4, 3), (100, 3, 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        if state.step % 10 == 0:
            state.commit()
        wait(state)

def wait(state):
    while state.step == 150 and hvd.size() < 4:
        time.sleep(0.01)
        state.check_host_updates()

state = test.state()
train(state)
print(state.losses)
"""


def state():
    """Return the state of a linear regression whose steps take 10 rows of 101."""
    sampler = hvd.elastic.ElasticSampler(range(101), seed=2, global_batch=10)
    return hvd.elastic.NumpyState({"weights": np.zeros(5)}, sampler=sampler, losses=[], step=0)


def losses_of(state, steps):
    """Do the steps that are left, and yield the loss after each."""
    rows = np.random.default_rng(1).normal(size=(101, 5))
    weights, sampler = state.arrays["weights"], state.sampler
    while state.step < steps:
        mine = list(sampler)
        for first in range(0, len(mine), sampler.batch_size):
            batch = rows[mine[first : first + sampler.batch_size]]
            gradient = sampler.weight * (batch @ weights - batch.sum(axis=1)) @ batch / len(batch)
            weights -= 0.05 * hvd.allreduce(gradient, name="gradient")
            sampler.record_batch(first, len(batch))
            state.step += 1
            state.losses.append(float(np.square(rows @ (weights - 1)).mean()))
            if sampler.processed_num == len(rows):
                sampler.set_epoch(sampler.epoch + 1)
            yield state.losses[-1]
            if state.step == steps:
                return


def test_the_loss_does_not_depend_on_who_is_lost(tmp_path, engine):
    """4, 3, 2 and again 4 ranks in 200 steps of one global batch: as one rank that nothing happens to."""
    folders = f"PYTHONPATH={pathlib.Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
    result = horovodrun("-np", "4", "--min-np", "1", "-x", folders, sys.executable, "-c", PROGRAM, tmp_path)
    assert result.returncode == 0, result.stderr
    assert {"4", "3", "2"} <= set(os.listdir(tmp_path))
    assert len(re.findall("was killed by signal 9", result.stderr)) == 2, result.stderr
    alone = list(losses_of(state(), 200))
    printed = [json.loads(line.partition(">:")[2]) for line in result.stdout.splitlines()]
    assert len(printed) == 4
    assert {len(losses) for losses in printed} == {200}
    for losses in printed:
        assert len(losses) == 200
        assert np.abs(np.subtract(losses, alone)).max() < 1e-5


def survives(name, ranks, *words):
    """Run an example, end its rank 0, and return the accuracy that the others reach."""
    path = ROOT / "examples" / name
    with started("-np", ranks, "--min-np", "1", sys.executable, path, *words) as job:
        printed, killed = "", False
        for line in job.stdout:
            printed += line
            found = re.search(rf"{ranks} ranks, rank 0 is process (\d+), epoch 0", line)
            if found and not killed:
                os.kill(int(found[1]), signal.SIGKILL)
                killed = True
        errors = job.stderr.read()
        assert job.wait() == 0, errors
    assert re.search(r"was killed by signal 9; .*(begins? again|go(es)? on)", errors), errors
    ends = re.findall(r"test accuracy ([\d.]+), weights (\w+)", printed)
    assert len(ends) >= ranks - 1
    assert len({digest for _, digest in ends}) == 1
    return float(ends[0][0])


def test_example_of_numpy():
    assert survives("numpy/elastic_digits.py", 3) > 0.85


def test_examples_of_tensorflow():
    assert survives("tensorflow/elastic_tape.py", 2, "--epochs", "6") > 0.7
    assert survives("tensorflow/elastic_keras.py", 2, "--epochs", "6") > 0.7


def test_programs_of_the_guide():
    blocks = re.findall(
        r"```python\n(.*?)```\n\n```\n(.*?)```", (ROOT / "docs/guides/elastic.md").read_text(), flags=re.S
    )
    assert len(blocks) == 2
    for block, expected in blocks:
        assert "".join(spawn.run([sys.executable, "-c", block], 2, preloaded="numpy")) == expected
