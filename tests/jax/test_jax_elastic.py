# SPDX-License-Identifier: Apache-2.0
"""The state of horovod.jax.elastic."""

import os
import subprocess
import sys
from unittest import mock

import pytest
import ranks


def together(function):
    return ranks.in_one_start(2, preloaded="jax")(function)


@together
def test_trees_go_through_a_change_also_if_the_program_donates_them():
    import changing_job
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    optimizer = hvd.DistributedGradientTransformation(optax.adam(0.1))

    def step(params, moments, inputs):
        gradients = jax.grad(lambda params: ((inputs @ params["w"] - 1.0) ** 2).mean())(params)
        updates, moments = optimizer.update(gradients, moments, params)
        return optax.apply_updates(params, updates), moments

    for donate in (True, False):
        step_of = jax.jit(step, donate_argnums=(0, 1) if donate else ())
        results = []
        for fails in (False, True):
            params = {"w": jnp.full(3, float(hvd.rank()))}
            state = hvd.elastic.JaxState(
                donated=donate,
                params=params,
                moments=optimizer.init(params),
                table=np.full(2, hvd.rank()),
                key=jax.random.key(hvd.rank()),
                losses=[],
                step=hvd.rank(),
            )
            with changing_job.ChangingJob() as job, mock.patch.dict(os.environ, HOROVOD_ELASTIC_VERIFY="1"):

                @job.run
                def train(state):
                    while state.step < 6:
                        batch = jax.random.normal(jax.random.fold_in(state.key, 2 * state.step + hvd.rank()), (4, 3))
                        state.params, state.moments = step_of(state.params, state.moments, batch)  # noqa: B023
                        state.losses.append(state.step)
                        state.step += 1
                        if fails and state.step == 3 and job.formed == 1:  # noqa: B023
                            job.end(RuntimeError("INTERNAL: of an operation"))
                        state.commit()

                train(state)
            assert job.formed == 1 + fails
            assert state.losses == list(range(6))
            assert state.table.tolist() == [0, 0]
            hvd.check_in_sync({"params": state.params, "moments": state.moments})
            results.append(np.asarray(state.params["w"]))
        assert (results[0] == results[1]).all()


@ranks.in_one_start(1, preloaded="jax")
def test_trees_that_cannot_be_kept_are_refused():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    state = hvd.elastic.JaxState(params=jnp.zeros(3))
    jax.jit(lambda x: x + 1, donate_argnums=0)(state.params)
    if state.params.is_deleted():
        with pytest.raises(ValueError, match=r"state.params holds an array .* by donate_argnums: assign"):
            state.commit()
    state.restore()
    assert state.params.tolist() == [0.0] * 3


@together
def test_a_rank_with_another_tree_is_told():
    import horovod.jax as hvd
    import jax.numpy as jnp

    state = hvd.elastic.JaxState(params={"w": jnp.zeros(3 + hvd.rank())})
    if hvd.rank() == 0:
        with pytest.raises(hvd.HorovodInternalError):
            state.sync()
        return
    with pytest.raises(ValueError, match=r"params\['w'\]\", float32 \[4\], and .* \[3\], on rank 0"):
        state.sync()


def test_the_example_survives_the_loss_of_rank_0():
    import test_elastic_programs

    assert test_elastic_programs.survives("jax/elastic_digits.py", 2) > 0.7


def test_jobs_that_lose_ranks_go_on_with_programs_for_the_ranks_that_are_left():
    """Gradients are gathered, so every change of the number of ranks needs another program."""
    words = ["-m", "horovod.chaos", "--elastic", "--np", "3", "--faults", "3", "--loop", "jax", "--seed", "5"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 faults" in done.stdout
    assert done.stdout.splitlines()[0].endswith("0 problems")
