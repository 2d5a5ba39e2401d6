# SPDX-License-Identifier: Apache-2.0
"""Full names of what a program says: `tf.train.Saver` after `import tensorflow as tf` is tensorflow.train.Saver."""

from __future__ import annotations

import ast
import functools
import pathlib

_FILE = pathlib.Path(__file__).with_name("names.txt")


@functools.cache
def table() -> dict[str, frozenset[str]]:
    """
    Return the names that today's modules miss, by module; with `!` at its end, names that mean something else today.

    >>> from horovod.compat import names
    >>> "ConfigProto" in names.table()["tensorflow"], "dropout" in names.table()["tensorflow.nn!"]
    (True, True)
    """
    found: dict[str, set[str]] = {}
    module = ""
    for line in _FILE.read_text().splitlines():
        if not line.startswith(" "):
            module, _, line = line.partition(":")
        found.setdefault(module, set()).update(line.split())
    return {module: frozenset(names) for module, names in found.items()}


class Imports(ast.NodeVisitor):
    """Which modules and names a program's own names stand for."""

    def __init__(self, tree: ast.AST) -> None:
        self._meaning: dict[str, str] = {}
        self.visit(tree)

    def visit_Import(self, node: ast.Import) -> None:
        """Take note of `import a.b` and `import a.b as c`."""
        for one in node.names:
            name = one.asname or one.name.partition(".")[0]
            self._meaning[name] = one.name if one.asname else name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Take note of `from a import b as c`."""
        if node.module and not node.level:
            for one in node.names:
                self._meaning[one.asname or one.name] = f"{node.module}.{one.name}"

    def full_name(self, node: ast.AST) -> str | None:
        """Return the full name of an expression such as `tf.train.Saver`; None if it begins with no import."""
        names = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._meaning:
            return None
        full = ".".join([self._meaning[node.id], *reversed(names)])
        return canonical(full)

    def local_name(self, module: str) -> str | None:
        """Return the program's name for a module."""
        return next((name for name, meaning in self._meaning.items() if meaning == module), None)


def canonical(full: str) -> str:
    """
    Return a name as rules have it: tf.keras is keras.

    >>> from horovod.compat import names
    >>> names.canonical("tensorflow.keras.layers.Dense")
    'keras.layers.Dense'
    """
    return full[len("tensorflow.") :] if full == "tensorflow.keras" or full.startswith("tensorflow.keras.") else full
