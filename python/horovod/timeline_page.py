# SPDX-License-Identifier: Apache-2.0
"""The report of timelines as one page of HTML: it holds its pictures, loads nothing, and runs no script."""

from __future__ import annotations

import html
import statistics

from horovod.timeline_report import Report, as_text

_COLORS = {"compute": "#4c9f70", "wait": "#e0a030", "wire": "#4878a8"}
_MOST_BARS = 200
_WIDTH, _HEIGHT = 900, 140
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } svg { max-width: 100%; background: #f7f7f7 }
pre { background: #f7f7f7; padding: 1rem; overflow-x: auto } .key { display: inline-block; width: 1em; height: 1em }
"""


def as_page(report: Report, title: str = "timeline") -> str:
    """
    Return a page that any browser shows without a network.

    >>> from horovod.timeline_report import Operation, analyze
    >>> page = as_page(analyze([Operation("g", "ALLREDUCE", 0, 9.0 * i, 9.0 * i + 2, 9.0 * i + 5) for i in range(3)]))
    >>> page.startswith("<!doctype html>"), "<script" in page
    (True, False)
    """
    key = " ".join(f'<span class="key" style="background:{color}"></span> {part}' for part, color in _COLORS.items())
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<h2>Where the time goes</h2><p>{key}</p>",
        *(_steps_of(report, rank) for rank in report.steps if report.steps[rank]),
        _shares(report),
        _last(report),
        _slowest(report),
        f"<h2>As text</h2><pre>{html.escape(as_text(report))}</pre>",
    ]
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _steps_of(report: Report, rank: int) -> str:
    """Return a picture with a bar for each step; of many steps a bar stands for several, with their means."""
    steps = report.steps[rank]
    each = -(-len(steps) // _MOST_BARS)
    groups = [steps[i : i + each] for i in range(0, len(steps), each)]
    means = [{part: statistics.fmean(getattr(step, part) for step in group) for part in _COLORS} for group in groups]
    tallest = max(sum(mean.values()) for mean in means) or 1.0
    width = _WIDTH / len(means)
    bars = []
    for place, mean in enumerate(means):
        top = float(_HEIGHT)
        for part, color in _COLORS.items():
            height = mean[part] / tallest * _HEIGHT
            top -= height
            bars.append(
                f'<rect x="{place * width:.2f}" y="{top:.2f}" width="{max(width - 1, 0.5):.2f}" height="{height:.2f}" '
                f'fill="{color}"><title>step {place * each}: {part} {mean[part] / 1e3:.2f} ms</title></rect>'
            )
    caption = f"rank {rank}: {len(steps)} steps, the longest bar is {tallest / 1e3:.1f} ms"
    return f'<p>{caption}</p><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(bars)}</svg>'


def _shares(report: Report) -> str:
    rows = [["rank", *_COLORS]]
    for rank in report.steps:
        rows.append([str(rank), *(f"{share:.1%}" for share in report.mean_shares(rank))])
    return _table(rows)


def _last(report: Report) -> str:
    if not report.last:
        return "<h2>Who was last</h2><p>Give the timelines of several ranks to see which one the others wait for.</p>"
    total = sum(report.last.values())
    rows = [["rank", "times last", "share", "ms after the one before"]]
    for rank, count in report.last.most_common():
        rows.append([str(rank), str(count), f"{count / total:.0%}", f"{report.late[rank] / 1e3:.2f}"])
    return f"<h2>Who was last</h2>{_table(rows)}"


def _slowest(report: Report) -> str:
    rows = [["operation", "wait ms", "wire ms", "runs", "data"]]
    for one in report.slowest:
        rows.append([one.name, f"{one.wait / 1e3:.3f}", f"{one.wire / 1e3:.3f}", str(one.count), one.detail])
    return f"<h2>Slowest operations</h2>{_table(rows)}"


def _table(rows: list[list[str]]) -> str:
    head, *body = ([html.escape(cell) for cell in row] for row in rows)
    lines = ["<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body]
    return "<table>" + "".join(lines) + "</table>"
