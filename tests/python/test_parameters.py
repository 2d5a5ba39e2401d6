# SPDX-License-Identifier: Apache-2.0
"""broadcast_parameters: many arrays in one call, all of them or none."""

import horovod.numpy as hvd
import numpy as np
import pytest
from horovod.common import library
from ranks import on_ranks


@pytest.mark.usefixtures("engine")
def test_forms_of_params():
    hvd.broadcast_parameters({"w": np.ones(3), "b": np.zeros(1)}, 0)
    hvd.broadcast_parameters([np.ones(2), ("x", np.ones(3))], 0)
    hvd.broadcast_parameters((np.ones(2), np.array(3.0)), 0)
    hvd.broadcast_parameters({}, 0)
    hvd.broadcast_parameters([], 0)


GOOD = np.ones(2)
BAD = {
    r"params=3 is int": 3,
    r"params='text' is str": "text",
    r"params\['b'\]: .*read-only": {"a": GOOD, "b": np.broadcast_to(np.ones(1), (1,))},
    r"params\['b'\]: .*contiguous": {"a": GOOD, "b": np.ones((3, 2)).T},
    r"params\['b'\]: .*complex128, which is not supported": {"a": GOOD, "b": np.ones(2, complex)},
    r"params\['b'\]: .*NumPy array": {"a": GOOD, "b": None},
    r"params\[1\]: .*NumPy array": [GOOD, 1.0],
    r"params\[1\]: .*\(name, array\)": [GOOD, ("x", np.ones(1), 3)],
    r"params\[1\]: name=5 is no text": [("a", GOOD), (5, np.ones(2))],
    r"params\[7\]: name=7 is no text": {"a": GOOD, 7: np.ones(2)},
    r"params\['a\\x00'\]: name=.*NUL": {"0": GOOD, "a\0": np.ones(2)},
    r"params\[2\]: .*name 'same' twice": [("same", GOOD), np.ones(2), ("same", np.ones(2))],
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("text", BAD)
def test_one_bad_entry_and_nothing_is_sent(text, monkeypatch):
    sent = []
    monkeypatch.setattr(library.load(), "hvd_submit", lambda *_: sent.append(1))
    monkeypatch.setattr(library.load(), "hvd_run_for", lambda *_: sent.append(1))
    with pytest.raises((TypeError, ValueError), match=text):
        hvd.broadcast_parameters(BAD[text], 0)
    for root in ("0", -1, None):
        with pytest.raises((TypeError, ValueError), match="root_rank"):
            hvd.broadcast_parameters({"a": GOOD}, root)
    assert sent == []


@on_ranks(2, 3)
def test_every_rank_gets_the_roots():
    root = hvd.size() - 1
    params = {f"p{i}": np.full((i, 2), hvd.rank(), np.float32) for i in range(40)}
    hvd.broadcast_parameters(params, root)
    assert all((array == root).all() for array in params.values())


@on_ranks(2)
def test_arrays_may_share_memory():
    # Tied weights: the same array under two names, and a part of it under a third. Only on one rank, too.
    whole = np.full(10, hvd.rank(), np.float64)
    other = whole if hvd.rank() == 0 else whole.copy()
    part = whole[2:5] if hvd.rank() == 0 else whole[2:5].copy()
    hvd.broadcast_parameters({"a": whole, "b": other, "c": part}, 1)
    assert (whole == 1).all()
    assert (other == 1).all()
    assert (part == 1).all()


@on_ranks(2)
def test_when_the_ranks_disagree_about_one_nothing_is_left_in_flight():
    for _ in range(2):
        params = {"a": np.ones(2), "b": np.ones(2 + hvd.rank()), "c": np.full(3, hvd.rank())}
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched BROADCAST tensor shapes"):
            hvd.broadcast_parameters(params, 1)
        assert (params["c"] == 1).all()  # was waited for all the same
    from horovod.common import request

    assert not request._pending
