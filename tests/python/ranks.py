# SPDX-License-Identifier: Apache-2.0
"""
Tests that run as several ranks.

`@on_ranks(2, 3)` makes one test per number of ranks: pytest starts that many processes, each calls hvd.init() and then
the function. An assertion that fails on any rank fails the test, with the output of all ranks.

`@in_one_start(2, 3)` is for functions that need a framework whose import takes seconds: all functions of the file that
have the same numbers of ranks and the same environment run one after the other in the same processes, each between
hvd.init() and hvd.shutdown(). The file itself must not import the framework, or pytest's own process would have it.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import pathlib
import sys
import traceback
import types
from typing import Callable

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools")]

import spawn  # noqa: E402


def on_ranks(
    *counts: int, sets: list[list[int]] | None = None, env: dict[str, str] | None = None, preloaded: str = "numpy"
) -> Callable:
    """Run the decorated function on each number of ranks; `sets` are process sets given to init."""

    def decorate(function: Callable[[], None]) -> Callable:
        @pytest.mark.parametrize("ranks", counts)
        def test(ranks: int) -> None:
            file = sys.modules[function.__module__].__file__
            command = [sys.executable, __file__, str(file), function.__name__]
            spawn.run(command, ranks, env=env, timeout=120, preloaded=preloaded)

        test.__name__ = function.__name__
        test.__doc__ = function.__doc__
        test.body = function
        test.sets = sets
        test.counts = counts
        test.env = env or {}
        return test

    return decorate


def in_one_start(*counts: int, env: dict[str, str] | None = None, preloaded: str = "tensorflow") -> Callable:
    """Run the decorated function on each number of ranks, after and before others of its file."""

    def decorate(function: Callable[[], None]) -> Callable:
        variables = tuple(sorted((env or {}).items()))

        @pytest.mark.parametrize("ranks", counts)
        def test(ranks: int) -> None:
            outcome = _outcomes(str(sys.modules[function.__module__].__file__), ranks, variables, preloaded)
            if function.__name__ not in outcome:
                pytest.fail(f"the ranks ended before this test had its turn\n{outcome['']}", pytrace=False)
            if outcome[function.__name__]:
                pytest.fail("\n".join(outcome[function.__name__]), pytrace=False)

        test.__name__ = function.__name__
        test.__doc__ = function.__doc__
        test.body = function
        test.counts = counts
        test.variables = variables
        return test

    return decorate


_OUTCOME = "@outcome "


@functools.cache
def _outcomes(file: str, ranks: int, variables: tuple[tuple[str, str], ...], preloaded: str) -> dict:
    """Run all functions of a file that go together. Returns what failed by function, and all output under ""."""
    command = [sys.executable, __file__, file, "--together", json.dumps(variables)]
    # A rank that is missing is found out in a bounded time, also by tests that come later.
    env = {
        "HOROVOD_START_TIMEOUT": "20",
        "HOROVOD_OP_TIMEOUT_SECONDS": "60",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **dict(variables),
    }
    results = spawn.spawn(command, ranks, env=env, timeout=280, preloaded=preloaded)
    outcome: dict = {"": "\n".join(map(spawn.describe, results))}
    reports = [
        [json.loads(line[len(_OUTCOME) :]) for line in result.output.splitlines() if line.startswith(_OUTCOME)]
        for result in results
    ]
    for name in (name for name, _ in reports[0]):
        failures = [(rank, dict(report).get(name, "it did not get there")) for rank, report in enumerate(reports)]
        outcome[name] = [f"rank {rank}: {text}" for rank, text in failures if text]
    return outcome


def together_main(file: str, variables: tuple[tuple[str, str], ...]) -> None:
    """Be one rank of all functions that go together."""
    import horovod.numpy as hvd

    size = int(os.environ["HOROVOD_SIZE"])
    for name, test in list(load(file).__dict__.items()):
        if getattr(test, "variables", None) != variables or size not in test.counts:
            continue
        text = ""
        try:
            hvd.init()
            test.body()
        except BaseException:
            text = traceback.format_exc()
        # Ranks that still wait for this one hear of it now.
        hvd.shutdown()
        print(_OUTCOME + json.dumps([name, text]), flush=True)


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
    if sys.argv[2] == "--together":
        together_main(sys.argv[1], tuple(map(tuple, json.loads(sys.argv[3]))))
    else:
        rank_main(sys.argv[1], sys.argv[2])
