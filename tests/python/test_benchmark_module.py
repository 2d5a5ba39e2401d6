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


@pytest.mark.parametrize("dtype", benchmark.DTYPES)
def test_every_element_type_is_checked(engine, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    for op in benchmark.OPS:
        if (op, dtype) == ("reducescatter", "bool"):
            continue
        assert benchmark.measure(op, 64, dtype, calls=1).bytes == 64


@pytest.mark.parametrize("words", [("--offset", "16"), ("--new-arrays", "--ops", "allreduce,broadcast")])
def test_arrays_may_lie_anywhere_and_be_new(engine, capsys, words):
    assert benchmark.main(["--sizes", "4K", "--calls", "2", "--json", "-", *words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["offset"], result["new_arrays"]) == ((16, False) if words[0] == "--offset" else (None, True))


def test_sums_are_exact_on_many_ranks(monkeypatch, engine):
    pytest.importorskip("ml_dtypes")
    monkeypatch.setattr(benchmark.hvd, "size", lambda: 300)
    call = benchmark._Call("allreduce", 8, "bfloat16", False)
    assert float(call._values.astype("float32").sum()) == float(call._values.sum(dtype=call._values.dtype)) == 96


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--dtype", "bool", "--ops", "allreduce,reducescatter"], "--dtype: reducescatter of bool is not possible"),
        (["--dtype", "complex64"], "'complex64' is no element type of hvd; there are uint8, int8"),
        (["--ops", "allreduce,allsum"], "'allsum' is no operation"),
        (["--sizes", "4,x"], "'x' is no size"),
        (["--sizes", "4", "--dtype", "float64"], "float64 has 8 bytes"),
        (["--offset", "4096"], "'4096' is no offset"),
        (["--calls", "0"], "'0' is no number of at least 1"),
        (["--compression", "fp8"], "invalid choice: 'fp8'"),
        (["--compression", "fp16", "--ops", "allreduce,alltoall"], "is for allreduce alone, not for alltoall"),
        (["--compression", "bf16", "--dtype", "float16"], "is for float32 and float64; float16 travels as it is"),
    ],
)
def test_a_wrong_argument_is_named(words, text, capsys):
    with pytest.raises(SystemExit) as caught:
        benchmark.main(words)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_bfloat16_needs_a_package(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ValueError, match="install the package ml_dtypes"):
        benchmark.element_type("bfloat16")
    with pytest.raises(SystemExit):
        benchmark.main(["--dtype", "bfloat16"])
    assert "argument --dtype: NumPy has no bfloat16" in capsys.readouterr().err


@pytest.mark.parametrize("compression", benchmark.COMPRESSIONS)
def test_compression_on_two_ranks(compression, tmp_path):
    out = tmp_path / "out.json"
    words = ("--sizes", "8,1M", "--calls", "2", "--compression", compression, "--json", out)
    done = launching.horovodrun("-np", "2", *MODULE, *words)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result["compression"] == compression
    assert [row["bytes"] for row in result["rows"]] == [8, 1 << 20]
    assert (f"as {compression} on the way" in done.stdout) == (compression != "none")


def test_compression_is_that_of_the_library(engine, monkeypatch):
    used = []
    allreduce = benchmark.hvd.allreduce

    def noted(*args, **more):
        used.append(more.get("compression"))
        return allreduce(*args, **more)

    monkeypatch.setattr(benchmark.hvd, "allreduce", noted)
    benchmark.measure("allreduce", 64, calls=1, compression="bf16")
    assert benchmark.hvd.Compression.bf16 in used
    with pytest.raises(ValueError, match="is for allreduce alone, not for broadcast"):
        benchmark.measure("broadcast", 64, calls=1, compression="bf16")


def test_json_alone(engine, capsys):
    assert benchmark.main(["--sizes", "4", "--calls", "1", "--arena", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["calls"] == 1


@pytest.mark.parametrize("words", [(), ("--json", "-"), ("--json", "/dev/full")])
def test_what_cannot_be_written_is_an_error(words):
    command = " ".join([*MODULE, "--sizes", "4", "--calls", "1", *words])
    done = launching.run(["sh", "-c", f"{command} > /dev/full"], launching.clean_environment())
    assert done.returncode == 1
    assert "cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
