# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown and JSON, with what a reader needs to judge them: machine, versions, command, spread."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import time
from pathlib import Path

from bars import Bar, size_name
from contenders import KIB, ROOT
from measure import Comparison, Window
from scenarios import Scenario

STARTED = time.monotonic()  # about when the program did
# Two threads of one physical core exchange a cache line in less; other cores of today need 40 to 200 ns.
SAME_CORE_NS = 60
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


def context(scenarios: list[Scenario], command: str) -> dict[str, str]:
    """What the figures depend on besides the code."""
    versions = {c.name: c.version for scenario in scenarios for c in scenario.contenders if c.version}
    missing = {name: reason for scenario in scenarios for name, reason in scenario.missing.items()}
    described = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores, {memory_gib():.0f} GiB",
        "system": f"{system_name()}, Linux {platform.release()}",
        "commit": commit(),
        "command": command,
        "peers": ", ".join(f"{name} {version}" for name, version in versions.items()) or "none",
    }
    if missing:
        described["not measured"] = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    return described


def took() -> float:
    """Seconds since the program started."""
    return round(time.monotonic() - STARTED, 1)


def origin(described: dict[str, str]) -> str:
    """In a line, for below a table."""
    return ", ".join(described[key] for key in ("date", "machine", "system")) + f", commit {described['commit']}."


def write_json(path: Path, described: dict[str, str], bars: list[Bar], **more: object) -> None:
    """What goals.py reads: every benchmark's file has the same first entries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"context": described, "took_s": took(), "bars": [bar_as_json(bar) for bar in bars], **more}
    path.write_text(json.dumps(document, indent=1) + "\n")


def bar_as_json(bar: Bar) -> dict:
    return {**dataclasses.asdict(bar), "passed": bar.passed}


def number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def digits(value: float, unit: str) -> str:
    return f"{value:.3f}" if unit in ("s", "%") and abs(value) < 1 else number(value)


def verdict(bar: Bar) -> str:
    return {None: "not measured", True: "holds", False: "**miss**"}[bar.passed]


def promised(bar: Bar) -> str:
    return f"{'≤' if bar.at_most else '≥'} {bar.limit:g} {bar.unit}"


def bars_table(bars: list[Bar]) -> list[str]:
    lines = ["| what | promised | measured | min .. max | |", "|---|---|---|---|---|"]
    for bar in bars:
        measured, spread = "-", bar.note or "-"
        if bar.values:
            low, middle, high = (digits(v, bar.unit) for v in (min(bar.values), bar.median, max(bar.values)))
            measured = f"{middle} {bar.unit}"
            spread = f"{low} .. {high}" if len(bar.values) > 1 else "one run"
            spread += f" ({bar.note})" if bar.note else ""
        lines.append(f"| {bar.what} | {promised(bar)} | {measured} | {spread} | {verdict(bar)} |")
    return lines


def times_table(comparison: Comparison) -> list[str]:
    sizes = comparison.scenario.sizes
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


def bandwidth_table(comparison: Comparison) -> list[str]:
    large = [size for size in comparison.scenario.sizes if size >= 16 * KIB]
    lines = ["| GB/s of the median | " + " | ".join(map(size_name, large)) + " |", "|---" * (len(large) + 1) + "|"]
    for name in comparison.launches:
        times = {size: comparison.times(name, size) for size in large}
        cells = [number(size / statistics.median(us) / 1e3) if us else "-" for size, us in times.items()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def noise_line(comparisons: list[Comparison]) -> str:
    launches = [launches for comparison in comparisons for launches in comparison.launches.values()]
    shares = [launch.foreign for some in launches for launch in some]
    text = f"Launches per contender: {max((len(some) for some in launches), default=0)}."
    if shares:
        middle, worst = statistics.median(shares), max(shares)
        text += f" Other work on the machine: median {middle:.0%}, at most {worst:.0%} of its cores."
        if middle > 0.2:
            text += " **Too much for these figures to count: run again when the machine is quiet.**"
    return text


def regime_line(comparisons: list[Comparison]) -> str:
    """How near the two cores were to each other, window by window."""
    windows = [window for comparison in comparisons for window in comparison.windows if window.before_ns]
    if not windows:
        return ""
    all_ns = [window.before_ns for window in windows]
    near = sum(ns < SAME_CORE_NS for ns in all_ns)
    moved = sum(not window.steady for window in windows)
    text = f"A cache line from core to core: {min(all_ns):.0f} .. {max(all_ns):.0f} ns, median "
    text += f"{statistics.median(all_ns):.0f}; below {SAME_CORE_NS} ns (two threads of one core?) in {near} of "
    return text + f"{len(windows)} windows, changed by more than a factor of 2 within {moved}."


def scenario_section(comparison: Comparison) -> list[str]:
    """Tables of one scenario, without those that have nothing to compare."""
    scenario = comparison.scenario
    lines = [f"**{scenario.name}** (float32, fresh data):", "", *times_table(comparison), ""]
    if scenario.op == "allreduce" and max(scenario.sizes) >= 16 * KIB:
        lines += [*bandwidth_table(comparison), ""]
    return lines + [f"{name} failed: {reason}" for name, reason in comparison.failures.items()]


def markdown(bars: list[Bar], comparisons: list[Comparison], described: dict[str, str], images: list[str]) -> str:
    lines = [f"- {key}: {f'`{value}`' if key == 'command' else value}" for key, value in described.items()]
    lines += ["", *bars_table(bars), ""]
    for comparison in comparisons:
        lines += scenario_section(comparison)
    lines += [f"![{Path(image).stem.replace('-', ' ')}]({image})" for image in images]
    lines += ["", noise_line(comparisons), regime_line(comparisons)]
    return "\n".join(lines).rstrip() + "\n"


def scenarios_as_json(comparisons: list[Comparison]) -> list[dict]:
    return [
        {
            "name": comparison.scenario.name,
            "op": comparison.scenario.op,
            "ranks": comparison.scenario.ranks,
            "sizes": comparison.scenario.sizes,
            "launches": {
                name: [dataclasses.asdict(launch) for launch in launches]
                for name, launches in comparison.launches.items()
            },
            "missing": comparison.scenario.missing,
            "failures": comparison.failures,
            "windows": [{**dataclasses.asdict(window), "regime": regime(window)} for window in comparison.windows],
        }
        for comparison in comparisons
    ]


def regime(window: Window) -> str:
    if not window.before_ns:
        return "unknown"
    if not window.steady:
        return "moved"
    return "one core" if window.before_ns < SAME_CORE_NS else "two cores"


def write_markdown(path: Path, text: str) -> None:
    """Between the markers where the file has them, else as the whole file."""
    old = path.read_text() if path.exists() else ""
    if BEGIN in old and END in old:
        head, tail = old.split(BEGIN)[0], old.split(END, 1)[1]
        text = f"{head}{BEGIN}\n{text}{END}{tail}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
