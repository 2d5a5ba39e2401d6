# SPDX-License-Identifier: Apache-2.0
"""Training on several ranks equals training of one process on the joined batches."""

import pytest
import ranks


def together(function):
    return ranks.in_one_start(2, 3, preloaded="jax")(function)


def _params():
    import jax

    keys = jax.random.split(jax.random.PRNGKey(1), 3)
    shapes = {"in": (5, 16), "hidden": (16, 16), "out": (16, 1)}
    return {name: 0.3 * jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items())}


def _loss(params, inputs, targets):
    import jax.numpy as jnp

    hidden = jnp.tanh(jnp.tanh(inputs @ params["in"]) @ params["hidden"])
    return ((hidden @ params["out"] - targets) ** 2).mean()


def _batches(steps, size):
    """All ranks' batches, by step and rank."""
    import numpy as np

    inputs = np.random.default_rng(3).normal(size=(steps, size, 8, 5)).astype("float32")
    return inputs, inputs.sum(-1, keepdims=True)


def _train(optimizer, batches, donate=False):
    import jax
    import optax

    params = _params()
    state = optimizer.init(params)

    def step(params, state, inputs, targets):
        gradients = jax.grad(_loss)(params, inputs, targets)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    step = jax.jit(step, donate_argnums=(0, 1) if donate else ())
    for inputs, targets in batches:
        params, state = step(params, state, inputs, targets)
    return params


def _difference(one, other):
    import jax
    import jax.numpy as jnp

    return max(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.abs(a - b).max().item(), one, other)))


@pytest.mark.row("x4")
@together
def test_training_equals_one_process():
    import horovod.jax as hvd
    import optax

    rank, size = hvd.rank(), hvd.size()
    inputs, targets = _batches(12, size)
    own = list(zip(inputs[:, rank], targets[:, rank]))
    joined = list(zip(inputs.reshape(12, -1, 5), targets.reshape(12, -1, 1)))
    for name, make in {
        "sgd": lambda: optax.sgd(0.1, momentum=0.9),
        "adam": lambda: optax.adam(1e-2),
        "adamw": lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-2)),
    }.items():
        wanted = _train(make(), joined)
        for donate in (False, True):
            found = _train(hvd.DistributedGradientTransformation(make()), own, donate)
            assert _difference(found, wanted) < 5e-6, name
            hvd.check_in_sync(found)


@together
def test_a_loop_in_one_program():
    import horovod.jax as hvd
    import jax
    import optax

    rank, size = hvd.rank(), hvd.size()
    inputs, targets = _batches(10, size)
    wanted = _train(optax.adam(1e-2), list(zip(inputs.reshape(10, -1, 5), targets.reshape(10, -1, 1))))
    optimizer = optax.adam(1e-2)
    slope = hvd.value_and_grad(_loss, name="loop")

    def body(carry, batch):
        params, state = carry
        loss, gradients = slope(params, *batch)
        updates, state = optimizer.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), loss

    def train(inputs, targets):
        return jax.lax.scan(body, (_params(), optimizer.init(_params())), (inputs, targets))

    (found, _), losses = jax.jit(train)(inputs[:, rank], targets[:, rank])
    assert _difference(found, wanted) < 5e-6
    assert losses[-1] < losses[0]


@together
def test_accumulation_communicates_in_the_last_pass():
    import horovod.jax as hvd
    import optax

    rank, size = hvd.rank(), hvd.size()
    inputs, targets = _batches(9, size)
    joined = list(zip(inputs.reshape(9, -1, 5), targets.reshape(9, -1, 1)))
    wanted = _train(optax.MultiSteps(optax.adam(1e-2), 3), joined)
    before = hvd.counters()["operations"]["allreduce"]["completed"]
    optimizer = hvd.DistributedGradientTransformation(optax.adam(1e-2), backward_passes_per_step=3)
    found = _train(optimizer, list(zip(inputs[:, rank], targets[:, rank])))
    assert _difference(found, wanted) < 5e-6
    assert hvd.counters()["operations"]["allreduce"]["completed"] - before == 3 * len(found)


@together
def test_options():
    import horovod.jax as hvd
    import jax.numpy as jnp
    import optax

    rank, size = hvd.rank(), hvd.size()
    params = {"w": jnp.zeros(2), "frozen": None}
    gradients = {"w": jnp.full(2, float(rank)), "frozen": None}
    for options, wanted in (
        ({}, (size - 1) / 2),
        ({"op": hvd.Sum}, sum(range(size))),
        ({"op": hvd.Sum, "compression": hvd.Compression.fp16}, sum(range(size))),
        ({"op": hvd.Adasum}, None),
    ):
        optimizer = hvd.DistributedGradientTransformation(optax.sgd(-1.0), name=f"g{len(options)}", **options)
        updates, _ = optimizer.update(gradients, optimizer.init(params), params)
        assert updates["frozen"] is None
        assert wanted is None or updates["w"].tolist() == [wanted] * 2
    # Arguments that only some transformations take are handed on.
    optimizer = hvd.DistributedGradientTransformation(
        optax.chain(optax.sgd(1.0), optax.contrib.reduce_on_plateau()), name="plateau"
    )
    optimizer.update(gradients, optimizer.init(params), params, value=1.0)
    with pytest.raises(TypeError, match=r"give an optax\.GradientTransformation"):
        hvd.DistributedGradientTransformation(lambda x: x)
    with pytest.raises(ValueError, match="backward_passes_per_step=0"):
        hvd.DistributedGradientTransformation(optax.sgd(1.0), backward_passes_per_step=0)
    (loss, aux), slope = hvd.value_and_grad(lambda x, y: ((x * y).sum(), y), 1, has_aux=True)(2.0, float(rank))
    assert (float(loss), aux, float(slope)) == (2.0 * rank, rank, 2.0)


@together
def test_trees_from_one_rank():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    rank, root = hvd.rank(), hvd.size() - 1
    params = {
        "w": jnp.full((2, 3), rank, jnp.bfloat16),
        "old key": jax.random.PRNGKey(rank),
        "key": jax.random.key(rank),
        "keys": jax.random.split(jax.random.key(rank), 3),
        "complex": jnp.full(3, rank * 1j),
        "numpy": np.full(2, rank),
        "empty": jnp.zeros((0, 3)),
        "scalar": jnp.float32(rank),
        "flag": rank == root,
        "epoch": rank,
        "rate": rank / 2,
        "none": None,
    }
    found = hvd.broadcast_parameters(params, root_rank=root)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    assert (found["w"] == root).all()
    assert found["w"].dtype == jnp.bfloat16
    assert found["old key"].tolist() == jax.random.PRNGKey(root).tolist()
    assert jax.random.normal(found["key"]) == jax.random.normal(jax.random.key(root))
    assert (jax.random.key_data(found["keys"]) == jax.random.key_data(jax.random.split(jax.random.key(root), 3))).all()
    assert found["complex"].tolist() == [root * 1j] * 3
    assert isinstance(found["numpy"], np.ndarray)
    assert found["numpy"].tolist() == [root] * 2
    assert (found["flag"], found["epoch"], found["rate"]) == (True, root, root / 2)
    hvd.check_in_sync(found)
    with pytest.raises(hvd.HorovodSyncError, match=r"variable \"\['complex'\]\".* differs between the ranks"):
        hvd.check_in_sync(params)
    state = optax.adam(1e-2).init({"w": jnp.full(2, rank)})
    assert hvd.broadcast_parameters(state)[0].mu["w"].tolist() == [0, 0]
    with pytest.raises(Exception, match=r"call it outside of jax\.jit"):
        jax.jit(hvd.broadcast_parameters)(jnp.ones(2))
    assert hvd.broadcast_object({"rank": rank}, root)["rank"] == root
    assert hvd.allgather_object(rank) == list(range(hvd.size()))
