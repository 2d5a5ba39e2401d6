# SPDX-License-Identifier: Apache-2.0
"""
An elastic loop for tests: `elastic_program.py FOLDER`. It ends when FOLDER/stop exists.

Each rank writes a line after every commit into FOLDER/PID: generation, step, rank, size, digest of the weights. A
process that finds FOLDER/broken ends before hvd.init(). Rank 1 of a view that finds FOLDER/fatal is killed after it has
got the view and before the other members see it. Rank 2 that finds FOLDER/hang removes it and never comes back.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import signal
import sys
import time

import horovod.numpy as hvd
import numpy as np
from horovod.common import elastic, membership


def die_between(folder: pathlib.Path) -> None:
    """Have this process killed between its view and the start in it, if the test wants that."""
    join = membership.join

    def wrapper(failure: str = "") -> None:
        join(failure)
        if membership.view().rank == 1 and (folder / "fatal").exists():
            (folder / "fatal").unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    membership.join = wrapper


def hang(folder: pathlib.Path) -> None:
    """Do what a program with an error may do."""
    (folder / "hang").unlink()
    while True:
        time.sleep(1)


def main(folder: pathlib.Path) -> None:
    """Train until the test has seen enough."""
    if (folder / "broken").exists():
        sys.exit(7)
    die_between(folder)
    hvd.init()
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0, weights=np.ones(100))

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        while True:
            if hvd.rank() == 2 and (folder / "hang").exists():
                hang(folder)
            stop = float((folder / "stop").exists())
            # What a rank adds depends on its number, so that the weights tell who has taken part.
            own = np.append(np.full(100, (hvd.rank() + 1) * 0.1 + state.step), stop)
            total = np.asarray(hvd.allreduce(own, name="gradient", op=hvd.Sum))
            state.weights = state.weights * 0.999 + total[:-1]
            state.step += 1
            state.commit()
            digest = hashlib.sha256(state.weights.tobytes()).hexdigest()[:16]
            generation = membership.view().generation
            lines.write(f"{generation} {state.step} {hvd.rank()} {hvd.size()} {digest}\n")
            lines.flush()
            if total[-1] > 0:
                return

    with open(folder / str(os.getpid()), "a") as lines:
        train(state)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
