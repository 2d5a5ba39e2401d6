# SPDX-License-Identifier: Apache-2.0
"""Derivatives, vmap, control flow and donation of the operations, against one process that has all arrays."""

import pytest
import ranks


def together(function):
    return ranks.in_one_start(2, 3, preloaded="jax")(function)


def _operations(hvd, size):
    """The operations by name, and what each makes of the list of all ranks' arrays, of `size` rows each."""
    import jax.numpy as jnp

    def joined(every):
        return [jnp.concatenate(every)] * size

    def exchanged(every):
        return [jnp.concatenate([one[rank : rank + 1] for one in every]) for rank in range(size)]

    return {
        "sum": (lambda x, name: hvd.allreduce(x, op=hvd.Sum, name=name), lambda every: [sum(every)] * size),
        "average": (lambda x, name: hvd.allreduce(x, name=name), lambda every: [sum(every) / size] * size),
        "scaled": (
            lambda x, name: hvd.allreduce(x, op=hvd.Sum, name=name, prescale_factor=2.0, postscale_factor=0.25),
            lambda every: [sum(every) / 2] * size,
        ),
        "group": (
            lambda x, name: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, name=name)[1],
            lambda every: [2 * sum(every)] * size,
        ),
        "broadcast": (lambda x, name: hvd.broadcast(x, size - 1, name=name), lambda every: [every[-1]] * size),
        "allgather": (lambda x, name: hvd.allgather(x, name=name), joined),
        "alltoall": (lambda x, name: hvd.alltoall(x, name=name), exchanged),
        "reducescatter": (
            lambda x, name: hvd.reducescatter(x, name=name),
            lambda every: [sum(every)[rank : rank + 1] / size for rank in range(size)],
        ),
        "barrier": (lambda x, name: hvd.barrier(tensors=x, name=name), lambda every: every),
    }


def _every(size, shape=()):
    import jax.numpy as jnp
    import numpy as np

    return [
        jnp.asarray(np.random.default_rng(rank).normal(size=(size, 4, *shape)).astype("float32"))
        for rank in range(size)
    ]


@pytest.mark.row("x3")
@together
def test_derivatives():
    """Each rank's gradient is that of the sum of all ranks' losses; so is the gradient's own derivative."""
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    rank, size = hvd.rank(), hvd.size()
    every = _every(size)
    weights = [one + 1 for one in _every(size)]

    def loss_of(result, rank):
        return (jnp.sin(result) * (rank + 1)).sum()

    for name, (operation, model) in _operations(hvd, size).items():

        def loss(x, operation=operation, name=name):
            return loss_of(operation(x, name), rank)

        def whole(every, model=model):
            return sum(loss_of(result, number) for number, result in enumerate(model(every)))

        wanted = jax.grad(whole)(every)[rank]
        for gradient in (jax.grad(loss), jax.jit(jax.grad(loss)), jax.grad(jax.jit(loss))):
            assert jnp.allclose(gradient(every[rank]), wanted, atol=1e-6), name
        checkpointed = jax.jit(jax.grad(jax.checkpoint(lambda x, loss=loss: loss(jnp.tanh(x)))))(every[rank])
        inner = jax.grad(lambda every, whole=whole: whole([jnp.tanh(one) for one in every]))(every)[rank]
        assert jnp.allclose(checkpointed, inner, atol=1e-6), name

        _, moved = jax.jvp(lambda x, operation=operation, name=name: operation(x, name), [every[rank]], [weights[rank]])
        _, expected = jax.jvp(model, [every], [weights])
        assert jnp.allclose(moved, expected[rank], atol=1e-6), name

        def second(x, loss=loss):
            return (jax.grad(loss)(x) * weights[rank]).sum()

        def whole_second(every, whole=whole):
            return sum((one * weight).sum() for one, weight in zip(jax.grad(whole)(every), weights))

        wanted = jax.grad(whole_second)(every)[rank]
        assert jnp.allclose(jax.jit(jax.grad(second))(every[rank]), wanted, atol=1e-5), name


@together
def test_vmap():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    rank, size = hvd.rank(), hvd.size()
    every = _every(size, (5,))
    for name, (operation, model) in _operations(hvd, size).items():
        for axis in (1, 2):
            program = jax.vmap(lambda x, operation=operation, name=name: operation(x, name), axis, axis)
            wanted = jax.vmap(model, axis, axis)(every)[rank]
            assert jnp.allclose(program(every[rank]), wanted, atol=1e-6), name
            assert jnp.allclose(jax.jit(program)(every[rank]), wanted, atol=1e-6), name
    # Scalars, which vmap makes of an array; and operands of a group without the axis.
    found = jax.jit(jax.vmap(lambda x: hvd.allgather(x, name="scalars")))(jnp.full(4, rank))
    assert found.tolist() == [list(range(size))] * 4
    first, second = jax.vmap(
        lambda x: tuple(hvd.grouped_allreduce([x, jnp.ones(2)], op=hvd.Sum, name="some")), out_axes=(0, None)
    )(jnp.ones((3, 2)))
    assert first.tolist() == [[size] * 2] * 3
    assert second.tolist() == [size] * 2
    with pytest.raises(NotImplementedError, match="looks at an array as a whole"):
        jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum, name="adasum"))(jnp.ones((3, 2)))


@together
def test_control_flow():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    rank, size = hvd.rank(), hvd.size()
    total = sum(range(size))

    def add(x, name):
        return hvd.allreduce(x, op=hvd.Sum, name=name)

    def body(carry, x):
        carry = carry + add(x * rank, "scan")
        return carry, carry

    end, steps = jax.jit(lambda: jax.lax.scan(body, jnp.float32(0), jnp.arange(50.0)))()
    assert end.item() == sum(range(50)) * total
    assert steps[1].item() == total
    gradient = jax.jit(jax.grad(lambda xs: jax.lax.scan(body, jnp.float32(0), xs)[0]))(jnp.ones(3))
    assert gradient.tolist() == [rank * size] * 3
    branch = jax.jit(lambda i, x: jax.lax.cond(i % 2 == 0, lambda x: add(x, "even"), lambda x: x - 1, x))
    assert [branch(i, 1.0).item() for i in range(4)] == [size, 0.0] * 2
    loop = jax.jit(lambda x: jax.lax.while_loop(lambda x: x < 100, lambda x: add(x, "while"), x))
    assert loop(1.0).item() == size ** next(n for n in range(9) if size**n >= 100)
    chosen = jax.jit(lambda i: jax.lax.switch(i, [lambda: add(jnp.ones(2), "switch"), lambda: jnp.zeros(2)]))
    assert [chosen(i).tolist() for i in (0, 1)] == [[size] * 2, [0.0] * 2]


@together
def test_donation_gives_the_memory_on():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    for kept, place in ((False, (0,)), (True, ())):
        program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="donated"), donate_argnums=place)
        x = jnp.ones(100_000)
        x.block_until_ready()
        before = x.unsafe_buffer_pointer()
        found = program(x)
        assert (found == hvd.size()).all()
        assert (found.unsafe_buffer_pointer() != before) == kept
        assert x.is_deleted() != kept
        if kept:
            assert (x == 1).all()


@together
def test_many_operations_at_once():
    """XLA begins independent operations in the order that suits it, which is another one on every rank."""
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    def program(xs):
        results = []
        for i, x in enumerate(xs):
            for _ in range((i * (hvd.rank() + 1)) % 4):
                x = jnp.tanh(x @ x) * 0 + 1
            results.append(hvd.allreduce(x, op=hvd.Sum, name=f"many.{i}"))
        return results

    compiled = jax.jit(program)
    for _ in range(10):
        for one in compiled([jnp.ones((64, 64))] * 24):
            assert (one == hvd.size()).all()


@pytest.mark.row("x9")
@together
def test_ordered_operations_run_in_turn_and_are_kept():
    import re

    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    rank, size = hvd.rank(), hvd.size()

    def program(x):
        hvd.barrier(name="begin", ordered=True)
        hvd.allreduce(x, op=hvd.Sum, name="unused", ordered=True)
        results = []
        for i in range(8):
            for _ in range((i * (rank + 1)) % 4):
                x = jnp.tanh(x @ x) * 0 + 1
            results.append(hvd.allreduce(x, op=hvd.Sum, name=f"turn.{i}", ordered=True))
        rows = hvd.grouped_allgather({"a": x[0], "b": x[:1]}, name="rows", ordered=True)
        return results, rows["b"]

    def completed():
        operations = hvd.counters()["operations"]
        return [operations[kind]["completed"] for kind in ("barrier", "allreduce", "allgather")]

    compiled, x = jax.jit(program), jnp.ones((4, 4))
    before = completed()
    for _ in range(3):
        results, rows = compiled(x)
        assert all((one == size).all() for one in results)
        assert rows.shape == (size, 4)
    assert [now - then for now, then in zip(completed(), before)] == [3, 27, 6]
    # Each call takes the token of the one before it.
    calls = re.findall(
        r"%(\d+)(?::\d+)? = stablehlo.custom_call @hvd_collective\(%([^,#)]+)", compiled.lower(x).as_text()
    )
    assert len(calls) == 11
    assert [token for _, token in calls[1:]] == [result for result, _ in calls[:-1]]


@together
def test_transformations_of_ordered_operations():
    import functools

    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    size = hvd.size()
    add = functools.partial(hvd.allreduce, op=hvd.Sum, ordered=True)
    slope = jax.jit(jax.grad(lambda x: (add(x, name="slope") * x).sum()))
    assert slope(jnp.ones(3)).tolist() == [2.0 * size] * 3
    kept = jax.jit(jax.grad(jax.checkpoint(lambda x: add(jnp.sin(x), name="kept").sum())))
    assert jnp.allclose(kept(jnp.zeros(3)), size)
    looped = jax.jit(lambda: jax.lax.scan(lambda sum, x: (sum + add(x, name="scan"), None), 0.0, jnp.ones(5))[0])
    assert looped().item() == 5 * size
    chosen = jax.jit(lambda i: jax.lax.cond(i == 0, lambda: add(jnp.ones(2), name="cond"), lambda: jnp.zeros(2)))
    assert [chosen(i).tolist() for i in (0, 1)] == [[size] * 2, [0.0] * 2]
    assert jax.jit(jax.vmap(lambda x: add(x, name="vmap")))(jnp.ones((3, 2))).tolist() == [[size] * 2] * 3
    assert add(jnp.ones(2)).tolist() == [size] * 2


@together
def test_no_derivatives():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        for wrap in (jax.jit, lambda f: f):
            with pytest.raises(NotImplementedError, match=r"have no gradient: use hvd\.Sum or hvd\.Average"):
                wrap(jax.grad(lambda x, op=op: hvd.allreduce(x, op=op, name="none").sum()))(jnp.ones(3))
    with pytest.raises(Exception, match="only if they can: pad the array"):
        jax.grad(lambda x: hvd.reducescatter(x, name="odd").sum())(jnp.ones(hvd.size() + 1))
    # Whole numbers have none, and stand in the way of nothing.
    tree = {"x": jnp.ones(2), "i": jnp.ones(2, jnp.int32)}
    grad = jax.jit(
        jax.grad(lambda tree: hvd.grouped_allreduce(tree, op=hvd.Sum, name="some")["x"].sum(), allow_int=True)
    )
    assert grad(tree)["x"].tolist() == [hvd.size()] * 2


@ranks.in_one_start(2, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, preloaded="jax")
def test_several_devices_of_a_process():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    mesh = jax.sharding.Mesh(jax.devices(), "d")
    divided = jax.device_put(jnp.ones((4, 2)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    with pytest.raises(Exception, match="the array is on 2 devices of this process"):
        hvd.allreduce(divided)
    with pytest.raises(Exception, match="is in a program for 2 devices of this process"):
        jax.jit(lambda x: hvd.allreduce(x, name="divided"))(divided)
    # The other device works on its own, and keeps what it computes.
    own = jax.device_put(jnp.ones(3), jax.devices()[1])
    for found in (hvd.allreduce(own, op=hvd.Sum), jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="own"))(own)):
        assert found.tolist() == [hvd.size()] * 3
        assert found.devices() == own.devices()
