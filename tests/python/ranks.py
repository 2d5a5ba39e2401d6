# SPDX-License-Identifier: Apache-2.0
"""
Tests that run as several ranks.

`@on_ranks(2, 3)` makes one test per number of ranks: pytest starts that many processes, each calls hvd.init() and then
the function. An assertion that fails on any rank fails the test, with the output of all ranks.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
import types
from typing import Callable

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools")]

import spawn  # noqa: E402


def on_ranks(*counts: int, sets: list[list[int]] | None = None, env: dict[str, str] | None = None) -> Callable:
    """Run the decorated function on each number of ranks; `sets` are process sets given to init."""

    def decorate(function: Callable[[], None]) -> Callable:
        @pytest.mark.parametrize("ranks", counts)
        def test(ranks: int) -> None:
            file = sys.modules[function.__module__].__file__
            command = [sys.executable, __file__, str(file), function.__name__]
            spawn.run(command, ranks, env=env, timeout=120)

        test.__name__ = function.__name__
        test.__doc__ = function.__doc__
        test.body = function
        test.sets = sets
        test.counts = counts
        test.env = env or {}
        return test

    return decorate


def load(file: str) -> types.ModuleType:
    """Return a file of tests as a module whose assertions say what was compared."""
    spec = importlib.util.spec_from_file_location("rank_test", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # pytest rewrites assertions so that they say what was compared; do the same here.
    from _pytest.assertion.rewrite import rewrite_asserts

    source = pathlib.Path(file).read_bytes()
    import ast

    tree = ast.parse(source, filename=file)
    rewrite_asserts(tree, source, file)
    exec(compile(tree, file, "exec"), module.__dict__)
    return module


def run_body(module: types.ModuleType, test: Callable, size: int) -> None:
    """Be one rank of a test."""
    import horovod.numpy as hvd

    process_sets = [hvd.ProcessSet(ranks) for ranks in test.sets or [] if max(ranks) < size]
    module.__dict__["SETS"] = process_sets
    hvd.init(process_sets=process_sets)
    test.body()
    hvd.shutdown()


def rank_main(file: str, name: str) -> None:
    """Be one rank of one test."""
    module = load(file)
    run_body(module, module.__dict__[name], int(os.environ["HOROVOD_SIZE"]))


if __name__ == "__main__":
    rank_main(sys.argv[1], sys.argv[2])
