# SPDX-License-Identifier: Apache-2.0
"""States, commits and the loop of horovod.common.elastic, without and with changes of the job."""

import gc
import os
import types
from unittest import mock

import changing_job
import horovod.numpy as hvd
import numpy as np
import pytest
from horovod.common import basics, elastic, process_sets, schema, starting
from horovod.common.exceptions import HorovodInternalError, HorovodSyncError, HostsUpdatedInterrupt
from ranks import in_one_start


def state_of(**objects):
    return elastic.ObjectState(hvd.broadcast_object, hvd.rank, **objects)


@pytest.fixture
def job(engine):
    with changing_job.ChangingJob() as job:
        yield job


def test_a_state_goes_back_to_its_newest_commit_and_copies_objects(engine):
    state = state_of(epoch=0, losses=[])
    state.losses.append(1.0)
    state.epoch = 1
    state.commit()
    state.losses.append(2.0)
    state.restore()
    assert (state.epoch, state.losses) == (1, [1.0])
    state.losses.append(3.0)  # not in the commit
    state.restore()
    assert state.losses == [1.0]


def test_names_that_a_state_needs_itself_are_refused(engine):
    with pytest.raises(ValueError, match="commit=: a state has an attribute of this name"):
        state_of(commit=1)


def test_a_function_without_elastic_launcher_runs_once(engine):
    state = state_of(step=0)
    calls = []

    @elastic.run
    def train(state, by, *, twice=False):
        calls.append(by)
        state.step += by
        state.commit()
        return "end", twice

    assert train(state, 2, twice=True) == ("end", True)
    assert (calls, state.step) == ([2], 2)


def test_errors_end_a_job_that_cannot_change(engine):
    for error in (HorovodInternalError("lost"), ZeroDivisionError()):

        @elastic.run
        def train(state):
            raise error  # noqa: B023

        with pytest.raises(type(error)):
            train(state_of())


def test_arguments_are_checked(engine):
    with pytest.raises(TypeError, match="state=3 is no state"):
        elastic.run(lambda state: None)(3)
    with pytest.raises(TypeError, match="callbacks=3 cannot be called"):
        state_of().register_reset_callbacks([3])


def test_run_needs_init(no_engine):
    with pytest.raises(ValueError, match="has not been initialized"):
        elastic.run(lambda state: None)(state_of())


def test_any_error_of_a_generation_that_ended_takes_the_state_back(job):
    state = state_of(step=0)
    callbacks = []
    state.register_reset_callbacks([lambda: callbacks.append(state.step)])
    entered = []

    @job.run
    def train(state):
        entered.append(state.step)
        if len(entered) == 2:
            assert not gc.isenabled()  # until the first commit
        while state.step < 5:
            state.step += 1
            state.commit()
            assert gc.isenabled()
            if state.step == 3 and len(entered) == 1:
                state.step += 10
                job.ended = True
                raise ZeroDivisionError("some framework's")  # of an operation that failed
        return "end"

    assert train(state) == "end"
    assert entered == [0, 3]
    assert callbacks == [3]
    assert job.formed == 2
    assert job.left
    assert job.reported[-1] == 5
    assert job.confirmed == 5


def test_callbacks_learn_of_the_sizes_at_the_commit_and_now(job, monkeypatch):
    """A second loss before the next commit counts from the commit, too."""
    size = [4]
    monkeypatch.setattr(elastic._basics, "size", lambda: size[0])
    monkeypatch.setattr(elastic, "_extremes", lambda name, *numbers: (numbers, numbers))
    state = state_of(step=0, optimizer=types.SimpleNamespace(param_groups=[{"lr": 0.4}]))
    calls = []
    state.register_reset_callbacks([lambda *, by=2: None, lambda before, now: calls.append((before, now))])
    state.register_reset_callbacks([hvd.elastic.rescale_lr("linear")])

    @job.run
    def train(state):
        while True:
            state.step += 1
            if (state.step, size[0]) in ((2, 4), (2, 3), (5, 2)):
                size[0] -= 1 if size[0] > 2 else -6
                job.end(RuntimeError())
            if state.step == 6:
                return
            state.commit()

    train(state)
    assert calls == [(4, 3), (4, 2), (2, 8)]
    assert state.optimizer.param_groups[0]["lr"] == pytest.approx(0.8)


def test_rules_for_learning_rates_are_checked(engine):
    with pytest.raises(ValueError, match="rule='cubic' is no rule: give 'linear' or 'sqrt'"):
        hvd.elastic.rescale_lr("cubic")
    state = state_of()
    state.register_reset_callbacks([hvd.elastic.rescale_lr("sqrt")])
    with pytest.raises(ValueError, match="the state has no optimizer"):
        state.on_reset()


def test_a_commit_that_others_do_not_hold_is_taken_back(job):
    state = state_of(step=0)
    job.agrees = lambda: job.reported[-1] - 1
    entered = []

    @job.run
    def train(state):
        entered.append(state.step)
        while state.step < 4:
            state.step += 1
            state.commit()
            if len(entered) == 1 and state.step == 3:
                job.ended = True
                raise HorovodInternalError("lost")

    train(state)
    assert entered == [0, 2]
    assert state._number == 4


def test_new_hosts_are_answered_at_a_commit_without_going_back(job):
    state = state_of(step=0)
    entered = []

    @job.run
    def train(state):
        entered.append(state.step)
        while state.step < 4:
            state.step += 1
            job.news = int(state.step == 2 and len(entered) == 1)
            state.commit()

    train(state)
    assert entered == [0, 2]
    job.news = 1
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert not caught.value.skip_sync


def test_an_error_of_the_program_is_its_own(job):
    @job.run
    def train(state):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(state_of())
    assert job.formed == 1
    assert gc.isenabled()


def test_a_member_that_leaves_ends_the_generation_like_one_that_is_lost(job):
    state = state_of(step=0)

    @job.run
    def train(state):
        state.commit()
        if job.formed == 1:  # its generation is not revoked
            raise RuntimeError("Graph execution error: Horovod has been shut down: rank 0 left (host a, pid 1)")

    train(state)
    assert job.formed == 2


def test_a_program_may_begin_again_by_itself(job):
    state = state_of(step=0)
    tries = []

    @job.run
    def train(state):
        tries.append(0)
        state.step += 1
        if len(tries) == 1:
            raise HorovodInternalError("of the program")

    with pytest.warns(UserWarning, match="made no commit"):
        train(state)
    assert state.step == 1


def test_states_of_programs_are_saved_restored_and_sent_by_their_own_methods(job):
    calls = []

    class Own(elastic.State):
        def save(self):
            calls.append("save")

        def restore(self):
            calls.append("restore")

        def sync(self):
            calls.append("sync")

        def reset(self):
            calls.append("reset")

    @job.run
    def train(state):
        state.commit()
        if calls.count("save") == 1:
            job.ended = True
            raise RuntimeError

    train(Own(hvd.broadcast_object, hvd.rank))
    assert calls == ["sync", "save", "restore", "reset", "sync", "save"]


def test_listeners_hear_of_hosts(engine):
    state = state_of()
    elastic.notification_manager.register_listener(state)
    elastic.notification_manager.handle_hosts_updated(1.0, 1)
    elastic.notification_manager.remove_listener(state)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync
    state.commit()


def test_arrays_are_overwritten_in_place(engine):
    weights = np.arange(3.0)
    state = hvd.elastic.NumpyState({"weights": weights}, step=0)
    for _ in range(3):
        weights += 1
        state.step += 1
        state.commit()
    weights += 1
    state.restore()
    assert (weights.tolist(), state.step) == ([3.0, 4.0, 5.0], 3)
    assert state._go_back_to(2)
    assert (weights.tolist(), state.step) == ([2.0, 3.0, 4.0], 2)
    assert not state._go_back_to(1)
    with pytest.raises(TypeError, match=r"arrays\['a'\]=3 is no NumPy array"):
        hvd.elastic.NumpyState({"a": 3})


def test_states_that_differ_are_told_by_name():
    one = [schema.Entry("kernel", (2, 3), "float32"), schema.Entry("bias", (3,), "float32")]
    schema.check(one, list(one))
    with pytest.raises(ValueError, match=r"variable 1 is 'kernel', float32 \[2, 3\], and 'k', float32 \[3, 3\], on"):
        schema.check(one, [schema.Entry("k", (3, 3), "float32"), one[1]])
    with pytest.raises(ValueError, match=r"has 2 variables and that of rank 0 has 1: 'bias', float32 \[3\], is on th"):
        schema.check(one, one[:1])


def test_a_process_joins_a_running_job_in_its_training_function(no_engine, monkeypatch):
    facts = {"ELASTIC_ID": 3, "SIZE": 3, "RANK": 0, "LOCAL_RANK": 2, "LOCAL_SIZE": 3}
    for name, value in facts.items():
        monkeypatch.setenv(f"HOROVOD_{name}", str(value))
    joined = []

    def join(*_):
        joined.append(True)
        for name in facts:
            monkeypatch.delenv(f"HOROVOD_{name}")
        starting.start([], False)

    monkeypatch.setattr(basics, "_join", join)
    hvd.init()
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_size()) == (1, 3, 2, 3, 1)
    with pytest.raises(ValueError, match=r"joins it in hvd.elastic.run, so no operation can be done before"):
        hvd.allreduce(np.ones(2))
    # Wrappers of optimizers are made before.
    assert process_sets.takes_part(process_sets.global_process_set)
    assert not process_sets.takes_part(hvd.ProcessSet([0]))
    state = state_of(step=0)
    assert joined == []
    elastic.run(lambda state: None)(state)
    assert joined == [True]
    assert hvd.size() == 1
    hvd.shutdown()
    assert not hvd.is_initialized()


@in_one_start(2, preloaded="numpy")
def test_all_ranks_enter_with_the_state_of_rank_0():
    weights = np.full(3, float(hvd.rank()))
    state = hvd.elastic.NumpyState({"weights": weights}, step=hvd.rank() + 7)

    @hvd.elastic.run
    def train(state):
        assert (weights.tolist(), state.step) == ([0.0] * 3, 7)
        weights[:] += hvd.allreduce(np.ones(3), op=hvd.Sum)
        state.commit()

    train(state)
    assert weights.tolist() == [2.0] * 3


@in_one_start(2, preloaded="numpy")
def test_one_rank_that_knows_of_new_hosts_is_enough():
    state = state_of(step=0)
    entered = []

    @elastic.run
    def train(state):
        entered.append(state.step)
        while state.step < 3:
            state.step += 1
            if hvd.rank() == 1 and state.step == 1:
                state.on_hosts_updated(1.0, 2)
            state.commit()

    train(state)
    assert entered == [0, 1]


@in_one_start(2, preloaded="numpy")
def test_a_commit_of_other_values_is_told():
    weights = np.zeros(3)
    state = hvd.elastic.NumpyState({"weights": weights}, step=0)
    with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC_VERIFY": "1"}):
        state.commit()
        weights[1] = hvd.rank()
        with pytest.raises(HorovodSyncError, match=r"variable 'weights' .* differs between the ranks: one value is 0"):
            state.commit()


@in_one_start(2, preloaded="numpy")
def test_ranks_that_commit_unequally_are_told():
    state = state_of()
    if hvd.rank() == 1:
        state._number += 1
    with pytest.raises(RuntimeError, match="the ranks have made between 1 and 2 commits"):
        state.commit()


@in_one_start(2, preloaded="numpy")
def test_a_rank_with_another_state_is_told():
    arrays = {"weights": np.zeros(3 + hvd.rank())}
    state = hvd.elastic.NumpyState(arrays)
    if hvd.rank() == 0:
        with pytest.raises(HorovodInternalError):  # the other one leaves
            state.sync()
        return
    with pytest.raises(ValueError, match="'weights', float64 \\[4\\], and 'weights', float64 \\[3\\], on rank 0"):
        state.sync()
