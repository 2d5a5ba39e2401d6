# SPDX-License-Identifier: Apache-2.0
"""The command ``python -m horovod.flight``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import time

from horovod.flight.blame import Verdict, diagnose
from horovod.flight.dumps import Dump, read
from horovod.flight.job import Probe, ranks_text


def local_probe(dumps: dict[int, Dump]) -> Probe:
    """Look at processes of the hosts that are this machine."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    here = {dump.host for dump in dumps.values() if boot and dump.boot == boot}
    newest = max((dump.wall_ns for dump in dumps.values()), default=0) / 1e9

    def probe(host: str, pid: int) -> str | None:
        if host not in here:
            return None
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
        except OSError:
            return "dead"
        state, started = fields[0], int(fields[19]) / os.sysconf("SC_CLK_TCK")
        if time.time() - uptime + started > newest + 1:  # Another process has the number now.
            return "dead"
        return {"T": "stopped", "t": "stopped", "Z": "dead", "X": "dead"}.get(state, "alive")

    return probe


def report(verdict: Verdict, dumps: dict[int, Dump], unreadable: dict[str, str], size: int) -> str:
    """Write the verdict as a block of a few lines."""
    lines = []
    if verdict.operation:
        line = f"Stuck: {verdict.operation}" if verdict.waited_s else f"Failed: {verdict.operation}"
        if verdict.waited_s:
            line += f", for {verdict.waited_s:.0f} s"
        lines.append(line)
    if verdict.ranks:
        lines.append(f"At fault: {ranks_text(verdict.ranks)}: {verdict.what}.")
    else:
        lines.append(f"{verdict.what[0].upper()}{verdict.what[1:]}.")
    if verdict.waiting:
        lines.append(f"Waiting: {ranks_text(verdict.waiting)}")
    lines += [f"  {line}" for line in verdict.details]
    if verdict.advice:
        lines.append(f"Next: {verdict.advice}.")
    lines.append(f"From the dumps of {len(dumps)} of {size} ranks.")
    lines += [
        f"Truncated: the dump of rank {rank} has {len(dump.ops)} of {dump.kept} operations."
        for rank, dump in dumps.items()
        if not dump.whole
    ]
    lines += [f"Not readable: {name}: {why}." for name, why in unreadable.items()]
    return "\n".join(lines)


def nothing(folder: str, unreadable: dict[str, str]) -> str:
    """Say why there is nothing to compare."""
    if not unreadable:
        return f"no dumps (flight.RANK.json) in {folder}"
    reasons = "; ".join(f"{name}: {why}" for name, why in list(unreadable.items())[:4])
    return f"none of the {len(unreadable)} dumps in {folder} can be read: {reasons}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Exit status: 0 with a verdict, 2 if there is nothing to read."""
    parser = argparse.ArgumentParser(prog="python -m horovod.flight", description="Explain a hang from ranks' dumps.")
    parser.add_argument("folder", help="where the ranks dumped: HOROVOD_FLIGHT_DIR")
    parser.add_argument("--json", action="store_true", help="write the verdict as JSON")
    options = parser.parse_args(arguments)
    try:
        dumps, unreadable = read(options.folder)
    except OSError as error:
        print(f"horovod.flight: cannot list {options.folder}: {error.strerror}", file=sys.stderr)
        return 2
    if not dumps:
        print(f"horovod.flight: {nothing(options.folder, unreadable)}", file=sys.stderr)
        return 2
    size = max(dump.size for dump in dumps.values())
    verdict = diagnose(dumps, probe=local_probe(dumps))
    if options.json:
        truncated = [rank for rank, dump in dumps.items() if not dump.whole]
        files = {"dumped": sorted(dumps), "truncated": truncated, "unreadable": unreadable}
        print(json.dumps({**dataclasses.asdict(verdict), "size": size, **files}))
    else:
        print(report(verdict, dumps, unreadable, size))
    return 0


if __name__ == "__main__":
    sys.exit(main())
