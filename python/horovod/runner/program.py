# SPDX-License-Identifier: Apache-2.0
"""Finds horovodrun and runs it, with its output appearing in this process's sys.stdout and sys.stderr."""

from __future__ import annotations

import codecs
import os
import pathlib
import selectors
import shutil
import subprocess
import sys
import sysconfig
from typing import TextIO

NAME = "horovodrun"
# How much of what it says is kept for an exception's text.
_KEPT = 8192


def find_horovodrun() -> str:
    """Return the path of the program that was installed with this package."""
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    for folder in folders:
        path = pathlib.Path(folder) / NAME
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    found = shutil.which(NAME)
    if found is None:
        raise FileNotFoundError(
            f"{NAME} is neither in {' nor in '.join(dict.fromkeys(folders))} nor in PATH: install the hvd package again"
        )
    return found


def run_horovodrun(command: list[str]) -> tuple[int, str]:
    """
    Run it to its end and return its exit code and the last that it wrote to stderr.

    An exception here, such as Ctrl-C or an interrupted notebook cell, ends the job first.
    """
    # A session of its own: a Ctrl-C in the terminal reaches it through here, once.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            said = _show(process)
            return process.wait(), said
        except BaseException:
            _end(process)
            raise


def _show(process: subprocess.Popen) -> str:
    said = ""
    decoders = {}
    with selectors.DefaultSelector() as selector:
        # Looked up now: a notebook has put its own streams in their place.
        streams: list[tuple[object, TextIO]] = [(process.stdout, sys.stdout), (process.stderr, sys.stderr)]
        for pipe, shown in streams:
            decoders[pipe] = codecs.getincrementaldecoder("utf-8")("replace")
            selector.register(pipe, selectors.EVENT_READ, shown)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, 65536)
                text = decoders[key.fileobj].decode(data, final=not data)
                key.data.write(text)
                key.data.flush()
                if key.fileobj is process.stderr:
                    said = (said + text)[-_KEPT:]
                if not data:
                    selector.unregister(key.fileobj)
    return said


def _end(process: subprocess.Popen) -> None:
    # Once asks, twice insists: horovodrun bounds both.
    for _ in range(2):
        process.terminate()
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue
    process.wait()
