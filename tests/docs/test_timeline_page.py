# SPDX-License-Identifier: Apache-2.0
"""The page of `python -m horovod.timeline report`, as a browser without a network shows it."""

import os
import re
import struct
import subprocess
import zlib

import pytest
from horovod.timeline_page import as_page
from horovod.timeline_report import Operation, analyze

COMPUTE, WAIT, WIRE = (0x4C, 0x9F, 0x70), (0xE0, 0xA0, 0x30), (0x48, 0x78, 0xA8)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Run Chromium on a page of two ranks with ten steps, with more flags."""
    folder = tmp_path_factory.mktemp("page")
    operations = [
        Operation("grad", "ALLREDUCE", rank, 9e3 * i, 9e3 * i + 2e3 * (1 - rank), 9e3 * i + 5e3)
        for i in range(11)
        for rank in range(2)
    ]
    (folder / "report.html").write_text(as_page(analyze(operations), "a job"))

    def show(*flags):
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        command += [
            f"--user-data-dir={folder / 'profile'}",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging",
        ]
        command += [*flags, (folder / "report.html").as_uri()]
        env = {**os.environ, "HOME": str(folder)}
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=True)

    show.folder = folder
    return show


def test_the_browser_finds_all_pictures_and_complains_about_nothing(browser):
    shown = browser("--dump-dom")
    assert shown.stdout.count("<svg ") == 2
    assert shown.stdout.count("<rect ") == 2 * 3 * 10
    assert "<h1>a job</h1>" in shown.stdout
    assert not re.search(r"CONSOLE|ERR_|report\.html:", shown.stderr), shown.stderr


def pixels(png):
    """Return the colors of a PNG of 8 bits per channel."""
    assert png.startswith(b"\x89PNG")
    at, data = 8, b""
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, bits, color = struct.unpack(">IIBB", body[:10])
            assert (bits, color in (2, 6)) == (8, True)
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    each = 3 if color == 2 else 4
    stride, raw, before, found = width * each, zlib.decompress(data), bytearray(width * each), set()
    for row in range(height):
        kind, *values = raw[row * (stride + 1) : (row + 1) * (stride + 1)]
        line = bytearray(values)
        for i in range(stride):
            left, up = (line[i - each] if i >= each else 0), before[i]
            corner = before[i - each] if i >= each else 0
            line[i] = line[i] + (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind] & 255
        found.update(tuple(line[i : i + 3]) for i in range(0, stride, each))
        before = line
    return found


def _paeth(left, up, corner):
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))


def test_the_bars_are_painted(browser):
    browser("--screenshot=page.png", "--window-size=600,400")
    assert {COMPUTE, WAIT, WIRE} <= pixels((browser.folder / "page.png").read_bytes())
