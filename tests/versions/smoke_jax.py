# SPDX-License-Identifier: Apache-2.0
"""
What must work with every JAX that is supported; run by `tests/versions/run.sh jax` on two ranks.

Plain assertions and one process per rank, so that it needs nothing but the wheel, JAX and optax.
"""

import sys

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import optax


def operations():
    rank, size = hvd.rank(), hvd.size()
    x, own = jnp.array([1.0, 2.0]) * (rank + 1), jnp.arange(size) + 10 * rank
    total = size * (size + 1) / 2

    def everything(x, own):  # the same program on all ranks, so their number is no constant in it
        group = hvd.grouped_allreduce({"a": x, "b": x.astype(jnp.bfloat16)}, op=hvd.Sum, name="group")
        return (
            hvd.allreduce(x, op=hvd.Sum, name="sum"),
            hvd.allgather(x[:1], name="rows"),
            hvd.broadcast(x, root_rank=1, name="root"),
            hvd.alltoall(own, name="all"),
            hvd.reducescatter(jnp.ones(size), op=hvd.Sum, name="part"),
            hvd.barrier(tensors=x, name="barrier"),
            group["b"],
        )

    compiled = jax.jit(everything)
    for function in (everything, *[compiled] * 100):
        reduced, rows, sent, exchanged, part, same, small = function(x, own)
        assert reduced.tolist() == [total, 2 * total]
        assert rows.tolist() == [float(one + 1) for one in range(size)]
        assert sent.tolist() == [2.0, 4.0]
        assert exchanged.tolist() == [10 * one + rank for one in range(size)]
        assert part.tolist() == [size]
        assert same.tolist() == x.tolist()
        assert small.tolist() == [total, 2 * total]


def transformations():
    size = hvd.size()

    def loss(x):
        return (hvd.allreduce(jnp.sin(x), op=hvd.Sum, name="loss") * x).sum()

    x = jnp.array([0.5, 1.0])
    wanted = size * (x * jnp.cos(x) + jnp.sin(x))
    for slope in (jax.grad(loss), jax.jit(jax.grad(loss)), jax.jit(jax.grad(jax.checkpoint(loss)))):
        assert jnp.allclose(slope(x), wanted, atol=1e-6)
    assert jax.jit(jax.vmap(lambda x: hvd.broadcast(x, 0, name="batch")))(jnp.ones((3, 2))).shape == (3, 2)
    body = lambda total, x: (total + hvd.allreduce(x, op=hvd.Sum, name="scan"), None)  # noqa: E731
    assert jax.jit(lambda: jax.lax.scan(body, 0.0, jnp.ones(5))[0])().item() == 5 * size
    assert jax.jit(lambda x: hvd.allreduce(x, name="given"), donate_argnums=0)(jnp.ones(1000)).sum() == 1000


def ordered():
    def program(x):
        hvd.barrier(name="begin", ordered=True)
        hvd.allreduce(x, name="unused", ordered=True)
        return hvd.allgather(x, name="rows", ordered=True)

    compiled = jax.jit(program)
    if jax.__version_info__ < (0, 5, 3):
        assert "ordered=True needs a part of JAX" in error_of(lambda: compiled(jnp.ones(2)))
        return
    before = hvd.counters()["operations"]["allreduce"]["completed"]
    for _ in range(3):
        assert compiled(jnp.ones(2)).shape == (2 * hvd.size(),)
    assert hvd.counters()["operations"]["allreduce"]["completed"] == before + 3
    slope = jax.jit(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Sum, name="slope", ordered=True).sum()))
    assert slope(jnp.ones(2)).tolist() == [hvd.size()] * 2


def training():
    rank, size = hvd.rank(), hvd.size()
    inputs = np.random.default_rng(0).normal(size=(6, size, 8, 5)).astype("float32")

    def loss(params, x):
        return ((x @ params["w"] + params["b"] - x.sum(1)) ** 2).mean()

    def train(optimizer, batches):
        params = hvd.broadcast_parameters({"w": jnp.zeros(5), "b": jnp.float32(0)}, root_rank=0)
        state = optimizer.init(params)

        @jax.jit
        def step(params, state, x):
            updates, state = optimizer.update(jax.grad(loss)(params, x), state, params)
            return optax.apply_updates(params, updates), state

        for x in batches:
            params, state = step(params, state, x)
        return params

    alone = train(optax.adam(0.1), inputs.reshape(6, -1, 5))
    together = train(hvd.DistributedGradientTransformation(optax.adam(0.1)), inputs[:, rank])
    assert all(jnp.allclose(alone[name], together[name], atol=5e-6) for name in alone)
    hvd.check_in_sync(together)


def error_of(call):
    try:
        jax.block_until_ready(call())
    except Exception as error:
        return str(error)
    return "there was none"


def errors():
    x = jnp.ones(2 + hvd.rank())
    for call in (lambda: hvd.allreduce(x, name="wrong"), lambda: jax.jit(lambda x: hvd.allreduce(x, name="wrong"))(x)):
        assert "Mismatched ALLREDUCE tensor shapes" in error_of(call), error_of(call)
    assert "needs a name" in error_of(lambda: jax.jit(hvd.allreduce)(x))
    assert "no gradient" in error_of(lambda: jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max, name="m").sum())(x))


def another_start():
    program = jax.jit(lambda x: hvd.allgather(x, name="life"))
    kept = program.lower(jnp.ones(1)).compile()
    assert program(jnp.ones(1)).shape == (hvd.size(),)
    hvd.shutdown()
    assert "not been initialized" in error_of(lambda: program(jnp.ones(1)))
    hvd.init()
    assert program(jnp.ones(1)).shape == kept(jnp.ones(1)).shape == (hvd.size(),)


def main() -> None:
    """Be a rank."""
    hvd.init()
    for check in (operations, transformations, ordered, training, errors, another_start):
        check()
        if hvd.rank() == 0:
            print(f"JAX {jax.__version__}: {check.__name__} ok", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    sys.exit(main())
