# SPDX-License-Identifier: Apache-2.0
"""
Timelines of several ranks as one: ``python -m horovod.timeline merge out.json t.json t.1.json t.2.json``.

In the merged file each tensor is a process and each rank a thread of it, so that one sees side by side who was ready
when. ``python -m horovod.timeline report t.json t.1.json`` says in numbers where the time goes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Iterable

from horovod.timeline_page import as_page
from horovod.timeline_report import Operation, analyze, as_text, operations_of

Event = dict

JOB = 0  # the process of what belongs to no tensor


def read(path: str | os.PathLike) -> list[Event]:
    """Return the events of a timeline file. Raises ValueError for one that is none."""
    try:
        events = json.loads(pathlib.Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no timeline: {error}") from error
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise ValueError(f"{path} is no timeline: not a list of events")
    for number, event in enumerate(events):
        if lacks := _lacks(event):
            raise ValueError(f"{path} is no timeline: event {number} has no {lacks}: {json.dumps(event)[:200]}")
    return events


def _lacks(event: Event) -> str | None:
    """Name what every event of its phase has and this one has not."""
    phase = event.get("ph")
    if not isinstance(phase, str):
        return "phase (ph)"
    if phase not in ("E", "e") and not isinstance(event.get("name"), str):
        return "name"
    if phase == "M":
        return None if isinstance(event.get("args"), dict) else "args"
    ts = event.get("ts")
    return None if isinstance(ts, (int, float)) and not isinstance(ts, bool) else "time (ts)"


def _clock(events: list[Event]) -> dict:
    for event in reversed(events):  # the last one knows what was measured meanwhile
        if event.get("name") == "hvd_clock":
            return event["args"]
    for event in events:
        micros = event.get("args", {}).get("start_time_since_epoch_in_micros")
        if micros is not None:
            return {"wall_base_ns": micros * 1000}
    return {"wall_base_ns": 0}


def starts(clocks: list[dict]) -> list[int]:
    """
    Give each file's start in nanoseconds of one common clock.

    Ranks of one host have one monotonic clock, which is exact; between hosts there are only wall clocks, and what was
    measured of their difference.
    """
    offsets: dict[str, int] = {}  # wall minus monotonic, once per host
    result = []
    for clock in clocks:
        wall = clock["wall_base_ns"] + clock.get("clock_offset_ns", 0)
        boot, base = clock.get("boot"), clock.get("monotonic_base_ns")
        if boot and base is not None:
            wall = base + offsets.setdefault(boot, wall - base)
        result.append(wall)
    return result


def merge(files: Iterable[list[Event]]) -> list[Event]:
    """
    Merge the events of several ranks' files.

    >>> a = [{"ph": "M", "name": "hvd_clock", "pid": 0, "args": {"rank": 0, "wall_base_ns": 5000}},
    ...      {"ph": "X", "name": "work", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 0}]
    >>> b = [{"ph": "M", "name": "hvd_clock", "pid": 0, "args": {"rank": 1, "wall_base_ns": 8000}},
    ...      {"ph": "X", "name": "work", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 1}]
    >>> [(event["tid"], event["ts"]) for event in merge([a, b]) if event["name"] == "work"]
    [(0, 1.0), (1, 4.0)]
    """
    files = list(files)
    clocks = [_clock(events) for events in files]
    begun = starts(clocks)
    first = min(begun, default=0)
    head = {"name": "job", "start_time_since_epoch_in_micros": first // 1000}
    merged: list[Event] = [{"ph": "M", "name": "process_name", "pid": JOB, "args": head}, _order(JOB)]
    ranks = [clock.get("rank", index) for index, clock in enumerate(clocks)]
    # Viewers take thread 0, and the one with its process's number, for the main thread: no rank may have that number.
    tensors = itertools.count(max(ranks, default=0) + 1)
    pids: dict[str, int] = {}
    lanes: set[tuple[int, int]] = set()
    for events, rank, start in zip(files, ranks, begun):
        own: dict[int, int] = {JOB: JOB}  # this file's process numbers in the merged one
        for event in events:
            pid = event.get("pid", JOB)
            if event.get("ph") == "M":
                if event.get("name") == "process_name" and pid != JOB:
                    name = event["args"]["name"]
                    if name not in pids:
                        pids[name] = next(tensors)
                        merged += [{**event, "pid": pids[name]}, _order(pids[name])]
                    own[pid] = pids[name]
                elif event.get("name") == "hvd_clock":
                    merged.append(event)
                continue
            lane = (own.get(pid, JOB), event.get("tid", rank))
            if lane not in lanes:
                lanes.add(lane)
                merged.append(_lane(*lane))
            ts = round(event.get("ts", 0) + (start - first) / 1000, 3)
            merged.append({**event, "ts": ts, "pid": lane[0], "tid": lane[1]})
    return merged


def _order(pid: int) -> Event:
    return {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _lane(pid: int, rank: int) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": rank, "args": {"name": f"rank {rank}"}}


def write(path: str | os.PathLike, events: list[Event]) -> None:
    """Write a timeline, replacing an older one as a whole."""
    there = pathlib.Path(os.path.realpath(path))  # a link stays one
    if there.exists() and not there.is_file():  # a device would be gone
        raise ValueError(f"{path} is no regular file: give the name of a new file, or of one to replace")
    part = pathlib.Path(f"{there}.part")
    with part.open("w") as out:
        out.write("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")
    part.replace(there)


def _check_paths(out: str, inputs: list[str], overwrite: bool) -> None:
    """Raise ValueError where one file is given twice, or a file would be overwritten."""
    seen: dict[str, str] = {}
    for path in inputs:
        other = seen.setdefault(os.path.realpath(path), path)
        if other is not path:
            raise ValueError(f"{path} and {other} are the same file: give every rank's file once")
    if os.path.realpath(out) in seen:
        raise ValueError(f"{out} is also one of the files to read: give the name of another file to write")
    if os.path.isfile(out) and os.path.getsize(out) > 0 and not overwrite:
        raise ValueError(f"{out} exists already: give the name of a new file first, or --overwrite to replace this one")


def _operations(paths: list[str]) -> list[Operation]:
    """Return the operations of all files on one clock. A merged file has its ranks as threads."""
    files = [read(path) for path in paths]
    merged = merge(files) if len(files) > 1 else files[0]
    ranks = sorted({event["tid"] for event in merged if event.get("ph") == "B" and "tid" in event})
    found = []
    for rank in ranks:
        own = [event for event in merged if event.get("ph") == "M" or event.get("tid") == rank]
        found += operations_of(own, rank, 0.0)
    return found


def _report(paths: list[str], page: str | None) -> int:
    report = analyze(_operations(paths))
    print(as_text(report))
    if page is not None:
        _check_paths(page, paths, overwrite=True)
        pathlib.Path(page).write_text(as_page(report, ", ".join(map(os.path.basename, paths))), encoding="utf-8")
        print(f"{page}: the same with pictures, for a browser")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m horovod.timeline", description="Timelines of several ranks.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("merge", help="make one timeline of several ranks' files")
    command.add_argument("out", help="file to write")
    command.add_argument("inputs", nargs="+", metavar="in", help="the ranks' files, and older parts (in.1)")
    command.add_argument("--overwrite", action="store_true", help="replace the file to write if it exists")
    command = commands.add_parser(
        "report", help="say where the time goes: compute, wait and wire, who is last, what is slow"
    )
    command.add_argument("inputs", nargs="+", metavar="file", help="the ranks' files, or a merged one")
    command.add_argument("--html", metavar="FILE", help="also write one page with pictures; it needs no network")
    options = parser.parse_args(arguments)
    try:
        if options.command == "report":
            return _report(options.inputs, options.html)
        _check_paths(options.out, options.inputs, options.overwrite)
        merged = merge(read(path) for path in options.inputs)
        write(options.out, merged)
    except (OSError, ValueError) as error:
        print(f"horovod.timeline: {error}", file=sys.stderr)
        return 2
    print(f"{options.out}: {len(merged)} events of {len(options.inputs)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
