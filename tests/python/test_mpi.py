# SPDX-License-Identifier: Apache-2.0
"""The same program by mpirun of both MPIs, by torch.distributed's variables and alone; what cannot work says so."""

from __future__ import annotations

import os
import pathlib
import sys

import launching
import pytest
import spawn
import starters

PROGRAM = str(pathlib.Path(__file__).with_name("train_anyhow.py"))
TORCH = {
    "RANK": "{rank}",
    "WORLD_SIZE": "{ranks}",
    "LOCAL_RANK": "{rank}",
    "LOCAL_WORLD_SIZE": "{ranks}",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29511",
}


def ranks_said(output: str) -> list[str]:
    """Return the program's lines in the order of ranks."""
    return sorted(line[line.index("rank ") :] for line in output.splitlines() if "rank " in line and " mpi " in line)


@starters.both_mpis
def test_mpirun_needs_nothing_else(mpi):
    """Two ranks, which MPI introduced to each other."""
    result = starters.mpirun(mpi, 2, PROGRAM)
    assert result.returncode == 0, result.stdout + result.stderr
    assert ranks_said(result.stdout) == ["rank 0 of 2 local 0 of 2 mpi True", "rank 1 of 2 local 1 of 2 mpi True"]


@starters.both_mpis
def test_the_log_says_what_was_chosen_and_why(mpi):
    """At level info, on every rank."""
    result = starters.mpirun(mpi, 2, PROGRAM, HOROVOD_LOG_LEVEL="info")
    assert result.returncode == 0, result.stdout + result.stderr
    name, variable = {
        starters.OPEN_MPI: ("Open MPI v", "OMPI_COMM_WORLD_RANK"),
        starters.MPICH: ("MPICH Version", "PMI_RANK"),
    }[mpi]
    chosen = [line for line in result.stdout.splitlines() if "introduced by" in line]
    assert len(chosen) == 4, result.stdout  # two ranks, two starts
    assert all(name in line and variable in line for line in chosen), chosen


@pytest.mark.row("i10")
@starters.both_mpis
def test_mpirun_without_mpi(mpi):
    """HOROVOD_CONTROLLER=gloo leaves MPI alone: the launcher's PMIx or PMI introduces the ranks."""
    result = starters.mpirun(mpi, 2, PROGRAM, HOROVOD_CONTROLLER="gloo")
    assert result.returncode == 0, result.stdout + result.stderr
    assert ranks_said(result.stdout)[1] == "rank 1 of 2 local 1 of 2 mpi False"


@starters.both_mpis
def test_a_rank_that_fails_ends_the_job(mpi):
    """Nobody waits in MPI_Finalize for those who do not come."""
    program = "import horovod.numpy as hvd, sys; hvd.init(); sys.exit(3 if hvd.rank() == 1 else hvd.barrier())"
    result = starters.mpirun(mpi, 2, "-c", program)
    assert result.returncode != 0


# Rank 1 never comes: not to MPI_Init, or, with an argument, only to a job of its own.
ABSENT = """
import os, sys, time, horovod.numpy as hvd
outer = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
if outer == 1:
    if len(sys.argv) > 1: hvd.init(comm=[1])
    time.sleep(1000)
try:
    hvd.init(comm=[0, 1] if len(sys.argv) > 1 else [0])
except hvd.HorovodTimeoutError as error:
    sys.exit(f"in vain: {error}")
"""


@starters.both_mpis
@pytest.mark.parametrize("where", ["MPI_Init", "MPI_Comm_create_group"])
def test_no_wait_for_a_rank_that_does_not_come_is_without_end(mpi, where):
    """Inside MPI's own calls, too; and the error names it."""
    more = ["group"] if where == "MPI_Comm_create_group" else []
    result = starters.mpirun(mpi, 2, "-c", ABSENT, *more, HOROVOD_START_TIMEOUT="6")
    assert result.returncode != 0
    assert f"in vain: rank 1 of 2 did not come to hvd.init() within 6 s: {where}" in result.stderr, result.stderr


@pytest.mark.parametrize("more", [{}, {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}])
def test_torch_variables_on_one_machine(more):
    """At a local socket: MASTER_PORT is torch.distributed's own. With torchrun's own variables, and without."""
    env = {"HOROVOD_LOG_LEVEL": "info", **more}
    for result in starters.by_variables(2, PROGRAM, each=TORCH, env=env):
        assert result.returncode == 0, result.stdout + result.stderr
        who = "torchrun" if more else "the variables of torch.distributed"
        assert f"of 2, by {who} (RANK), at a local socket" in result.stdout


def test_jsrun():
    """Its variables, with the PMIx that it brings; here mpirun's."""
    words = [
        *starters.mpirun_words(starters.OPEN_MPI, 2),
        *("sh", "-c", 'JSM_NAMESPACE_RANK=$PMIX_RANK JSM_NAMESPACE_SIZE=2 exec env -u OMPI_COMM_WORLD_RANK "$@"', "sh"),
        *(sys.executable, PROGRAM),
    ]
    result = starters.run(words, starters.environment(HOROVOD_LOG_LEVEL="info"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("by jsrun (JSM_NAMESPACE_RANK), introduced by PMIx") == 4, result.stdout


def test_torch_variables_without_local_world_size():
    """A loopback MASTER_ADDR is of one machine, too."""
    each = {name: value for name, value in TORCH.items() if not name.startswith("LOCAL")}
    for result in starters.by_variables(2, PROGRAM, each=each):
        assert result.returncode == 0, result.stdout + result.stderr


def test_torch_variables_of_several_machines_need_a_token(tmp_path):
    """Without one the fix is named; with one it works over TCP."""
    each = dict(
        TORCH, LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR=own_address(), MASTER_PORT=str(spawn.free_port())
    )
    refused = starters.by_variables(2, PROGRAM, each=each, env={"HOROVOD_START_TIMEOUT": "5"})
    assert all("HOROVOD_TOKEN_FILE" in result.stderr for result in refused), refused
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("ab" * 32)
    for result in starters.by_variables(2, PROGRAM, each=each, env={"HOROVOD_TOKEN_FILE": str(token)}):
        assert result.returncode == 0, result.stdout + result.stderr


def own_address() -> str:
    """Return an address of this machine that is not loopback, or skip."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
            address = probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no address but loopback")
    return address


def test_alone():
    """No variables: a job of one."""
    result = starters.run([sys.executable, PROGRAM], starters.environment())
    assert ranks_said(result.stdout) == ["rank 0 of 1 local 0 of 1 mpi False"]


def test_horovodrun_inside_mpirun():
    """The inner launcher's job is the one: two jobs of two."""
    words = [launching.HOROVODRUN, "-np", "2", sys.executable, PROGRAM]
    result = starters.run(
        [*starters.mpirun_words(starters.OPEN_MPI, 2), *words], starters.environment(HOROVOD_LOG_LEVEL="info")
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(ranks_said(result.stdout)) == 4
    assert "introduced by" not in result.stdout


def test_ranks_that_contradict_are_an_error():
    """HOROVOD_RANK of an earlier experiment, say."""
    result = starters.mpirun(starters.OPEN_MPI, 2, PROGRAM, HOROVOD_RANK="0", HOROVOD_SIZE="1")
    assert result.returncode != 0
    assert "contradicts OMPI_COMM_WORLD_" in result.stderr


def test_launcher_and_library_of_different_mpis_are_an_error():
    """Never jobs of size 1 that do not know of each other."""
    library = find_library("libmpich.so.12")
    result = starters.mpirun(starters.OPEN_MPI, 2, PROGRAM, HOROVOD_MPI_LIBRARY=library)
    assert result.returncode != 0
    assert "the launcher is of Open MPI, but MPICH Version" in result.stderr, result.stderr
    loaded = f"import ctypes; ctypes.CDLL({library!r}); import horovod.numpy as hvd; hvd.init()"
    result = starters.mpirun(starters.OPEN_MPI, 2, "-c", loaded)
    assert "is loaded in this process" in result.stderr, result.stderr


def find_library(name: str) -> str:
    """Return the path of a library, or skip."""
    folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
    for folder in folders:
        if os.path.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    pytest.skip(f"{name} is not installed")


@starters.both_mpis
def test_some_ranks_are_a_job(mpi):
    """init(comm=[...]) of two of three; the third one must not call it."""
    program = (
        "import os, horovod.numpy as hvd, numpy as np\n"
        "outer = int(os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK'])\n"
        "try:\n"
        "    hvd.init(comm=[2, 0])\n"
        "except ValueError as error:\n"
        "    assert outer == 1 and 'comm=[2, 0]' in str(error), error\n"
        "else:\n"
        "    assert hvd.size() == 2 and hvd.rank() == [2, 0].index(outer)\n"
        "    assert hvd.allreduce(np.ones(3), op=hvd.Sum).tolist() == [2, 2, 2]\n"
        "    assert hvd.mpi_threads_supported()\n"
    )
    result = starters.mpirun(mpi, 3, "-c", program)
    assert result.returncode == 0, result.stdout + result.stderr


@starters.both_mpis
def test_a_rank_0_without_its_token_tells_the_others(mpi):
    """It says why before it ends; the others would wait for it until the start time-out."""
    program = (
        "import os, horovod.numpy as hvd\n"
        "outer = os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK']\n"
        "if outer == '0': os.environ['HOROVOD_TOKEN_FILE'] = '/nowhere'\n"
        "try:\n"
        "    hvd.init()\n"
        "except Exception as error:\n"
        "    print(f'<{outer}: {error}>')\n"
    )
    result = starters.mpirun(mpi, 2, "-c", program, HOROVOD_START_TIMEOUT="3600")
    assert "<0: token file /nowhere cannot be opened" in result.stdout, result.stdout + result.stderr
    assert "rank 0 cannot be met: token file /nowhere cannot be opened" in result.stdout, result.stdout + result.stderr


def test_mpi_operations_need_a_job_of_mpi():
    """Under another launcher the refusal says why."""
    each = {
        "HOROVOD_RANK": "{rank}",
        "HOROVOD_SIZE": "{ranks}",
        "HOROVOD_RENDEZVOUS_ADDR": f"127.0.0.1:{spawn.free_port()}",
    }
    for result in starters.by_variables(2, PROGRAM, each=each, env={"HOROVOD_CPU_OPERATIONS": "MPI"}):
        assert result.returncode != 0
        assert "the job was not started by that MPI" in result.stderr, result.stderr
        assert "or unset HOROVOD_CPU_OPERATIONS\n" in result.stderr, result.stderr


def test_mpi_operations_need_threads():
    """An MPI without them is refused."""
    more = {"HOROVOD_CPU_OPERATIONS": "mpi", "HOROVOD_MPI_THREADS_DISABLE": "1"}
    result = starters.mpirun(starters.OPEN_MPI, 2, PROGRAM, **more)
    assert result.returncode != 0
    assert "MPI_THREAD_MULTIPLE" in result.stderr, result.stderr


def test_values_that_name_no_way():
    """One line that says what is allowed, or what is missing."""
    result = starters.run([sys.executable, PROGRAM], starters.environment(HOROVOD_CPU_OPERATIONS="ccl"))
    assert 'HOROVOD_CPU_OPERATIONS=ccl is not valid: give one of "mpi gloo"' in result.stderr
    torch = starters.environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    result = starters.run([sys.executable, PROGRAM], torch)
    assert result.returncode != 0
    assert "MASTER_ADDR are set, as for torch.distributed, but MASTER_PORT is not" in result.stderr
