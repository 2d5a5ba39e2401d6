# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown and JSON, with what a reader needs to judge them: machine, versions, command, spread."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import re
import statistics
import subprocess
from pathlib import Path

from bars import Bar, size_name
from contenders import KIB, ROOT, Contender
from measure import Comparison

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found.group(1).strip() if found else platform.machine()


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def system_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, AttributeError, KeyError):
        return platform.system()


def commit() -> str:
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def context(contenders: list[Contender], missing: dict[str, str], command: str) -> dict[str, str]:
    """What the figures depend on besides the code."""
    described = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores, {memory_gib():.0f} GiB",
        "system": f"{system_name()}, Linux {platform.release()}",
        "commit": commit(),
        "command": command,
        "peers": ", ".join(f"{c.name} {c.version}" for c in contenders if c.version) or "none",
    }
    if missing:
        described["not measured"] = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    return described


def number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def digits(value: float, unit: str) -> str:
    return f"{value:.3f}" if unit in ("s", "%") else number(value)


def verdict(bar: Bar) -> str:
    return {None: "not measured", True: "pass", False: "**miss**"}[bar.passed]


def bars_table(bars: list[Bar]) -> list[str]:
    lines = ["| what | promised | measured | min .. max | |", "|---|---|---|---|---|"]
    for bar in bars:
        sign = "≤" if bar.at_most else "≥"
        promised = f"{sign} {bar.limit:g} {bar.unit}"
        measured, spread = "-", bar.note or "-"
        if bar.values:
            low, middle, high = (digits(v, bar.unit) for v in (min(bar.values), bar.median, max(bar.values)))
            measured = f"{middle} {bar.unit}"
            spread = f"{low} .. {high}" if len(bar.values) > 1 else "one run"
            spread += f" ({bar.note})" if bar.note else ""
        lines.append(f"| {bar.what} | {promised} | {measured} | {spread} | {verdict(bar)} |")
    return lines


def times_table(comparison: Comparison, sizes: list[int]) -> list[str]:
    lines = ["| µs: median (min .. max of launches) | " + " | ".join(map(size_name, sizes)) + " |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for name in comparison.launches:
        cells = []
        for size in sizes:
            times = comparison.times(name, size)
            median = number(statistics.median(times)) if times else "-"
            cells.append(f"{median} ({number(min(times))} .. {number(max(times))})" if times else "-")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def bandwidth_table(comparison: Comparison, sizes: list[int]) -> list[str]:
    large = [size for size in sizes if size >= 16 * KIB]
    lines = ["| GB/s of the median | " + " | ".join(map(size_name, large)) + " |", "|---" * (len(large) + 1) + "|"]
    for name in comparison.launches:
        times = {size: comparison.times(name, size) for size in large}
        cells = [number(size / statistics.median(us) / 1e3) if us else "-" for size, us in times.items()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def noise_line(comparison: Comparison) -> str:
    shares = [launch.foreign for launches in comparison.launches.values() for launch in launches]
    text = f"Launches per contender: {max((len(v) for v in comparison.launches.values()), default=0)}."
    if shares:
        middle, worst = statistics.median(shares), max(shares)
        text += f" Other work on the machine: median {middle:.0%}, at most {worst:.0%} of its cores."
        if middle > 0.2:
            text += " **Too much for these figures to count: run again when the machine is quiet.**"
    if comparison.line_latency_ns:
        low, high = min(comparison.line_latency_ns), max(comparison.line_latency_ns)
        text += f" A cache line from core to core: {low:.0f} .. {high:.0f} ns."
    return text


def markdown(bars: list[Bar], comparison: Comparison, sizes: list[int], described: dict[str, str], ranks: int) -> str:
    lines = [f"- {key}: {f'`{value}`' if key == 'command' else value}" for key, value in described.items()]
    lines += ["", *bars_table(bars), "", f"float32 allreduce, sum, in place, {ranks} ranks, fresh data:", ""]
    lines += [*times_table(comparison, sizes), "", *bandwidth_table(comparison, sizes), "", noise_line(comparison)]
    lines += [f"{name} failed: {reason}" for name, reason in comparison.failures.items()]
    return "\n".join(lines) + "\n"


def as_json(bars: list[Bar], comparison: Comparison, described: dict[str, str]) -> dict:
    return {
        "context": described,
        "bars": [{**dataclasses.asdict(bar), "passed": bar.passed} for bar in bars],
        "launches": {
            name: [dataclasses.asdict(launch) for launch in launches] for name, launches in comparison.launches.items()
        },
        "failures": comparison.failures,
        "line_latency_ns": comparison.line_latency_ns,
    }


def write_markdown(path: Path, text: str) -> None:
    """Between the markers where the file has them, else as the whole file."""
    old = path.read_text() if path.exists() else ""
    if BEGIN in old and END in old:
        head, tail = old.split(BEGIN)[0], old.split(END, 1)[1]
        text = f"{head}{BEGIN}\n{text}{END}{tail}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
