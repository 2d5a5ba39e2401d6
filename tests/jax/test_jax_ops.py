# SPDX-License-Identifier: Apache-2.0
"""The operations on arrays of JAX, inside and outside of jax.jit, against what one process computes."""

import pytest
import random_jax
import ranks


def together(function):
    return ranks.in_one_start(2, 3, preloaded="jax")(function)


TYPES = ("uint8", "int8", "uint16", "int16", "int32", "float16", "bfloat16", "float32")


def _every(dtype, shape=(6, 3)):
    """All ranks' arrays: every rank can make them."""
    import horovod.jax as hvd
    import jax.numpy as jnp
    import numpy as np

    return [jnp.asarray(np.random.default_rng(rank).integers(0, 9, shape)).astype(dtype) for rank in range(hvd.size())]


@pytest.mark.row("x1")
@together
def test_allreduce_of_all_types():
    import functools

    import horovod.jax as hvd
    import jax
    import numpy as np

    for name in TYPES:
        every = _every(name)
        own = every[hvd.rank()]
        total = sum(np.asarray(one, np.float64) for one in every)
        largest = np.max([np.asarray(one, np.float64) for one in every], axis=0)
        for op, wanted in ((hvd.Sum, total), (hvd.Max, largest)):
            call = functools.partial(hvd.allreduce, op=op, name=f"{name}.{op}")
            for found in (call(own), jax.jit(call)(own), jax.jit(call)(own)):
                assert found.dtype == own.dtype
                assert (np.asarray(found, np.float64) == wanted).all(), (name, op)
    flags = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Max, name="flags"))(np.array([hvd.rank() == 0, False]))
    assert flags.tolist() == [True, False]


@together
def test_types_of_64_bits():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    try:
        for dtype in ("int64", "float64"):
            own = jnp.full((3,), hvd.rank() + 2**40, dtype)
            total = sum(rank + 2**40 for rank in range(hvd.size()))
            assert hvd.allreduce(own, op=hvd.Sum).tolist() == [total] * 3
            found = jax.jit(lambda x, dtype=dtype: hvd.allreduce(x, op=hvd.Sum, name=dtype))(own)
            assert found.dtype == dtype
            assert found.tolist() == [total] * 3
    finally:
        jax.config.update("jax_enable_x64", False)


@together
def test_average_factors_and_compression():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    own = jnp.full((5,), 1.0 + hvd.rank())
    mean = (hvd.size() + 1) / 2

    def program(x):
        return (
            hvd.allreduce(x, name="mean"),
            hvd.allreduce(x, name="scaled", op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
            hvd.allreduce(x, name="small", compression=hvd.Compression.bf16),
            hvd.allreduce(x + 2.0**-13, name="half", compression=hvd.Compression.fp16),
        )

    for call in (program, jax.jit(program)):
        average, scaled, small, half = call(own)
        assert average.tolist() == small.tolist() == [mean] * 5
        assert scaled.tolist() == [mean * hvd.size() * 2] * 5
        assert half.dtype == jnp.float32
        assert (half == mean).all()  # 2**-13 is lost in float16


@together
def test_group_is_a_tree():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    rank, size = hvd.rank(), hvd.size()
    tree = {"w": jnp.full((2, 3), rank), "b": (jnp.ones(4, jnp.bfloat16), jnp.float32(rank)), "none": None}

    def program(tree):
        return hvd.grouped_allreduce(tree, op=hvd.Sum, name="tree")

    for found in (program(tree), jax.jit(program)(tree)):
        assert jax.tree.structure(found) == jax.tree.structure(tree)
        assert (found["w"] == sum(range(size))).all()
        assert found["b"][0].dtype == jnp.bfloat16
        assert (found["b"][0] == size).all()
        assert found["b"][1].item() == sum(range(size))
    assert hvd.grouped_allreduce({}) == {}
    gathered = jax.jit(lambda tree: hvd.grouped_allgather(tree, name="gather"))([jnp.full(2, rank), jnp.ones((1, 2))])
    assert [one.shape for one in gathered] == [(2 * size,), (size, 2)]
    parts = jax.jit(lambda tree: hvd.grouped_reducescatter(tree, name="parts", op=hvd.Sum))([jnp.ones((size, 2))])
    assert parts[0].tolist() == [[size] * 2]


@together
def test_other_operations():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp
    import numpy as np

    rank, size = hvd.rank(), hvd.size()
    own = jnp.arange(2 * size) + 100 * rank
    every = [np.arange(2 * size) + 100 * one for one in range(size)]
    programs = {
        "allgather": (lambda x, name: hvd.allgather(x, name=name), np.concatenate(every)),
        "scalars": (lambda x, name: hvd.allgather(x[0], name=name), np.array([one[0] for one in every])),
        "broadcast": (lambda x, name: hvd.broadcast(x, size - 1, name=name), every[-1]),
        "alltoall": (
            lambda x, name: hvd.alltoall(x, name=name),
            np.concatenate([one[2 * rank : 2 * rank + 2] for one in every]),
        ),
        "reducescatter": (
            lambda x, name: hvd.reducescatter(x, name=name, op=hvd.Sum),
            sum(every)[2 * rank : 2 * rank + 2],
        ),
        "uneven": (
            lambda x, name: hvd.reducescatter(x[:-1], name=name, op=hvd.Sum),
            np.array_split(sum(every)[:-1], size)[rank],
        ),
        "barrier": (lambda x, name: hvd.barrier(tensors=x, name=name), every[rank]),
    }
    for name, (program, wanted) in programs.items():
        compiled = jax.jit(program, static_argnums=1)
        for found in (program(own, None), program(own, name), compiled(own, name), compiled(own, name)):
            assert np.array_equal(found, wanted), name


@together
def test_shapes_that_differ_by_rank():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp
    import numpy as np

    rank, size = hvd.rank(), hvd.size()
    gathered = hvd.allgather(jnp.full((rank + 1, 2), rank))
    assert gathered.shape == (size * (size + 1) // 2, 2)
    received, rows = hvd.alltoall(jnp.full(size * (size - 1) // 2, rank), splits=list(range(size)))
    assert received.tolist() == [one for one in range(size) for _ in range(rank)]
    assert rows.tolist() == [rank] * size
    program = jax.jit(lambda x: hvd.allgather(x, name="differ"))
    with pytest.raises(Exception, match="in a compiled program every rank gives an array of the same shape"):
        program(np.ones(1 + (rank == 0))).block_until_ready()


@together
def test_process_sets():
    import os

    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    hvd.shutdown()
    last = hvd.ProcessSet([int(os.environ["HOROVOD_SIZE"]) - 1])
    hvd.init(process_sets=[last])
    call = jax.jit(
        lambda x: (hvd.allreduce(x, op=hvd.Sum, name="set", process_set=last), hvd.allgather(x, "all", last))
    )
    if last.included():
        total, joined = call(jnp.array([float(hvd.rank())]))
        assert total.tolist() == [hvd.size() - 1]
        assert joined.tolist() == [hvd.size() - 1]
    assert hvd.allreduce(jnp.ones(1), op=hvd.Sum).tolist() == [hvd.size()]


@together
def test_errors_say_what_to_do():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp
    import pytest

    x = jnp.ones(3)
    for function, text in (
        (lambda x: hvd.allreduce(x), "allreduce in a compiled program needs a name"),
        (lambda x: hvd.grouped_allreduce([x]), "grouped_allreduce in a compiled program needs a name"),
        (lambda x: hvd.barrier(), "give the arrays that must wait"),
        (lambda x: hvd.alltoall(jnp.ones(hvd.size() + 1), name="odd"), "cannot be divided among"),
        (lambda x: hvd.alltoall(x, splits=[1] * hvd.size()), "leave splits out, or call alltoall outside"),
        (lambda x: hvd.allreduce(x.astype("uint32"), name="type"), "element type uint32, which is not supported"),
        (lambda x: hvd.allreduce(x, name=3), "name=3 is no text"),
        (lambda x: hvd.allreduce(x, op=9, name="op"), "op=9 is no reduction"),
        (lambda x: hvd.allreduce(x, compression="fp16", name="c"), "compression='fp16' cannot compress"),
        (lambda x: hvd.reducescatter(1.0, name="scalar"), "a scalar has none"),
        (lambda x: hvd.broadcast(x, -1, name="root"), "invalid root rank"),
    ):
        with pytest.raises(Exception) as caught:
            jax.jit(function)(x)
        assert text in str(caught.value), text
    with pytest.raises(ValueError, match="complex64, which is not supported"):
        hvd.allreduce(jnp.ones(3, jnp.complex64))


@pytest.mark.row("x2")
@together
def test_random_operations_are_those_of_numpy():
    """Jitted operations of JAX have the bits of those of horovod.numpy. random_jax.py does more as a program."""
    random_jax.compare(operations=200, signatures=40, seed=7)


@together
def test_ranks_may_compile_or_not():
    """A rank that runs the operation in a program meets one that calls it, and one that uses horovod.numpy."""
    import horovod.jax as hvd
    import horovod.numpy as hnp
    import jax
    import numpy as np

    calls = [
        jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="mixed")),
        lambda x: hvd.allreduce(x, op=hvd.Sum, name="mixed"),
        lambda x: hnp.allreduce(x, op=hnp.Sum, name="mixed"),
    ]
    for _ in range(3):
        assert np.asarray(calls[hvd.rank()](np.ones(4, np.float32))).tolist() == [hvd.size()] * 4


@together
def test_ranks_that_trace_again_make_the_same_names():
    import re

    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    rank, size = hvd.rank(), hvd.size()
    program = jax.jit(lambda tree: hvd.grouped_allreduce(tree, op=hvd.Sum, name="again"))
    leaves = {"w": jnp.full(3, 1.0 + rank), "b": jnp.full(2, 10.0 + rank), "a": (jnp.ones(2), jnp.float32(rank))}
    for turn in range(size):
        if rank == turn:
            jax.clear_caches()
            leaves = dict(reversed(leaves.items()))
        found = program(leaves)
        assert found["w"].tolist() == [sum(range(size)) + size] * 3
        assert found["b"].tolist() == [sum(range(size)) + 10 * size] * 2
        assert found["a"][0].tolist() == [size] * 2
    names = re.findall(r'name = "(.*?)"', program.lower(leaves).as_text())
    assert names
    assert hvd.allgather_object(names) == [names] * size


@together
def test_programs_after_another_start():
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="life"))
    for _ in range(3):
        assert program(jnp.ones(2)).tolist() == [hvd.size()] * 2
        hvd.shutdown()
        with pytest.raises(ValueError, match="not been initialized"):
            hvd.allreduce(jnp.ones(2))
        with pytest.raises(Exception, match="not been initialized"):
            program(jnp.ones(2)).block_until_ready()
        hvd.init()


@pytest.mark.row("x8")
@ranks.in_one_start(3, preloaded="jax")
def test_programs_after_the_ranks_change():
    """JAX makes its programs again for other ranks; programs that the user keeps, and derivatives, are refused."""
    import os

    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    programs = {
        "gathered": jax.jit(lambda x: hvd.allgather(x, name="gathered")),
        "scattered": jax.jit(lambda x: hvd.reducescatter(x, op=hvd.Sum, name="scattered")),
        "slope": jax.jit(jax.grad(lambda x: hvd.broadcast(x, 0, name="slope").sum())),
        "total": jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="total")),
        "numbers": jax.jit(lambda x: x[:1] * 0 + 10 * hvd.rank() + hvd.size()),
    }

    def check(rank, size):
        own, total = jnp.full(5, float(rank)), float(sum(range(size)))
        wanted = {
            "gathered": [float(one) for one in range(size) for _ in range(5)],
            "scattered": [total] * (5 // size + (rank < 5 % size)),
            "slope": [float(size if rank == 0 else 0)] * 5,
            "total": [total] * 5,
            "numbers": [10.0 * rank + size],
        }
        for name, program in programs.items():
            assert program(own).tolist() == wanted[name], name

    own = jnp.full(5, float(hvd.rank()))
    check(hvd.rank(), 3)
    kept = {name: program.lower(own).compile() for name, program in programs.items()}
    pulls = [jax.vjp(lambda x: hvd.broadcast(x, 0), own)[1], jax.vjp(hvd.allgather, own)[1]]
    before = hvd.rank()
    hvd.shutdown()
    if before == 2:
        return
    os.environ.update(HOROVOD_SIZE="2", HOROVOD_RANK=str(1 - before), HOROVOD_GENERATION="100")
    hvd.init()
    assert hvd.rank() == 1 - before
    check(hvd.rank(), 2)
    for name in ("gathered", "scattered"):
        with pytest.raises(
            Exception, match=r"compiled for other ranks\. .* has 2 ranks now.* compile the program again"
        ):
            jax.block_until_ready(kept[name](own))
    assert kept["total"](own).tolist() == [1.0] * 5
    assert kept["slope"](own).tolist() == [2.0 if hvd.rank() == 0 else 0.0] * 5
    for pull, cotangent in zip(pulls, (own, jnp.ones(15))):
        with pytest.raises(ValueError, match=rf"made by rank {before}, with 3 ranks .* another call of jax\.vjp"):
            pull(cotangent)
    check(hvd.rank(), 2)
