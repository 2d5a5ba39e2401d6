# SPDX-License-Identifier: Apache-2.0
"""
Writes docs/reference/horovodrun.md from the table of flags that horovodrun itself reads.

`--check` only says whether the file is current.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import textwrap

from horovod.runner.program import find_horovodrun

WIDTH = 120
TARGET = pathlib.Path(__file__).resolve().parent.parent / "docs" / "reference" / "horovodrun.md"
HEADER = """# horovodrun

Flags, keys of the config file and exit codes. This file is made by `make docs` from src/hvd/launch/cli/flag_table.cc. A
number in parentheses is the default. A flag that sets a variable has that variable's default:
[environment.md](environment.md).

```
horovodrun -np N [flags] COMMAND...
horovodrun doctor [-np N] [-H HOSTS]
```
"""
EXIT_CODES = """
## Exit codes

| exit code | meaning |
|---|---|
| 0 | all ranks ended well |
| n | that of the rank that failed first; of the first that noticed, if that rank hung, or ended well too early |
| 128+n | that rank was ended by signal n, or horovodrun was |
| 2 | wrong usage: nothing was started |
| 121, 122, 123, 124 | a host cannot be reached, cannot run the ranks, was lost, did not come in time |
| 125 | horovodrun itself failed, or could not write its stdout |
| 126, 127 | the command may not, or cannot, be executed, or was not found |

[Across hosts](../guides/launching.md#across-hosts) says more of the codes from 121 to 124.
"""


def _entry(flag: dict) -> str:
    """Return a flag under a heading of its own, which searches and links find."""
    names = sorted(flag["names"].split(), key=lambda name: (not name.startswith("--"), -len(name)))
    said = [flag["help"] or ""]
    if flag["state"] == "refused":
        said = [f"Refused: {flag['why']}."]
    elif flag["state"] == "no effect":
        said = [f"No effect: {flag['why']}."]
    if flag["choices"]:
        said.append(f"One of {flag['choices'].replace(' ', ', ')}.")
    if flag["key"]:
        said.append(f"In the config file: `{flag['key']}`.")
    if flag["variable"]:
        said.append(f"Sets `{flag['variable']}`.")
    if names[1:]:
        said.append(f"Also {', '.join(f'`{name}`' for name in names[1:])}.")
    value = f" {flag['value']}" if flag["value"] else ""
    words = textwrap.fill(" ".join(filter(None, said)), WIDTH, break_long_words=False, break_on_hyphens=False)
    return f"### `{names[0]}{value}`\n\n{words}\n\n"


def text() -> str:
    """Return what the file must hold."""
    said = subprocess.run([find_horovodrun(), "--help", "--json"], capture_output=True, text=True, check=True).stdout
    page = HEADER
    for section in json.loads(said):
        # Flags that only programs give are in the table without a help text.
        shown = [one for one in section["flags"] if one["names"] and (one["help"] or one["why"])]
        if shown:
            page += f"\n## {section['title']}\n\n" + "".join(map(_entry, shown)).rstrip("\n") + "\n"
    return page + EXIT_CODES


def main() -> int:
    """Command line."""
    if "--check" in sys.argv[1:]:
        current = TARGET.exists() and TARGET.read_text() == text()
        if not current:
            print(f"{TARGET} is out of date: run make docs", file=sys.stderr)
        return 0 if current else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
