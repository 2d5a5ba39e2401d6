# SPDX-License-Identifier: Apache-2.0
"""Hosts that a batch system names, for a horovodrun without -H and --hostfile."""

import json
import socket

import pytest
from launching import horovodrun

HERE = socket.gethostname()


def plan(*words, np=4, **env):
    """Return hosts with their numbers of ranks, and what horovodrun said."""
    result = horovodrun("-np", str(np), *words, "--dry-run", "--json", "true", env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    ranks = [rank["host"] for rank in json.loads(result.stdout)["ranks"]]
    return {host: ranks.count(host) for host in ranks}, result.stderr


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"SLURM_JOB_NODELIST": "node[1-3,7]"}, {"node1": 1, "node2": 1, "node3": 1, "node7": 1}),
        ({"SLURM_JOB_NODELIST": "n[09-10],login", "SLURM_TASKS_PER_NODE": "1(x2),2"}, {"n09": 1, "n10": 1, "login": 2}),
        ({"SLURM_JOB_NODELIST": "r[1-2]n[1-2]-ib"}, {"r1n1-ib": 1, "r1n2-ib": 1, "r2n1-ib": 1, "r2n2-ib": 1}),
        ({"LSB_HOSTS": "a a b b"}, {"a": 2, "b": 2}),
    ],
)
def test_hosts_are_taken_and_a_line_says_so(env, expected):
    hosts, said = plan(**env)
    assert hosts == expected
    (variable, *_) = env
    assert said.startswith(f"horovodrun: note: hosts from {variable}: ")
    assert said.endswith("; -H or --hostfile names others\n")
    assert said.count("\n") == 1


def test_a_file_of_pbs(tmp_path):
    file = tmp_path / "nodes"
    file.write_text("a.example\nb.example\na.example\nb.example\n")
    hosts, said = plan(PBS_NODEFILE=str(file))
    assert hosts == {"a.example": 2, "b.example": 2}
    assert "PBS_NODEFILE: a.example:2,b.example:2" in said


def test_the_line_of_many_hosts_is_short():
    hosts, said = plan(SLURM_JOB_NODELIST="n[1-1000]", SLURM_TASKS_PER_NODE="4(x1000)")
    assert hosts == {"n1": 4}
    assert "n1:4,n2:4,n3:4,n4:4 and 996 more;" in said


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (("-H", "other:4"), {}),
        ((), {"SLURM_STEP_ID": "0"}),  # srun -n 1 horovodrun
        ((), {"HOROVOD_RANK": "0"}),
    ],
)
def test_nothing_is_taken(words, env):
    hosts, said = plan(*words, SLURM_JOB_NODELIST="node[1-2]", **env)
    assert hosts == ({"other": 4} if words else {"localhost": 4})
    assert said == ""


def test_the_shell_of_salloc_is_no_step():
    hosts, _ = plan(SLURM_JOB_NODELIST="node[1-2]", SLURM_STEP_ID="4294967290")
    assert hosts == {"node1": 2, "node2": 2}


def test_one_host_that_is_this_machine_is_no_limit():
    assert plan(SLURM_JOB_NODELIST=HERE, SLURM_TASKS_PER_NODE="1") == ({"localhost": 4}, "")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"SLURM_JOB_NODELIST": "node[1-"}, "a '[' without its ']'"),
        ({"SLURM_JOB_NODELIST": "node[3-1]"}, "'3-1' is no range of numbers"),
        ({"SLURM_JOB_NODELIST": "-oProxyCommand=x,b"}, "expected HOST or HOST:SLOTS"),
        ({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x3)"}, "speaks of 3 hosts"),
        ({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "two"}, "expected numbers such as 2(x3),1"),
        ({"SLURM_JOB_NODELIST": "n[1-99999][1-99999]"}, "is no range of numbers"),
        ({"SLURM_JOB_NODELIST": "n[1-9999][1-9999]"}, "more than 65536 hosts"),
        ({"PBS_NODEFILE": "/nowhere"}, "PBS_NODEFILE /nowhere"),
    ],
)
def test_what_is_wrong_is_named(env, said):
    result = horovodrun("-np", "2", "--dry-run", "true", env=env)
    assert result.returncode == 2
    assert said in result.stderr
    (variable, *_) = env
    assert "SLURM_TASKS_PER_NODE" in result.stderr or variable in result.stderr


def test_too_few_slots():
    result = horovodrun("-np", "4", "true", env={"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"})
    assert result.returncode == 2
    assert "hosts from SLURM_JOB_NODELIST: n1:1,n2:1" in result.stderr
    assert "the hosts have 2 slots" in result.stderr
