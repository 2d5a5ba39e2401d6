# SPDX-License-Identifier: Apache-2.0
"""
One rank of torch_bench.py: allreduces and training steps, of horovod.torch and of torch.distributed over Gloo.

The two libraries take turns, in rounds of a few calls, so that both see the same load. Rank 0 prints the result.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Callable

import horovod.torch as hvd
import torch
import torch.distributed as dist

SIZES = {"10 floats": 10, "64 KiB": 16384, "4 MiB": 1 << 20}


def in_turns(variants: dict[str, Callable[[], None]], calls: int, seconds: float) -> dict[str, list[list[float]]]:
    """Return by variant the times in microseconds of each round's calls."""
    times: dict[str, list[list[float]]] = {name: [] for name in variants}
    for call in variants.values():
        for _ in range(3):
            call()
    begin = time.perf_counter()
    go_on = True
    while go_on:
        for name, call in variants.items():
            hvd.barrier()
            found = []
            for _ in range(calls):
                start = time.perf_counter_ns()
                call()
                found.append((time.perf_counter_ns() - start) / 1000)
            times[name].append(found)
        go_on = bool(hvd.broadcast_object(time.perf_counter() - begin < seconds, name="go on"))
    return times


def summary(rounds: list[list[float]]) -> dict[str, float]:
    """Return the best round's median, the median of all calls, and what 5 % and 10 % of them are below."""
    every = sorted(one for found in rounds for one in found)
    return {
        "best": min(map(statistics.median, rounds)),
        "median": statistics.median(every),
        "p5": every[len(every) // 20],
        "p10": every[len(every) // 10],
    }


def calls(seconds: float) -> dict:
    """Allreduces of each size, one after the other."""
    results = {}
    group = dist.new_group(backend="hvd")
    for label, elements in SIZES.items():
        heap, arena = torch.ones(elements), hvd.empty(elements).fill_(1)
        result = {
            "Gloo": lambda heap=heap: dist.all_reduce(heap),
            "in place, named, arena": lambda arena=arena, label=label: hvd.allreduce_(arena, name=f"a {label}"),
            "in place, named, heap": lambda heap=heap, label=label: hvd.allreduce_(heap, name=f"h {label}"),
            "new tensor, named, heap": lambda heap=heap, label=label: hvd.allreduce(heap, name=f"n {label}"),
            "in place, unnamed, heap": lambda heap=heap: hvd.allreduce_(heap),
            "backend hvd": lambda heap=heap: dist.all_reduce(heap, group=group),
        }
        found = in_turns(result, 20 if elements > 1 << 16 else 100, seconds)
        results[label] = {name: summary(rounds) for name, rounds in found.items()}
    return results


def models() -> dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.Tensor]]]:
    """Models by name, and what makes a batch for each."""
    linear, relu, conv = torch.nn.Linear, torch.nn.ReLU, torch.nn.Conv2d

    def large() -> torch.nn.Module:
        return torch.nn.Sequential(*[linear(1024, 1024, bias=False) for _ in range(16)])

    def small() -> torch.nn.Module:
        return torch.nn.Sequential(linear(784, 1024), relu(), linear(1024, 1024), relu(), linear(1024, 10))

    def convolutions() -> torch.nn.Module:
        layers = [
            conv(3, 64, 3),
            relu(),
            conv(64, 128, 3),
            relu(),
            conv(128, 128, 3, stride=2),
            relu(),
            conv(128, 256, 3),
        ]
        pool = [relu(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), linear(4096, 128), linear(128, 10)]
        return torch.nn.Sequential(*layers, *pool)

    def tiny() -> torch.nn.Module:
        return torch.nn.Sequential(*[linear(64, 64) for _ in range(61)])

    return {
        "MLP, 64 MiB": (large, lambda: torch.randn(8, 1024)),
        "MLP, 7.5 MB": (small, lambda: torch.randn(32, 784)),
        "CNN": (convolutions, lambda: torch.randn(4, 3, 24, 24)),
        "122 tensors, 1 MB": (tiny, lambda: torch.randn(8, 64)),
    }


def step_of(make: Callable[[], torch.nn.Module], batch: torch.Tensor, kind: str) -> Callable[[], None]:
    """Return a training step."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    called = torch.nn.parallel.DistributedDataParallel(model) if kind == "DDP over Gloo" else model
    if kind == "horovod.torch":
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

    def step() -> None:
        optimizer.zero_grad()
        called(batch).square().mean().backward()
        optimizer.step()

    return step


def steps(seconds: float) -> dict:
    """Training steps of each model."""
    results = {}
    for label, (make, batch) in models().items():
        rows = batch()
        kinds = ("alone", "DDP over Gloo", "horovod.torch")
        found = in_turns({kind: step_of(make, rows, kind) for kind in kinds}, 5, seconds)
        results[label] = {name: summary(rounds) for name, rounds in found.items()}
    return results


def main() -> None:
    """Measure what the arguments say: calls or steps, and for how many seconds each line."""
    torch.set_num_threads(1)
    hvd.init()
    store = f"file://{os.environ['HVD_BENCH_STORE']}"
    dist.init_process_group("gloo", init_method=store, rank=hvd.rank(), world_size=hvd.size())
    result = {"calls": calls, "steps": steps}[sys.argv[1]](float(sys.argv[2]))
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
