# SPDX-License-Identifier: Apache-2.0
"""
Checks that src/hvd keeps the shape written in tools/layers.toml.

Includes and namespaces go down the ladder only, implementation folders are included by nobody but their layer and the
engine, the environment is read in one file, and long files say why they are long.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]hvd/([^">]+)[">]')
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(|(?<!/)\benviron\b")
# A namespace in code, such as `controller::` or `hvd::controller::`; not the end of a longer name.
NAMESPACE = re.compile(r"(?<![\w:.>])(?:hvd::)?(\w+)::")
TEXT = re.compile(r'"(?:\\.|[^"\\])*"')
SUFFIXES = {".h", ".hpp", ".cc", ".c", ".inc"}


def load_table(path: pathlib.Path) -> dict:
    """Read the table. The build needs Python 3.11 for its own tools only; the package itself does not come here."""
    import tomllib

    return tomllib.loads(path.read_text())


def check_include(table: dict, layer: str, target: str) -> str | None:
    """Return what is wrong with a file of `layer` that includes "hvd/target", or None."""
    folder = target.split("/")[0] if "/" in target else ""
    if folder == "":  # hvd/hvd.h: the public header
        allowed = table["public_header"]["layers"]
        return None if layer in ("", *allowed) else f"includes the public header, which only {', '.join(allowed)} may"
    if folder not in table["layers"]:
        return f"includes hvd/{target}, whose folder tools/layers.toml does not know"
    if layer not in ("", folder) and folder not in table["layers"][layer]:
        return f"includes hvd/{target}: {layer} may include only {', '.join(table['layers'][layer]) or 'nothing'}"
    inside = next((i for i in table["implementations"]["folders"] if target.startswith(i + "/")), None)
    if inside and layer not in (inside.split("/")[0], "engine"):
        return f"includes hvd/{target}: {inside} is for {inside.split('/')[0]} and engine only"
    return None


def check_namespaces(table: dict, layer: str, code: str) -> list[str]:
    """Return what is wrong with a line of `layer`: a header of one layer can hand out names of a layer below it."""
    if layer == "" or INCLUDE.match(code):
        return []
    named = {name for name in NAMESPACE.findall(TEXT.sub("", code)) if name in table["layers"]}
    allowed = {layer, *table["layers"][layer]}
    return [f"uses {name}::, which {layer} may not" for name in sorted(named - allowed)]


def check_file(table: dict, path: pathlib.Path, source: pathlib.Path) -> list[str]:
    """Return everything wrong with one file."""
    relative = path.relative_to(source)
    layer = relative.parts[0] if len(relative.parts) > 1 else ""
    if layer and layer not in table["layers"]:
        return [f"{relative}: folder {layer} is not in tools/layers.toml"]
    lines = path.read_text().splitlines()
    problems = []
    for number, line in enumerate(lines, start=1):
        found = INCLUDE.match(line)
        problem = check_include(table, layer, found.group(1)) if found else None
        if problem:
            problems.append(f"{relative}:{number}: {problem}")
        code = line.split("//")[0]
        problems += [f"{relative}:{number}: {wrong}" for wrong in check_namespaces(table, layer, code)]
        if GETENV.search(code) and relative.as_posix() not in table["getenv"]["allowed"]:
            allowed = ", ".join(table["getenv"]["allowed"])
            problems.append(f"{relative}:{number}: reads the environment; only {allowed} may")
    limit, reason = table["size"]["lines"], table["size"]["reason"]
    if len(lines) > limit and not any(line.startswith(reason) for line in lines):
        problems.append(f"{relative}: {len(lines)} lines; above {limit} a line '{reason} ...' must say why")
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:1]):
        problems.append(f"{relative}: the first line must be the SPDX tag")
    return problems


def check(source: pathlib.Path, table: dict) -> list[str]:
    """Return everything wrong below `source`, sorted by file."""
    files = sorted(path for path in source.rglob("*") if path.suffix in SUFFIXES)
    return [problem for path in files for problem in check_file(table, path, source)]


def main() -> int:
    """Command line."""
    problems = check(ROOT / "src" / "hvd", load_table(ROOT / "tools" / "layers.toml"))
    for problem in problems:
        print(f"src/hvd/{problem}", file=sys.stderr)
    if problems:
        print(f"check_layers: {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
