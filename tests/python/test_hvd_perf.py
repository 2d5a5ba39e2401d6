# SPDX-License-Identifier: Apache-2.0
"""hvd_perf: every operation is measured and checked, alone and under a launcher; wrong arguments are named."""

import doctest
import errno
import json
import os
import pathlib
import subprocess

import launching
import pytest
from horovod import perf as perf_command

HVD_PERF = str(pathlib.Path(__file__).resolve().parents[2] / "build/release/tools/hvd_perf")


def perf(*words: str, **env: str):
    return launching.run([HVD_PERF, *words], launching.clean_environment(**env))


@pytest.mark.parametrize("buffers", ["arena", "private", "mixed"])
@pytest.mark.parametrize("op", ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"])
def test_every_operation_is_checked_and_timed(op, buffers):
    done = perf("--op", op, "--buffers", buffers, "--ranks", "3", "--sizes", "4,20K", "--iters", "3", "--json", "-")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["op"], result["buffers"], result["checked"], result["ranks"]) == (op, buffers, True, 3)
    assert result["in_place"] is (op in ("allreduce", "broadcast") and buffers != "mixed")
    assert [row["bytes"] for row in result["rows"]] == [4, 20480]
    assert all(0 < row["min_us"] <= row["median_us"] <= row["p90_us"] for row in result["rows"])


@pytest.mark.parametrize("words", [("--offset", "17"), ("--out-of-place", "--new-pages", "--offset", "malloc")])
def test_private_buffers_may_lie_anywhere_and_be_new(words):
    done = perf("--buffers", "private", "--sizes", "4,20K", "--iters", "3", "--json", "-", *words)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["offset"], result["new_pages"]) == ((17, False) if words[0] == "--offset" else (-1, True))


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_elements_may_travel_as_a_smaller_type(wire):
    done = perf("--wire", wire, "--buffers", "private", "--sizes", "4,200K", "--iters", "3", "--json", "-")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["dtype"], result["wire"], result["checked"]) == ("float32", wire, True)


@pytest.mark.parametrize("words", [("--op", "allgather"), ("--dtype", "int32"), ("--train", "resnet50")])
def test_what_cannot_travel_as_a_smaller_type_is_refused(words):
    refused = perf(*words, "--wire", "float16")
    assert refused.returncode == 2
    assert "--wire " in refused.stderr


@pytest.mark.parametrize("buffers", ["arena", "private"])
def test_steps_of_training_are_checked_and_timed(buffers):
    words = ("--train", "resnet50", "--buffers", buffers, "--ratio", "0.5", "--iters", "2", "--json", "-")
    done = perf(*words)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["train"], result["ranks"], result["ratio"]) == ("resnet50", 2, 0.5)
    assert [row["compute"] for row in result["rows"]] == ["wait", "busy"]
    assert all(min(row["compute_s"], row["communication_s"], row["step_s"]) > 0 for row in result["rows"])


def test_shares_that_cannot_be_are_marked_as_noise(tmp_path):
    """A step with reductions is no shorter than one without; few steps of more ranks than cores may look so."""
    out = tmp_path / "out.json"
    words = ("--train", "resnet50", "--compute", "wait", "--ranks", "4", "--ratio", "1", "--iters", "1")
    done = perf(*words, "--json", str(out))
    assert done.returncode == 0, done.stderr
    row = json.loads(out.read_text())["rows"][0]
    cells = done.stdout.splitlines()[2].split()
    hidden, efficiency = (float(cell.rstrip("%")) for cell in cells[5:7])
    assert hidden == pytest.approx(100 * row["hidden"], abs=0.06), "as measured"
    assert row["noise"] == (max(hidden, efficiency) > 100) == (cells[7:] == ["noise"])
    assert row["noise"] == ("# noise: " in done.stdout)


def test_a_launcher_is_noticed(tmp_path):
    out = tmp_path / "out.json"
    done = launching.horovodrun("-np", "2", HVD_PERF, "--sizes", "4,4K", "--iters", "3", "--json", out)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["ranks"] == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--op", "allsum"], "'allsum' is no value for --op"),
        (["--ops", "allsum"], "'allsum' is no value for --ops"),
        (["--buffers", "heap"], "'heap' is no value for --buffers"),
        (["--offset", "4096"], "'4096' is no value for --offset"),
        (["--new-pages", "--buffers", "private"], "--new-pages is for --out-of-place"),
        (["--sizes", "4,x"], "'4,x' is no value for --sizes"),
        (["--sizes", "4", "--dtype", "float64"], "4 bytes is less than one float64"),
        (["--min-bytes", "4K", "--max-bytes", "1K"], "--min-bytes is more than --max-bytes"),
        (["--op", "alltoall", "--in-place"], "--in-place is not possible for --op alltoall"),
        (["--buffers", "mixed", "--in-place"], "--buffers mixed is out of place"),
        (["--no-fork", "--ranks", "2"], "--ranks has no meaning with --no-fork"),
        (["--train", "lenet"], "'lenet' is no value for --train"),
        (["--train", "resnet50", "--buffers", "mixed"], "--train averages in place"),
        (["--train", "resnet50", "--ratio", "x"], "'x' is no value for --ratio"),
        (["--train", "resnet50", "--ratio", "1.2x"], "'1.2x' is no value for --ratio"),
        (["--factor", "2x"], "'2x' is no value for --factor"),
        (["--factor", "1"], "'1' is no value for --factor"),
        (["--factor", "inf"], "'inf' is no value for --factor"),
        (["--idle-bench", "1 s"], "'1 s' is no value for --idle-bench"),
        (["--idle-bench", "nan"], "'nan' is no value for --idle-bench"),
        (["--window", "4x"], "'4x' is no value for --window"),
        (["--min-bytes", "4Kx"], "'4Kx' is no value for --min-bytes"),
        (["more"], "unexpected argument 'more'"),
        (["--bogus"], "'--bogus'"),
    ],
)
def test_a_wrong_argument_is_named(words, text):
    done = perf(*words)
    assert done.returncode == 2
    assert text in done.stderr


@pytest.mark.parametrize(
    "what",
    [
        ("--sizes", "4"),
        ("--train", "resnet50", "--ratio", "0.1", "--compute", "wait"),
        ("--memory-bench",),
        ("--init-bench", "1", "--repeats", "1"),
    ],
)
def test_what_cannot_be_written_is_an_error(what):
    done = perf(*what, "--iters", "1", "--json", "/dev/full")
    assert done.returncode == 1
    assert "hvd_perf: cannot write --json /dev/full: No space left on device" in done.stderr
    with open("/dev/full", "w") as full:
        words, env = [HVD_PERF, *what, "--iters", "1"], launching.clean_environment()
        done = subprocess.run(words, env=env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "cannot write the table to standard output" in done.stderr


def test_a_file_that_cannot_be_made_is_named(tmp_path):
    done = perf("--sizes", "4", "--iters", "1", "--json", str(tmp_path / "no" / "file"))
    assert done.returncode == 1
    assert f"cannot write --json {tmp_path}/no/file: No such file or directory" in done.stderr


def test_ranks_of_a_launcher_start_no_processes_of_their_own():
    done = perf("--ranks", "2", HOROVOD_RANK="0")
    assert done.returncode == 2
    assert "HOROVOD_RANK is set" in done.stderr
    assert perf("--ranks", "2", "--fork", "--sizes", "4", "--iters", "3", HOROVOD_RANK="0").returncode == 0


def test_the_installed_command_needs_no_path_to_it(tmp_path):
    out = tmp_path / "out.json"
    words = ("-np", "2", "hvd_perf", "--sizes", "4", "--iters", "3", "--json", out)
    done = launching.horovodrun(*words, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["ranks"] == 2


def test_the_installed_program_stands_on_its_library_alone():
    assert doctest.testmod(perf_command).failed == 0
    program = perf_command.find()
    text = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    needed = {line.split("[")[1].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line}
    assert "libhvd.so" in needed
    assert not any(name.startswith(("libstdc++", "libgcc")) for name in needed)
    assert any("$ORIGIN" in line for line in text.splitlines() if "RUNPATH" in line)


@pytest.mark.parametrize(
    ("number", "text"), [(errno.ENOEXEC, "another kind of machine"), (errno.ENOENT, "GNU C library")]
)
def test_a_program_of_another_platform_is_explained(number, text, monkeypatch):
    def refused(program, words):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "execv", refused)
    with pytest.raises(SystemExit, match=text):
        perf_command.main()


@pytest.mark.parametrize(
    "env",
    [
        {"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "5"},  # a launcher of one process
        {"RANK": "0", "WORLD_SIZE": "4"},  # names that anybody may use
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a shell of salloc
    ],
)
def test_what_the_library_takes_for_no_launcher_is_none(env):
    done = perf("--sizes", "4", "--iters", "3", "--json", "-", **env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 2
