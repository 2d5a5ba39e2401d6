# SPDX-License-Identifier: Apache-2.0
"""
Batches per second of an input that waits 20 ms for each element: computed locally, and by 1, 2 and 4 compute workers.

    .venv/bin/python benchmarks/data_service.py [--elements 100] [--rounds 3]

The map waits and does not compute, because workers on the same cores as the reader have none to add. The four ways are
measured in turns, so that other work on the machine slows all of them; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import statistics
import threading
import time

import tensorflow as tf
from horovod.tensorflow.data.compute_service import ComputeService, TfDataServiceConfig, compute_worker_fn
from tensorflow.python.data.experimental.ops import testing

WAIT_S = 0.02
WAYS = (0, 1, 2, 4)
TIMEOUT_S = 600


@contextlib.contextmanager
def compute_job(workers: int):
    key = secrets.token_bytes(32)
    with ComputeService(1, workers, key) as service:
        config = TfDataServiceConfig(1, workers, "compute", service.addresses(), key, TIMEOUT_S)
        ranks = [threading.Thread(target=compute_worker_fn, args=(config, index, workers)) for index in range(workers)]
        for rank in ranks:
            rank.start()
        config.compute_client().wait_for_dispatcher_worker_registration(0)
        try:
            yield config
        finally:
            config.compute_client().shutdown()
            for rank in ranks:
                rank.join()


def sleeps(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return the data set with a wait for each element that takes no core."""
    return dataset.apply(testing.sleep(int(WAIT_S * 1e6)))


def rate(dataset: tf.data.Dataset, elements: int) -> float:
    """Return elements per second after the first ones."""
    warm = 8
    begin = 0.0
    for number, _ in enumerate(dataset.take(elements + warm)):
        if number == warm - 1:
            begin = time.perf_counter()
    return elements / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--elements", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[int, list[float]] = {way: [] for way in WAYS}
    with contextlib.ExitStack() as stack:
        jobs = {way: stack.enter_context(compute_job(way)) for way in WAYS if way}
        for _ in range(options.rounds):
            for way in WAYS:
                dataset = sleeps(tf.data.Dataset.range(1000).repeat())
                if way:
                    dataset = dataset.send_to_data_service(jobs[way], 0, 1)
                found[way].append(rate(dataset.prefetch(4), options.elements))
    local = statistics.median(found[0])
    for way in WAYS:
        middle = statistics.median(found[way])
        name = f"{way} workers" if way else "local"
        print(f"{name:<10}{middle:8.1f} elements/s{middle / local:7.2f} x")


if __name__ == "__main__":
    main()
