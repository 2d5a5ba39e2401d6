# SPDX-License-Identifier: Apache-2.0
"""
Hooks of MkDocs for the website, called by mkdocs.yml.

The pages of docs/ stay as they can be read without the website. So the navigation comes from docs/README.md, links to
files outside of docs/ lead to pages that show these files, and the reference of Python, C and C++ is made from
docstrings and headers.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import check_links  # noqa: E402
import header_reference  # noqa: E402

# Modules of the Python reference.
MODULES = [
    "horovod",
    "horovod.tensorflow",
    "horovod.tensorflow.elastic",
    "horovod.tensorflow.keras",
    "horovod.tensorflow.keras.elastic",
    "horovod.tensorflow.strategy",
    "horovod.tensorflow.estimator",
    "horovod.tensorflow.data",
    "horovod.keras",
    "horovod.keras.elastic",
    "horovod.torch",
    "horovod.torch.elastic",
    "horovod.jax",
    "horovod.jax.elastic",
    "horovod.numpy",
    "horovod.numpy.elastic",
    "horovod.common.elastic",
    "horovod.spark",
    "horovod.ray",
]
# Pages that answer most searches.
FIRST_FOUND = ("install.md", "operate/troubleshooting.md", "reference/environment.md", "reference/errors.md")
_SPAN = check_links.CODE.pattern.replace("\\1", "\\2")  # its group is the second of the two
_CODE = re.compile(f"{check_links.FENCE.pattern}|{_SPAN}", flags=re.M | re.S)
_LANGUAGES = {".py": "python", ".cc": "cpp", ".h": "c", ".hpp": "cpp", ".sh": "bash", ".yaml": "yaml", ".txt": "text"}


def on_config(config):
    """Make the navigation, and anchors as check_links has them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda text, separator: check_links.anchor(text)
    config.nav = [{"Home": "README.md"}, *_navigation()]
    return config


def _navigation() -> list:
    """Return the sections of docs/README.md, with the generated pages in Reference."""
    sections: dict[str, list] = {}
    for line in (ROOT / "docs/README.md").read_text().splitlines():
        if heading := re.fullmatch(r"## (.+)", line):
            entries = sections.setdefault(heading[1], [])
        elif entry := re.match(r"- \[(.+?)\]\((\S+?)\)", line):
            entries.append({entry[1]: _page_of(posixpath.normpath(posixpath.join("docs", entry[2])))})
    sections["Reference"] += [{"Python modules": list(_python_pages())}, *_header_pages()]
    return [{title: entries} for title, entries in sections.items()]


def _python_pages() -> dict[str, str]:
    return {f"reference/api/{module}.md": f"# {module}\n\n::: {module}\n" for module in MODULES}


def _header_pages() -> dict[str, str]:
    return {"reference/api/c.md": "include/hvd/hvd.h", "reference/api/cpp.md": "include/hvd/hvd.hpp"}


def _page_of(path: str) -> str:
    """
    Return the page that shows a file of the project, both as paths with slashes.

    >>> _page_of("docs/install.md"), _page_of("SECURITY.md"), _page_of("examples/numpy/digits.py")
    ('install.md', 'project/SECURITY.md', 'source/examples/numpy/digits.py.md')
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"project/{path}" if "/" not in path and path.endswith(".md") else f"source/{path}.md"


def _links(path: str, text: str) -> list[str]:
    """Return the files of the project that a page of the project links to."""
    found: list[str] = []
    _rewrite(path, text, found.append)
    return found


def _rewrite(path: str, text: str, visit=lambda target: None) -> str:
    """Return the text of a file of the project with links that lead to pages of the website."""

    def link(match: re.Match) -> str:
        target, _, fragment = match[1].partition("#")
        if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        visit(file)
        page = posixpath.relpath(_page_of(file), posixpath.dirname(_page_of(path)))
        return match[0].replace(match[1], page + (f"#{fragment}" if fragment and file.endswith(".md") else ""))

    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [check_links.LINK.sub(link, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, check_links.LINK.sub(link, text[end:])])


def _source_page(path: str) -> str:
    """Return a page that shows a file, or the names in a folder."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(entry.name for entry in file.iterdir() if not entry.name.startswith(("_", ".")))
        return f"# {path}\n\n" + "".join(f"- `{name}`\n" for name in names)
    fence = "`````"
    return f"# {file.name}\n\n{path}\n\n{fence}{_LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}\n{fence}\n"


def on_files(files: Files, config) -> Files:
    """Add the generated pages, and those of files that pages link to."""
    pages = {**_python_pages(), **{page: header_reference.page(header) for page, header in _header_pages().items()}}
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen = set(waiting)
    for path in waiting:  # grows while it is read
        if path.endswith(".md"):
            text = (ROOT / path).read_text()
            new = [target for target in _links(path, text) if target not in seen]
            seen.update(new)
            waiting += dict.fromkeys(new)
        if not path.startswith("docs/"):
            pages[_page_of(path)] = (ROOT / path).read_text() if path.endswith(".md") else _source_page(path)
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Rewrite the links of pages that are files of the project."""
    uri = page.file.src_uri
    if uri.startswith(("source/", "reference/api/")):
        page.meta.setdefault("search", {"exclude": uri.startswith("source/")})
        return markdown
    if "\n## " not in markdown:
        page.meta.setdefault("hide", ["toc"])  # its place is better used by the table that such a page is
    if uri in FIRST_FOUND:
        page.meta.setdefault("search", {"boost": 4})
    return _rewrite(uri.removeprefix("project/") if uri.startswith("project/") else f"docs/{uri}", markdown)
