# SPDX-License-Identifier: Apache-2.0
"""Reads a program without running it, and finds the lines that were written for older TensorFlow and Keras."""

from __future__ import annotations

import ast
from typing import Any

from horovod.compat import keras_rules, tensorflow_rules
from horovod.compat.finding import Finding, Kind
from horovod.compat.names import Imports

_ITERATORS = ("make_one_shot_iterator", "make_initializable_iterator")
_WRAPPERS = ("DistributedOptimizer", "PartialDistributedOptimizer", "LossScaleOptimizer")


def findings_in(source: bytes | str) -> list[Finding]:
    """
    Return what is found in a program, in the order of its lines; SyntaxError if it is no Python 3.

    Bytes are in UTF-8. Python raises RecursionError for a program that is nested too deeply.

    >>> from horovod.compat import reading
    >>> [one.today for one in reading.findings_in("import tensorflow as tf; tf.Session()")]
    ['tf.compat.v1.disable_v2_behavior() after it', 'tf.compat.v1.Session']
    """
    tree = ast.parse(source.decode() if isinstance(source, bytes) else source)
    reader = _Reader(tree)
    reader.visit(tree)
    found = reader.found
    if any(one.kind is Kind.TF1 for one in found):
        found += reader.of_old_program()
    return sorted(set(found), key=lambda one: (one.line, one.kind.name, one.found))


class _Reader(ast.NodeVisitor):
    def __init__(self, tree: ast.AST) -> None:
        self.imports = Imports(tree)
        self.found: list[Finding] = []
        self._tf = self.imports.local_name("tensorflow")
        self._first_import: ast.stmt | None = None
        self._in_graphs = False
        self._calls: list[tuple[str, ast.Call, ast.AST]] = []
        self._optimizers: set[str] = set()

    def of_old_program(self) -> list[Finding]:
        """Return what only matters because the program is of TensorFlow 1."""
        found = [tensorflow_rules.of_call(full, call, root, True) for full, call, root in self._calls]
        if self._first_import is not None and self._tf is not None:
            has_estimator = any(one.today.endswith(tensorflow_rules.FROM_HOROVOD) and one.edits for one in self.found)
            found.append(tensorflow_rules.after_import(self._first_import, self._tf, self._in_graphs, has_estimator))
        return [one for one in found if one is not None]

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            if one.name == "tensorflow" and self._first_import is None:
                self._first_import = node
            if one.name.startswith(("tensorflow.contrib", "tensorflow.examples")):
                text = "TensorFlow has no contrib and no examples any more"
                self.found.append(Finding(node.lineno, Kind.CANNOT, f"import {one.name}", text))
            self._add(keras_rules.of_plain_import(node, one))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            return
        if module.partition(".")[0] == "keras" or module.startswith("tensorflow.keras"):
            self._add(keras_rules.of_import(node))
        elif module.partition(".")[0] == "tensorflow" and not module.startswith("tensorflow.compat"):
            self._add(tensorflow_rules.of_ipu_import(node) or tensorflow_rules.of_import(node))

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Call) and self._makes_optimizer(node.value):
            self._optimizers.update(ast.unparse(target) for target in node.targets)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full = self.imports.full_name(node)
        if full is None:
            if node.attr == "lr" and self._is_optimizer(node.value):
                self.found.append(keras_rules.of_rate(node))
            self.generic_visit(node)
            return
        root = _root(node)
        if full.startswith("tensorflow."):
            self._in_graphs |= full.endswith((".disable_v2_behavior", ".disable_eager_execution"))
            self._add(tensorflow_rules.of_name(full, node, root if root.id == self._tf else None))
        elif full.startswith("keras."):
            self._add(keras_rules.of_name(full, node))

    def visit_Call(self, node: ast.Call) -> None:
        full = self.imports.full_name(node.func)
        if full is not None and full.startswith("tensorflow."):
            call = (full, node, _root(node.func))
            self._calls.append(call)
            self._add(tensorflow_rules.of_call(*call, False))
        if full is not None and ".optimizers." in f".{full}" and ".schedules." not in full:
            self.found += keras_rules.of_optimizer_call(full, node)
        if full is None and isinstance(node.func, ast.Attribute):
            if node.func.attr in _ITERATORS and not node.args and not node.keywords:
                self.found.append(tensorflow_rules.iterator_of(node, self._tf or "tf"))
            else:
                self.found += keras_rules.of_method_call(node, self._is_optimizer(node.func.value))
        self.generic_visit(node)

    def _add(self, finding: Finding | None) -> None:
        if finding is not None:
            self.found.append(finding)

    def _makes_optimizer(self, call: ast.Call) -> bool:
        full = self.imports.full_name(call.func) or ""
        if full.rpartition(".")[2] in _WRAPPERS:
            return not call.args or not self._is_of_tensorflow_1(call.args[0])
        return ".optimizers." in f".{full}" and ".schedules." not in full

    def _is_of_tensorflow_1(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ".train." in (self.imports.full_name(node.func) or "")

    def _is_optimizer(self, node: ast.AST) -> bool:
        text = ast.unparse(node)
        return text in self._optimizers or keras_rules.may_be_optimizer(text)


def _root(node: ast.AST) -> Any:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node
