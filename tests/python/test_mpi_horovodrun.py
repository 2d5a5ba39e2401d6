# SPDX-License-Identifier: Apache-2.0
"""horovodrun --mpi and horovod.run(use_mpi=True): the mpirun of PATH starts the job."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

import horovod
import launching
import pytest
import starters
from test_mpi import PROGRAM, ranks_said


@pytest.fixture
def path(tmp_path, request):
    """A PATH in which mpirun is the MPI's that the test asks for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    mpirun = folder / "mpirun"
    mpirun.write_text(f'#!/bin/sh\nexec {starters.mpirun_words(request.param, 1)[0]} "$@"\n')
    mpirun.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


both_paths = pytest.mark.parametrize("path", [starters.OPEN_MPI, starters.MPICH], indirect=True)


def horovodrun(path: str, *words: str):
    """Run it with that PATH, and with no launcher around it."""
    return starters.run([launching.HOROVODRUN, *words], starters.environment(PATH=path, HOROVOD_LOG_LEVEL="info"))


@both_paths
def test_a_job_by_mpirun(path):
    """Two ranks, and MPI introduced them."""
    result = horovodrun(path, "--mpi", "-np", "2", sys.executable, PROGRAM)
    assert result.returncode == 0, result.stdout + result.stderr
    assert ranks_said(result.stdout) == ["rank 0 of 2 local 0 of 2 mpi True", "rank 1 of 2 local 1 of 2 mpi True"]


@both_paths
def test_what_it_would_do(path):
    """--dry-run prints the line, with names of variables and no values."""
    words = ["--mpi", "--mpi-args", "-v", "-np", "3", "-H", "a:2,b:2", "--dry-run", "-x", "SECRET=do-not-show", "true"]
    result = horovodrun(path, *words)
    assert result.returncode == 0, result.stderr
    assert "a:2,b:1" in result.stdout
    assert " -v " in result.stdout
    assert "do-not-show" not in result.stdout


@both_paths
def test_the_line_is_one_for_a_shell(path):
    """Words with blanks and quotes come back as they were."""
    words = ["--mpi", "-np", "1", "-p", "2222", "--dry-run", "echo", "it's", "a  b", "$HOME", ""]
    line = horovodrun(path, *words).stdout
    assert "-p 2222" in line
    assert shlex.split(line)[-4:] == ["it's", "a  b", "$HOME", ""]


@both_paths
def test_output_in_files(path, tmp_path):
    """The same layout as without mpirun, in a folder that is made."""
    out = tmp_path / "new" / "out"
    result = horovodrun(path, "--mpi", "-np", "2", "--output-filename", str(out), "sh", "-c", "echo o; echo e >&2")
    assert result.returncode == 0, result.stdout + result.stderr
    for rank in range(2):
        assert "o\n" in (out / f"rank.{rank}" / "stdout").read_text()
        assert "e\n" in (out / f"rank.{rank}" / "stderr").read_text()


@pytest.mark.parametrize("path", [starters.MPICH], indirect=True)
def test_what_mpirun_cannot_do_is_refused(path):
    """Never dropped without a word."""
    words = "--json|--log-dir d|--prefix x|--only-rank 0|--report-file r|--debug-rank 0|--cores-per-rank 1|--heap arena"
    for flag in words.split("|"):
        result = horovodrun(path, "--mpi", "-np", "1", *flag.split(), "true")
        assert (result.returncode, result.stdout) == (2, ""), flag
        assert result.stderr.startswith(f"horovodrun: {flag.split()[0]}")
        assert ": not with --mpi" in result.stderr
    result = horovodrun(path, "--mpi", "-np", "1", "--prefix-output-with-timestamp", "true")
    assert result.returncode == 2
    assert "MPICH's mpirun cannot" in result.stderr


@both_paths
def test_the_exit_code_is_the_failing_ranks(path):
    """The others, which fail because of it, let it go first."""
    program = "import horovod.numpy as hvd, sys; hvd.init(); sys.exit(3 if hvd.rank() == 1 else hvd.barrier())"
    result = horovodrun(path, "--mpi", "-np", "2", sys.executable, "-c", program)
    assert result.returncode == 3, result.stdout + result.stderr


def test_no_mpirun(tmp_path):
    """One line that says so."""
    result = horovodrun(str(tmp_path), "--mpi", "-np", "2", sys.executable, PROGRAM)
    assert result.returncode == 127
    assert "there is no mpirun in PATH" in result.stderr


def work(factor: int) -> int:
    """Be a rank of horovod.run."""
    import horovod.numpy as hvd

    hvd.init()
    if factor == 0 and hvd.rank() == 1:
        raise KeyError("rank 1 has no factor")
    return hvd.rank() * factor + hvd.mpi_enabled()


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_horovod_run(monkeypatch, tmp_path):
    """Results in the order of ranks; a rank's exception is raised here."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert horovod.run(work, args=(10,), num_proc=2, use_mpi=True) == [1, 11]
    with pytest.raises(KeyError, match="rank 1 has no factor"):
        horovod.run(work, args=(0,), num_proc=2, use_mpi=True)
