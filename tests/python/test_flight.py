# SPDX-License-Identifier: Apache-2.0
"""python -m horovod.flight names the right rank and the right cause, for every way in which a job hangs."""

import pytest
from flight_folder import Folder, blamed, op, peer


@pytest.fixture
def job(tmp_path):
    return Folder(tmp_path, 4)


@pytest.mark.parametrize("culprit", range(4))
class TestOneRankIsAbsent:
    def others(self, job, culprit, *ops, **header):
        for rank in range(4):
            if rank != culprit:
                job.dump(rank, *ops, peers=[peer(r) for r in range(4)], **header)

    def test_no_dump(self, job, culprit):
        self.others(job, culprit, op("a", "done", 61), op("b"))
        verdict = job.verdict()
        assert blamed(verdict) == ("no_dump", [culprit])
        assert verdict.waiting == [rank for rank in range(4) if rank != culprit]
        assert verdict.operation == 'ALLREDUCE "b"'
        assert verdict.waited_s == pytest.approx(60)
        assert f"pid {100 + culprit}" in verdict.details[0]

    @pytest.mark.parametrize("state", ["dead", "stopped"])
    def test_dead_or_stopped(self, job, culprit, state):
        self.others(job, culprit, op("b"))
        asked = []

        def probe(host, pid):
            asked.append((host, pid))
            return state

        assert blamed(job.verdict(probe=probe)) == (state, [culprit])
        assert asked == [(f"node{culprit}", 100 + culprit)]

    def test_an_old_dump_is_no_dump(self, job, culprit):
        self.others(job, culprit, op("a", "done", 61), op("b"))
        job.dump(culprit, op("a", "done", 1), before=300)
        assert blamed(job.verdict()) == ("no_dump", [culprit])

    def test_dump_of_an_earlier_generation_is_no_dump(self, job, culprit):
        self.others(job, culprit, op("b"), generation=1)
        job.dump(culprit, op("b", "done"))
        assert blamed(job.verdict()) == ("no_dump", [culprit])

    def test_crashed(self, job, culprit):
        self.others(job, culprit, op("a", "done", 61), op("b"))
        job.dump(culprit, op("a", "done", 1), reason="crash: SIGSEGV", before=60)
        verdict = job.verdict()
        assert blamed(verdict) == ("crashed", [culprit])
        assert "SIGSEGV" in verdict.what

    def test_never_submitted(self, job, culprit):
        self.others(job, culprit, op("a", "done", 61), op("b", "done", 61), op("a", "done", 61), op("b"))
        job.dump(culprit, op("a", "done", 61), op("a", "done", 61))
        verdict = job.verdict()
        assert blamed(verdict) == ("never_submitted", [culprit])
        assert 'last operation ALLREDUCE "a", done 61.0 s before its dump' in verdict.details[0]

    def test_never_submitted_anything(self, job, culprit):
        self.others(job, culprit, op("a"))
        job.dump(culprit)
        verdict = job.verdict()
        assert blamed(verdict) == ("never_submitted", [culprit])
        assert "nothing at all" in verdict.details[0]

    def test_busy_in_its_own_code(self, job, culprit):
        self.others(job, culprit, op("a", "done", 61), op("a"))
        job.dump(culprit, op("a", "done", 61))
        assert blamed(job.verdict()) == ("busy", [culprit])

    def test_busy_with_another_operation(self, job, culprit):
        self.others(job, culprit, op("a"))
        job.dump(culprit, op("big", "running", 61, set=1))
        verdict = job.verdict()
        assert blamed(verdict) == ("busy", [culprit])
        assert '"big" (process set 1)' in verdict.what

    def test_busy_with_something_in_flight_that_its_program_does_not_wait_for(self, job, culprit):
        self.others(job, culprit, op("a", "done", 61), op("a"), reason="stall")
        job.dump(culprit, op("a", "done", 61), op("ahead"), reason="stall: in its own code")
        assert blamed(job.verdict()) == ("busy", [culprit])

    def test_ended_early(self, job, culprit):
        self.others(job, culprit, op("a", "done", 61), op("a"))
        job.dump(culprit, op("a", "done", 1), reason="shutdown")
        verdict = job.verdict()
        assert blamed(verdict) == ("ended", [culprit])
        assert "left in good order" in verdict.what
        assert "join" in verdict.advice

    def test_left_and_the_others_failed(self, job, culprit):
        self.others(job, culprit, op("a", "done", 61), op("a", "failed", 1, code=2, at_fault=culprit))
        job.dump(culprit, op("a", "done", 1), reason="shutdown")
        verdict = job.verdict()
        assert blamed(verdict) == ("ended", [culprit])
        assert "left in good order" in verdict.what

    def test_truncated(self, job, culprit):
        """Nothing is concluded from what is not in a file that ends too early."""
        self.others(job, culprit, op("a", "done", 61), op("a"))
        job.dump(culprit, op("a", "done", 61), end=False)
        verdict = job.verdict()
        assert blamed(verdict) == ("truncated", [culprit])
        job.dump(culprit, op("a", "done", 61), kept=3)
        verdict = job.verdict()
        assert blamed(verdict) == ("truncated", [culprit])
        assert "1 of 3 operations" in verdict.details[0]

    def test_removes_the_set(self, job, culprit):
        sets = [{"set": 1, "ranks": [0, 1, 2, 3]}]
        remove = op("process_set.change", "submitted", op="REMOVE_PROCESS_SET")
        self.others(job, culprit, op("a", set=1), remove, sets=sets)
        job.dump(culprit, {**remove, "state": "sent"}, sets=sets)
        verdict = job.verdict()
        assert blamed(verdict) == ("never_submitted", [culprit])
        assert "is in remove_process_set" in verdict.what

    def test_submitted_but_its_engine_does_not_turn(self, job, culprit):
        self.others(job, culprit, op("a"))
        job.dump(culprit, op("a", "submitted", 50))
        assert blamed(job.verdict()) == ("busy_engine", [culprit])

    def test_its_engine_is_busy_with_another_operation(self, job, culprit):
        self.others(job, culprit, op("a"))
        job.dump(culprit, op("big", "running", 70, set=1), op("a", "submitted", 50))
        verdict = job.verdict()
        assert blamed(verdict) == ("busy_engine", [culprit])
        assert '"big"' in verdict.what


@pytest.mark.parametrize("culprit", range(4))
class TestOneRankDiffers:
    DIFFERENCES = (
        ("other_operation", {"op": "ALLGATHER"}),
        ("other_type", {"dtype": "float64"}),
        ("other_shape", {"shape": [11]}),
        ("other_shape", {"shape": [10, 1]}),
        ("other_reduction", {"reduce": "max"}),
    )

    @pytest.mark.parametrize(("cause", "change"), DIFFERENCES)
    @pytest.mark.parametrize("failed", [False, True])
    def test_in_its_description(self, job, culprit, cause, change, failed):
        how = {"state": "failed", "code": 9} if failed else {"state": "sent"}
        for rank in range(4):
            fields = change if rank == culprit else {}
            job.dump(rank, op("first", "done", 61), {**op("a", **how), **fields})
        verdict = job.verdict()
        assert blamed(verdict) == (cause, [culprit])
        assert verdict.operation.endswith('"a"')

    def test_in_the_root(self, job, culprit):
        for rank in range(4):
            job.dump(rank, op("a", op="BROADCAST", root=int(rank == culprit)))
        assert blamed(job.verdict()) == ("other_root", [culprit])

    def test_in_the_name(self, job, culprit):
        for rank in range(4):
            job.dump(rank, op("first", "done", 61), op("gradient_1" if rank == culprit else "gradient"))
        verdict = job.verdict()
        assert blamed(verdict) == ("other_name", [culprit])
        assert '"gradient_1" where the others submitted "gradient"' in verdict.what

    def test_in_what_it_does(self, job, culprit):
        for rank in range(4):
            job.dump(rank, op("metrics", op="BARRIER") if rank == culprit else op("gradient"))
        assert blamed(job.verdict()) == ("other_operation", [culprit])

    def test_in_the_order(self, job, culprit):
        for rank in range(4):
            before = [op("a", "done", 70), op("b", "done", 70)]
            job.dump(rank, *before, op("b" if rank == culprit else "a"))
        assert blamed(job.verdict()) == ("other_order", [culprit])


def test_allgather_may_differ_in_the_first_dimension(job):
    for rank in range(4):
        job.dump(rank, op("a", "running", op="ALLGATHER", shape=[rank, 3]))
    assert job.verdict().cause == "no_progress"


def test_of_two_ranks_neither_is_more_right(tmp_path):
    job = Folder(tmp_path, 2)
    job.dump(0, op("a"))
    job.dump(1, op("a", dtype="int32"))
    verdict = job.verdict()
    assert blamed(verdict) == ("other_type", [0, 1])
    assert "cannot tell" in verdict.what


@pytest.mark.parametrize("culprit", range(2))
def test_of_two_ranks_the_one_that_does_as_before_is_right(tmp_path, culprit):
    job = Folder(tmp_path, 2)
    for rank in range(2):
        job.dump(rank, op("a", "done", 61), op("a", dtype="int32" if rank == culprit else "float32"))
    assert blamed(job.verdict()) == ("other_type", [culprit])
    for rank in range(2):
        job.dump(rank, op("a", "done", 61), op("b" if rank == culprit else "a"))
    assert blamed(job.verdict()) == ("other_name", [culprit])


def test_of_two_new_names_neither_is_more_right(tmp_path):
    job = Folder(tmp_path, 2)
    job.dump(0, op("a"))
    job.dump(1, op("b"))
    assert blamed(job.verdict()) == ("other_name", [0, 1])


def test_operations_without_a_name_are_late_rather_than_left_out(job):
    for rank in range(4):
        before = [op("allreduce.noname.1", "done", 61), op("another", "done", 61)]
        job.dump(rank, *before, *([op("allreduce.noname.2")] if rank != 3 else []))
    assert blamed(job.verdict()) == ("busy", [3])


def test_who_waits_for_the_culprit_elsewhere_is_not_blamed(job):
    """Rank 3 has not submitted "a" because it waits for rank 2 in a process set of both."""
    sets = [{"set": 1, "ranks": [2, 3]}]
    job.dump(0, op("a", ago=50), sets=sets)
    job.dump(1, op("a", ago=50), sets=sets)
    job.dump(3, op("pair", ago=55, set=1), sets=sets)
    assert blamed(job.verdict()) == ("no_dump", [2])
    job.dump(2, op("pair", "done", 61, set=1), sets=sets)
    verdict = job.verdict()
    assert blamed(verdict) == ("busy", [2])
    assert verdict.operation == 'ALLREDUCE "pair" (process set 1)'


def test_members_of_a_process_set_alone_are_missed(job):
    sets = [{"set": 1, "ranks": [0, 1]}]
    job.dump(0, op("a", set=1), sets=sets)
    assert blamed(job.verdict()) == ("no_dump", [1])


def test_a_dead_rank_explains_the_late_ones(job):
    job.dump(0, op("a", "done", 61), op("a"))
    job.dump(1, op("a", "done", 61), op("a"))
    job.dump(2, op("a", "done", 61))
    assert blamed(job.verdict()) == ("no_dump", [3])


def test_several_ranks_at_fault_in_one_way(job):
    job.dump(0, op("a"))
    for rank in (1, 2, 3):
        job.dump(rank, op("other", "done", 61))
    verdict = job.verdict()
    assert blamed(verdict) == ("never_submitted", [1, 2, 3])
    assert verdict.waiting == [0]


def test_the_one_that_does_not_run_what_all_agreed_on(job):
    for rank in range(4):
        job.dump(rank, op("a", "agreed" if rank == 2 else "running"))
    assert blamed(job.verdict()) == ("no_progress", [2])


def test_a_rank_that_finished_is_not_missing(job):
    for rank in range(3):
        job.dump(rank, op("a", "running", position=7, missing=[1], missing_count=1))
    job.dump(3, op("a", "done", position=7))
    assert blamed(job.verdict()) == ("no_progress", [1])


def test_requests_that_nobody_answers(job):
    for rank in range(4):
        job.dump(rank, op("a"))
    assert blamed(job.verdict()) == ("no_agreement", [0])


def test_a_rank_that_the_others_lost(job):
    for rank in (0, 1, 3):
        job.dump(rank, op("a", "failed", 1, code=2, at_fault=2))
    assert blamed(job.verdict()) == ("no_dump", [2])


@pytest.mark.parametrize(
    ("words", "cause"), [("died", "dead"), ("crashed", "crashed"), ("was silent", "silent"), ("left", "ended")]
)
def test_survivors_know_the_first_cause(job, words, cause):
    """Also when the operation had only just begun."""
    for rank in (0, 1, 3):
        job.dump(rank, op("a", "sent", 0.01), reason=f"revoked: rank 2 {words}")
    verdict = job.verdict()
    assert blamed(verdict) == (cause, [2])
    assert verdict.waiting == [0, 1, 3]


def test_who_leaves_because_of_a_mistake_is_not_the_cause(job):
    """Rank 0 was the first to leave, with something else in flight, because rank 2 gave another type."""
    for rank in range(4):
        wrong = op("a", "failed", 1, code=9, dtype="float64" if rank == 2 else "float32")
        job.dump(rank, op("other", "sent", 0.1), wrong, reason="revoked: rank 0 left")
    assert blamed(job.verdict()) == ("other_type", [2])


def test_a_short_limit_makes_short_stalls(job):
    for rank in range(4):
        job.dump(rank, op("b" if rank == 1 else "a", ago=0.25 if rank == 1 else 0.3), reason="stall")
    assert blamed(job.verdict()) == ("other_name", [1])


def test_a_stall_that_ended_the_job_is_still_a_stall(job):
    for rank in (0, 1, 3):
        job.dump(rank, op("a", "done", 61), op("a"), reason="revoked: rank 2 stalled")
    job.dump(2, op("a", "done", 61), reason="revoked: rank 2 stalled")
    assert blamed(job.verdict()) == ("busy", [2])


def test_work_in_progress_is_no_stall(job):
    for rank in range(4):
        job.dump(rank, op("a", "done", 0.1), *([op("b", ago=0.01)] if rank else []))
    assert blamed(job.verdict()) == ("nothing", [])


def test_a_fresh_operation_beside_a_stalled_one_blames_nobody(job):
    for rank in range(4):
        job.dump(rank, op("fresh", ago=0.01), *([op("a")] if rank != 1 else []))
    job.dump(2, op("a"))
    assert job.verdict().ranks == [1]
