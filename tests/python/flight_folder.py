# SPDX-License-Identifier: Apache-2.0
"""Dumps of flight recorders as the library writes them, for jobs that never were."""

import json

from horovod.flight import diagnose, load

SECOND = 10**9
NOW = 5000 * SECOND  # every rank's monotonic clock at its dump
WALL = 1_700_000_000 * SECOND


def op(name, state="sent", ago=60.0, **fields):
    """One operation; it reached each of its states `ago` seconds before the dump."""
    order = ["submitted", "sent", "agreed", "running", "done"]
    reached = order[: order.index(state) + 1] if state in order else ["submitted", state]
    record = {"set": 0, "name": name, "op": "ALLREDUCE", "dtype": "float32", "shape": [10], "bytes": 40}
    record.update({"reduce": "sum", "state": state, "ns": {s: NOW - int(ago * SECOND) for s in reached}})
    record.update(fields)
    return record


class Folder:
    """Writes dumps as the library does."""

    def __init__(self, path, size):
        self.path = path
        self.size = size

    def dump(self, rank, *ops, reason="SIGUSR2", before=0.0, peers=(), sets=(), end=True, **header):
        head = {"flight": 1, "rank": rank, "size": self.size, "generation": 0, "pid": 100 + rank, "host": f"node{rank}"}
        head.update({"boot": f"boot{rank}", "version": "0", "reason": reason, "monotonic_ns": NOW})
        head.update({"wall_ns": WALL - int(before * SECOND), "submitted": len(ops), "kept": len(ops), **header})
        lines = [head, *peers, *sets, *({"n": n, **record} for n, record in enumerate(ops))]
        if end:
            lines.append({"end": True, "skipped": 0})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.path / f"flight.{rank}.json").write_text(text)

    def verdict(self, **options):
        return diagnose(load(self.path), **options)


def blamed(verdict):
    return verdict.cause, verdict.ranks


def peer(rank):
    return {"peer": rank, "host": f"node{rank}", "pid": 100 + rank}
