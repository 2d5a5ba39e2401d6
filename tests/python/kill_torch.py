# SPDX-License-Identifier: Apache-2.0
"""
Kills a rank at a random moment of training with DistributedDataParallel over backend "hvd", again and again.

The other ranks must raise a RuntimeError that names the rank, and must not crash.

    python tests/python/kill_torch.py --kills 100
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
import tempfile

import spawn

RANK = """
import os, signal, sys, threading, time
import torch
import torch.distributed as dist
import horovod.torch

size, victim, delay, folder = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("hvd", init_method=f"file://{folder}", rank=int(os.environ["HOROVOD_RANK"]), world_size=size)
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def kill():
    print("KILLED", time.monotonic(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

try:
    for step in range(10**6):
        if rank == victim and step == 3:
            threading.Timer(delay, kill).start()
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
except RuntimeError as error:
    print("RAISED", time.monotonic(), str(error).splitlines()[0], flush=True)
    dist.destroy_process_group()
"""


def once(program: str, framework: str, ranks: int, victim: int, delay: float) -> list[float]:
    """Kill one rank; return the seconds after which each of the others raised."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", program, str(ranks), str(victim), str(delay), f"{folder}/store"]
        results = spawn.spawn(words, ranks, timeout=60, preloaded=framework)
    report = "\n".join(map(spawn.describe, results))
    killed = float(re.search(r"KILLED ([\d.]+)", results[victim].output)[1])
    seconds = []
    for result in results:
        if result.rank != victim:
            raised = re.search(rf"RAISED ([\d.]+) .*rank {victim}\b", result.output)
            assert raised, report
            assert result.returncode == 0, report
            seconds.append(float(raised[1]) - killed)
    return seconds


def main(description: str, program: str, framework: str) -> None:
    """Command line. `program` is one rank; `framework` is imported already when it begins."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    choose = random.Random(options.seed)
    seconds: list[float] = []
    for _ in range(options.kills):
        ranks = choose.choice([2, 3])
        seconds += once(program, framework, ranks, choose.randrange(ranks), choose.uniform(0, 0.05))
    seconds.sort()
    marks = (statistics.median(seconds), seconds[len(seconds) * 95 // 100], seconds[-1])
    times = ", ".join(f"{1000 * one:.1f}" for one in marks)
    print(f"{options.kills} kills, {len(seconds)} survivors raised and none crashed; ms: {times} (median, p95, most)")


if __name__ == "__main__":
    main(__doc__, RANK, "torch")
