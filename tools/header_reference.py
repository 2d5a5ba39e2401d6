# SPDX-License-Identifier: Apache-2.0
"""Makes pages of reference from the C and C++ headers: doxygen reads them, this writes what it found as Markdown."""

from __future__ import annotations

import functools
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
XML = ROOT / "build" / "doxygen" / "xml"

# The headers have plain comments. To doxygen the same comments are shown as its own, those behind code as belonging to
# what stands before them.
_C = (r"s#^( *)/\* ?$#\1/**#; s#^( *)/\* #\1/** #; s#([;,{]) +/\* #\1 /**< #",)
_CPP = (r"s#^( *)// ?#\1/// #; s#([;,{}]) +// #\1 ///< #",)
_DOXYFILE = f"""
INPUT = include/hvd
FILE_PATTERNS = *.h *.hpp
RECURSIVE = YES
EXTRACT_ALL = YES
EXCLUDE_SYMBOLS = hvd::detail* detail*
EXTENSION_MAPPING = h=C++ hpp=C++
FILTER_PATTERNS = "*.h=sed -E '{_C[0]}'" "*.hpp=sed -E '{_CPP[0]}'"
PREDEFINED = HVD_API= __cplusplus=202002
MACRO_EXPANSION = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
OUTPUT_DIRECTORY = build/doxygen
QUIET = YES
WARNINGS = NO
"""


@functools.cache
def _run_doxygen() -> None:
    (ROOT / "build" / "doxygen").mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["doxygen", "-"], input=_DOXYFILE, text=True, cwd=ROOT, check=True, timeout=120)
    except FileNotFoundError:
        sys.exit("the website needs doxygen: apt-get install doxygen")


def _text(node: ElementTree.Element | None) -> str:
    return "" if node is None else re.sub(r"\s+", " ", "".join(node.itertext())).strip()


def _prose(node: ElementTree.Element | None, examples: list[str]) -> str:
    """Return the words of a comment, with what Markdown would read escaped; its code goes to `examples`."""
    if node is None:
        return ""
    if node.tag in ("programlisting", "verbatim"):
        for space in node.iter("sp"):
            space.text = " "
        lines = ["".join(line.itertext()) for line in node.iter("codeline")] or [node.text or ""]
        examples.append("\n".join(lines).replace("///< ", "// ").replace("\u200d", ""))
        return " "
    words = re.sub(r"([*_<>\[\]`#|])", r"\\\1", node.text or "")
    for child in node:
        words += _prose(child, examples) + re.sub(r"([*_<>\[\]`#|])", r"\\\1", child.tail or "")
    return words


def _comment(member: ElementTree.Element, with_examples: bool = False) -> str:
    """Return all that was said about a thing."""
    examples: list[str] = []
    words = " ".join(_prose(member.find(f"{kind}description"), examples) for kind in ("brief", "detailed"))
    words = re.sub(r"^- \w[\w ]* -{9,} ", "", re.sub(r"\s+", " ", words).strip())  # without the line over a section
    blocks = [words]
    if with_examples:
        blocks += [f"```cpp\n{example}\n```" for example in examples]
    return "\n\n".join(filter(None, blocks))


def _declaration(member: ElementTree.Element) -> str:
    kind = member.get("kind")
    if kind == "enum":
        values = ", ".join(
            f"{_text(v.find('name'))} {_text(v.find('initializer'))}".strip() for v in member.iter("enumvalue")
        )
        return "enum {\n" + "".join(f"  {value.strip()},\n" for value in values) + "};"
    if kind == "define":
        return f"#define {_text(member.find('name'))}"
    template = ", ".join(_text(parameter) for parameter in member.findall("templateparamlist/param"))
    text = f"{_text(member.find('definition'))}{_text(member.find('argsstring'))}".replace("hvd::", "")
    return f"template <{template}> {text};" if template else f"{text};"


def _section(level: int, title: str, member: ElementTree.Element, declaration: str) -> str:
    comment = _comment(member, with_examples=True)
    fence = "```"
    return f"{'#' * level} {title}\n\n{fence}cpp\n{declaration}\n{fence}\n\n{comment}\n"


def _fields(compound: ElementTree.Element) -> str:
    rows = []
    name = _text(compound.find("compoundname")).removeprefix("hvd::")
    for member in compound.iter("memberdef"):
        if member.get("prot") != "public" or (not _comment(member) and member.get("kind") != "variable"):
            continue
        declaration = _declaration(member).replace("|", "\\|").replace(f"{name}::", "")
        rows.append(f"| `{declaration}` | {_comment(member)} |\n")
    return "| member | meaning |\n|---|---|\n" + "".join(rows) if rows else ""


def _compounds() -> list[ElementTree.Element]:
    index = ElementTree.parse(XML / "index.xml").getroot()
    return [ElementTree.parse(XML / f"{entry.get('refid')}.xml").find("compounddef") for entry in index]


def page(header: str) -> str:
    """Return the reference of hvd.h, or of hvd.hpp and the headers that it includes."""
    _run_doxygen()
    is_c = header.endswith(".h")
    blocks = [f"# {'C' if is_c else 'C++'}: {pathlib.Path(header).name}\n", f"Made from the comments of {header}.\n"]
    functions: dict[str, list[ElementTree.Element]] = {}
    for compound in _compounds():
        place = compound.find("location").get("file", "")
        if place.endswith(".h") != is_c and compound.get("kind") != "namespace":
            continue
        if compound.get("kind") in ("struct", "class"):
            name = _text(compound.find("compoundname"))
            blocks.append(
                f"## {name.removeprefix('hvd::')}\n\n{_comment(compound, with_examples=True)}\n\n{_fields(compound)}"
            )
        elif compound.get("kind") == ("file" if is_c else "namespace"):
            for member in compound.iter("memberdef"):
                if member.find("location").get("file", "").endswith(".h") == is_c:
                    functions.setdefault(_text(member.find("name")), []).append(member)
    for name, members in functions.items():
        if not name.startswith("@") and name != "HVD_HVD_H_" and any(_comment(member) for member in members):
            declaration = "\n".join(_declaration(member) for member in members)
            said = max(members, key=lambda member: len(_comment(member)))
            blocks.append(_section(2, name, said, declaration))
        elif members[0].get("kind") == "enum":
            for member in members:
                first = _text(member.find("enumvalue/name"))
                blocks.append(_section(2, f"{first} and others", member, _declaration(member)))
    return "\n".join(blocks)
