# SPDX-License-Identifier: Apache-2.0
"""
Says which lines of programs were written for older TensorFlow and Keras, and what to write today. Runs none of them.

    python -m horovod.compat train.py            each line with what becomes of it
    python -m horovod.compat --diff train.py     a patch
    python -m horovod.compat --json train.py     for programs

Exit code 0: everything runs, by bridges where they are needed. 1: something cannot be bridged. 2: a file cannot be
read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from horovod.compat import patching
from horovod.compat.finding import Finding, Kind
from horovod.compat.reading import findings_in
from horovod.compat.source import lines_of, to_utf8


def main(words: Sequence[str] | None = None) -> int:
    """
    Command line.

    >>> from horovod.compat.__main__ import main
    >>> main([])
    Traceback (most recent call last):
        ...
    SystemExit: 2
    """
    parser = argparse.ArgumentParser(
        prog="python -m horovod.compat",
        description="Lists the lines of programs that were written for older TensorFlow and Keras; runs nothing.",
        epilog="Exit code 1: something cannot be bridged; 2: a file cannot be read.",
    )
    parser.add_argument("scripts", nargs="+", metavar="SCRIPT")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--diff", action="store_true", help="print a patch that writes today's lines")
    shown.add_argument("--json", action="store_true", help="print everything as one line of JSON")
    arguments = parser.parse_args(words)
    code = 0
    everything = []
    for script in arguments.scripts:
        try:
            with open(script, "rb") as file:
                raw = file.read()
            source = to_utf8(raw)
            found = findings_in(source)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            print(f"{script} cannot be read: {_reason(error)}", file=sys.stderr)
            code = 2
            continue
        if any(one.kind is Kind.CANNOT for one in found):
            code = max(code, 1)
        if arguments.diff:
            # A patch has the encoding of its file, which is not that of the terminal.
            sys.stdout.buffer.write(patching.diff(script, raw, found))
        elif arguments.json:
            everything += _as_json(script, source, found)
        else:
            _print(script, source, found)
    if arguments.json:
        print(json.dumps({"findings": everything, "exit_code": code}))
    return code


# What Python 3 says of lines that only Python 2 takes.
_OF_PYTHON_2 = (
    "Missing parentheses in call to",
    "multiple exception types must be",
    "leading zeros in decimal",
    "'<>'",
)


def _reason(error: BaseException) -> str:
    if isinstance(error, (RecursionError, MemoryError)):
        return "its expressions are nested too deeply"
    if not isinstance(error, SyntaxError):
        return str(error)
    at = f"line {error.lineno}: " if error.lineno else ""
    old = any(text in error.msg for text in _OF_PYTHON_2)
    return f"{at}{error.msg}{'; programs for Python 2 are translated by 2to3 first' if old else ''}"


def _as_json(script: str, source: bytes, found: list[Finding]) -> list[dict]:
    today = patching.lines_today(source, found)
    return [
        {
            "file": script,
            "line": one.line,
            "kind": one.kind.name.lower(),
            "found": one.found,
            "today": one.today,
            **({"write": today[one.line]} if one.edits and one.line in today else {}),
        }
        for one in found
    ]


def _print(script: str, source: bytes, found: list[Finding]) -> None:
    if not found:
        print(f"{script}: nothing that was written for older releases")
        return
    lines = lines_of(source)
    today = patching.lines_today(source, found)
    for number in sorted({one.line for one in found}):
        here = [one for one in found if one.line == number]
        print(f"{script}:{number}: {lines[number - 1].strip()}")
        for kind in Kind:
            said = dict.fromkeys(f"{one.found} -> {one.today}" for one in here if one.kind is kind)
            if said:
                print(f"    {kind.value}: {'; '.join(said)}")
        for line in today.get(number, "").splitlines():
            print(f"    write: {line}")
    counts = [(sum(one.kind is kind for one in found), kind.value) for kind in Kind]
    print(f"{script}: {', '.join(f'{count} {text}' for count, text in counts if count)}")


if __name__ == "__main__":
    sys.exit(main())
