# SPDX-License-Identifier: Apache-2.0
"""Process sets of elastic jobs: they keep their ids and the members that are left."""

import json
import sys

from horovod.common import membership, surviving_sets
from launching import horovodrun

# Rank 0 of three ends itself twice. The processes are 0, 1 and 2 at first, then 1, 2 and 3, then 2, 3 and 4.
PROGRAM = """
import json, os, signal, time
from horovod.common.basics import HorovodBasics
import horovod.numpy as hvd
import numpy as np

number = int(os.environ["HOROVOD_ELASTIC_ID"])
given = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])]
hvd.init(process_sets=given)
added = hvd.ProcessSet([0, 2])

def report(deaths):
    mine = [one for one in (*given, added) if one.process_set_id is not None and one.included()]
    sums = {one.process_set_id: int(hvd.allreduce(np.int64(number), op=hvd.Sum, process_set=one)) for one in mine}
    ids = [one.process_set_id for one in (*given, added)]
    known = {key: ranks for key, ranks in HorovodBasics()._get_process_set_ids_and_ranks().items() if key}
    print(json.dumps([deaths, number, ids, known, sums]), flush=True)

@hvd.elastic.run
def train(state):
    while hvd.size() < 3:
        time.sleep(0.01)
        state.commit()
    if state.deaths == 0:
        hvd.add_process_set(added)
    report(state.deaths)
    if state.deaths == 2:
        return
    state.deaths += 1
    state.commit()
    if hvd.rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        hvd.allreduce(np.ones(1), name="until the loss")

train(hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, deaths=0))
"""


def view_of(sets, *members):
    return membership.View(1, 0, len(members), 0, 1, 0, 1, members, (), -1, "a test", sets)


def test_sets_are_described_by_member():
    text = surviving_sets.describe({1: [0, 1], 3: [2]}, {1}, view_of("", "4", "2", "7"))
    assert text == "1*:4,2 3:7"
    assert surviving_sets.ranks_in(view_of(text, "7", "2")) == [[1], [], [0]]
    assert surviving_sets.ranks_in(view_of(text, "2", "9")) == [[0], [], []]
    assert surviving_sets.given_in(view_of(text, "2")) == {1}
    assert surviving_sets.ranks_in(view_of(surviving_sets.describe({}, (), view_of("", "4")), "4")) == []


def test_sets_keep_the_members_that_are_left():
    words = ("-np", "3", "--min-np", "1", "-x", "HOROVOD_DYNAMIC_PROCESS_SETS=1", sys.executable, "-c", PROGRAM)
    result = horovodrun(*words)
    assert result.returncode == 0, result.stderr
    found = {}
    for line in result.stdout.splitlines():
        deaths, number, *facts = json.loads(line.partition(">:")[2])
        found[deaths, number] = facts
    first = {"1": [0, 1], "2": [1, 2], "3": [0, 2]}
    second = {"1": [0], "2": [0, 1], "3": [1]}
    third = {"2": [0], "3": [0]}
    assert found == {
        (0, 0): [[1, 2, 3], first, {"1": 1, "3": 2}],
        (0, 1): [[1, 2, 3], first, {"1": 1, "2": 3}],
        (0, 2): [[1, 2, 3], first, {"2": 3, "3": 2}],
        (1, 1): [[1, 2, 3], second, {"1": 1, "2": 3}],
        (1, 2): [[1, 2, 3], second, {"2": 3, "3": 2}],
        (1, 3): [[1, 2, None], second, {}],
        (2, 2): [[None, 2, 3], third, {"2": 2, "3": 2}],
        (2, 3): [[None, 2, None], third, {}],
        (2, 4): [[None, 2, None], third, {}],
    }, result.stderr
