# SPDX-License-Identifier: Apache-2.0
"""python -m horovod.benchmark."""

import doctest
import json
import sys

import launching
import pytest
from horovod import benchmark

MODULE = (sys.executable, "-m", "horovod.benchmark")


def test_examples_run(engine):
    assert doctest.testmod(benchmark).failed == 0


@pytest.mark.parametrize("text", ["", "x", "K", "0", "4T", "-4", "1.5M"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is no size"):
        benchmark.parse_size(text)


def test_every_operation_on_two_ranks(tmp_path):
    out = tmp_path / "out.json"
    words = ("--ops", ",".join(benchmark.OPS), "--sizes", "8,4K", "--dtype", "float64", "--calls", "2", "--json", out)
    done = launching.horovodrun("-np", "2", *MODULE, *words)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert (result["ranks"], result["dtype"]) == (2, "float64")
    measured = [(row["op"], row["bytes"]) for row in result["rows"]]
    assert measured == [(op, size) for op in benchmark.OPS[:-1] for size in (8, 4096)] + [("barrier", 0)]
    assert all(0 < row["min_us"] <= row["median_us"] <= row["p90_us"] for row in result["rows"])
    lines = [line for line in done.stdout.splitlines() if line.startswith("[0]<stdout>:")]
    assert len(lines) == 2 + len(measured)
    assert not any(line.startswith("[1]<stdout>:") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--ops", "allreduce,allsum"], "'allsum' is no operation"),
        (["--sizes", "4,x"], "'x' is no size"),
        (["--sizes", "4", "--dtype", "float64"], "float64 has 8 bytes"),
        (["--calls", "0"], "'0' is no number of at least 1"),
    ],
)
def test_a_wrong_argument_is_named(words, text, capsys):
    with pytest.raises(SystemExit) as caught:
        benchmark.main(words)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_json_alone(engine, capsys):
    assert benchmark.main(["--sizes", "4", "--calls", "1", "--arena", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["calls"] == 1
