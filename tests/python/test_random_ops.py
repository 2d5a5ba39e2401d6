# SPDX-License-Identifier: Apache-2.0
"""A short run of random_ops.py, twice, with the same bits."""

import pathlib
import re
import sys

import pytest
import spawn

RUNNER = pathlib.Path(__file__).with_name("random_ops.py")


def digests(ranks, ops=600, **env):
    command = [sys.executable, str(RUNNER), "--ops", str(ops), "--seed", "7", "--max-bytes", str(1 << 20)]
    outputs = spawn.run(command, ranks, timeout=240, env=env, preloaded="numpy")
    return [re.search(r"digest=(\w+)", output).group(1) for output in outputs]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_random_operations_are_right_and_repeatable(ranks):
    assert digests(ranks) == digests(ranks)


def test_random_operations_of_more_ranks_than_cores():
    assert len(set(digests(8, ops=300))) == 8  # once through all kinds of windows; every rank has results of its own


def test_random_operations_over_tcp():
    assert digests(2, HOROVOD_DISABLE_SHM="1") == digests(2)
