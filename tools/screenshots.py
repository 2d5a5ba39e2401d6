# SPDX-License-Identifier: Apache-2.0
"""
Takes screenshots of pages of the website with headless Chromium.

    tools/setup.sh packages tools/debian-packages-screenshots.txt
    make docs && .venv/bin/python tools/screenshots.py FOLDER [PAGE...]

A page may have a search: index.html?q=gpu shows what the website finds.
"""

from __future__ import annotations

import functools
import http.server
import pathlib
import shutil
import subprocess
import sys
import threading
import time

SITE = pathlib.Path(__file__).resolve().parent.parent / "build" / "site"
INSTALL = "tools/setup.sh packages tools/debian-packages-screenshots.txt"
SECONDS_TO_SEARCH = 5
PAGES = [
    "index.html",
    "install.html",
    "quickstart/keras.html",
    "guides/migrating.html",
    "operate/troubleshooting.html",
    "reference/horovodrun.html",
    "reference/environment.html",
    "reference/api/horovod.numpy.html",
    "reference/api/c.html",
    "index.html?q=start-timeout",
]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files. A picture in every page comes late: Chromium shoots when all is loaded, even amid a search."""

    def do_GET(self) -> None:
        """Answer a request; a page gets the picture."""
        if self.path == "/late":
            time.sleep(SECONDS_TO_SEARCH)
            self.send_error(404)
        elif self.path.partition("?")[0].endswith(".html"):
            page = pathlib.Path(self.translate_path(self.path)).read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.replace(b"</body>", b'<img src="/late" hidden></body>'))
        else:
            super().do_GET()

    def log_message(self, *words) -> None:
        """Print no line for a request."""


def main(words: list[str]) -> int:
    """Write a picture of each page into the folder."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not words or chromium is None or not SITE.exists():
        print(__doc__ if chromium else f"screenshots: install Chromium first: {INSTALL}", file=sys.stderr)
        return 2
    folder = pathlib.Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,900"]
    for page in words[1:] or PAGES:
        name = "".join(letter if letter.isalnum() else "-" for letter in page)
        picture = folder / f"{name}.png"
        url = f"http://127.0.0.1:{server.server_port}/{page}"
        command = [chromium, *options, f"--screenshot={picture}", url]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        print(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
