# SPDX-License-Identifier: Apache-2.0
"""Which task becomes which rank, and what is refused before anything starts."""

import time
import types

import horovod.spark
import pytest
from horovod.runner import layout
from horovod.spark import context, request


def test_ranks_of_a_host_follow_each_other_and_cross_ranks_count_hosts_with_that_local_rank():
    places = layout.arrange(list("abacba"))
    assert [(p.rank, p.local_rank, p.local_size, p.cross_rank, p.cross_size) for p in places] == [
        (0, 0, 3, 0, 3),
        (3, 0, 2, 1, 3),
        (1, 1, 3, 0, 2),
        (5, 0, 1, 2, 3),
        (4, 1, 2, 1, 2),
        (2, 2, 3, 0, 1),
    ]


@pytest.mark.parametrize("hosts", ["a", "aaaa", "abcd", "aabbb", "cabcabca"])
def test_every_rank_has_one_place(hosts):
    places = layout.arrange(list(hosts))
    assert sorted(place.rank for place in places) == list(range(len(hosts)))
    for host in set(hosts):
        mine = [place for place, other in zip(places, hosts) if other == host]
        assert [place.local_rank for place in mine] == list(range(len(mine)))
        assert [place.rank for place in mine] == list(range(mine[0].rank, mine[0].rank + len(mine)))


def make(**more):
    arguments = dict.fromkeys(("num_proc", "start_timeout", "env", "stdout", "stderr", "executable"))
    given = {"fn": print, "args": (), "kwargs": None, "prefix_output_with_timestamp": False, "verbose": 1}
    return request.make(**{**arguments, **given, **more})


@pytest.mark.parametrize(
    ("argument", "error", "text"),
    [
        ({"fn": 3}, TypeError, "fn=3 is not callable"),
        ({"num_proc": 0}, ValueError, "num_proc=0: give the number of ranks"),
        ({"num_proc": True}, ValueError, "num_proc=True"),
        ({"start_timeout": -1}, ValueError, "start_timeout=-1: give the seconds"),
        ({"start_timeout": "soon"}, ValueError, "start_timeout='soon'"),
        ({"env": {"A": 1}}, TypeError, r"env\['A'\]=1"),
    ],
)
def test_bad_arguments_are_named(argument, error, text):
    with pytest.raises(error, match=text):
        make(**argument)


def test_variables_of_the_drivers_own_place_stay_with_it(monkeypatch):
    monkeypatch.setenv("HOROVOD_RANK", "3")
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "1")
    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", "7.5")
    wanted = make()
    assert "HOROVOD_RANK" not in wanted.variables
    assert wanted.variables["HOROVOD_FUSION_THRESHOLD"] == "1"
    assert wanted.start_timeout == 7.5
    assert make(env={"A": "b"}).variables == {"A": "b"}


def test_mpi_is_refused_and_an_interface_pointed_out():
    with pytest.raises(NotImplementedError, match="use_mpi=True"):
        horovod.spark.run(print, use_mpi=True)
    with pytest.warns(UserWarning, match="nics='eth0' has no effect"):
        request.refuse(None, None, "eth0")
    with pytest.raises(NotImplementedError, match="run_elastic is not in this release"):
        horovod.spark.run_elastic(print)


def test_too_few_slots_of_a_local_master_are_refused_at_once(monkeypatch):
    monkeypatch.setattr(context, "slots", lambda spark: 2)
    spark = types.SimpleNamespace(master="local[2]")
    with pytest.raises(
        ValueError, match=r"num_proc=3 needs 3 slots, and Spark has 2 \(master local\[2\]\): .*local\[3\]"
    ):
        context._wait_for_slots(spark, 3, 600, time.monotonic() + 600)


@pytest.mark.parametrize("name", ["keras", "torch", "lightning", "common"])
def test_what_comes_later_says_so_where_one_looks_for_it(name):
    with pytest.raises(ImportError, match=rf"horovod\.spark\.{name}.* not in this release.*horovod\.spark\.run"):
        __import__(f"horovod.spark.{name}")
