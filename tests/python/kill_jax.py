# SPDX-License-Identifier: Apache-2.0
"""
Kills a rank at a random moment of training with a compiled step of JAX, again and again.

The other ranks must raise an error that names the rank, and must not crash.

    python tests/python/kill_jax.py --kills 20
"""

import kill_torch

RANK = """
import os, signal, sys, threading, time
import jax, jax.numpy as jnp, optax
import horovod.jax as hvd

size, victim, delay = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
hvd.init()
assert hvd.size() == size
optimizer = hvd.DistributedGradientTransformation(optax.sgd(0.01))
params = [jnp.eye(64) for _ in range(20)]
state = optimizer.init(params)

def loss(params, x):
    for one in params:
        x = jnp.tanh(x @ one)
    return (x ** 2).mean()

@jax.jit
def step(params, state, x):
    updates, state = optimizer.update(jax.grad(loss)(params, x), state, params)
    return optax.apply_updates(params, updates), state

def kill():
    print("KILLED", time.monotonic(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

try:
    for number in range(10**6):
        if hvd.rank() == victim and number == 3:
            threading.Timer(delay, kill).start()
        params, state = step(params, state, jnp.ones((8, 64)))
        jax.block_until_ready(params)
except Exception as error:
    print("RAISED", time.monotonic(), str(error).splitlines()[0], flush=True)
"""

if __name__ == "__main__":
    kill_torch.main(__doc__, RANK, "jax")
