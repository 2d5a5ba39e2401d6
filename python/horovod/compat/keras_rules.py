# SPDX-License-Identifier: Apache-2.0
"""Lines for Keras 2 in a program."""

from __future__ import annotations

import ast
import re
from typing import Any

from horovod.compat import cuts
from horovod.compat.finding import Edit, Finding, Kind
from horovod.compat.keras3.moved import TODAY
from horovod.compat.names import canonical, table

_OF_DATA = ("workers", "use_multiprocessing", "max_queue_size")
_GENERATORS = ("fit_generator", "evaluate_generator", "predict_generator")
_SESSION = ("set_session", "get_session")


def of_name(full: str, node: ast.Attribute) -> Finding | None:
    """Return what is to say about a name such as keras.preprocessing.image.ImageDataGenerator."""
    module, _, name = full.rpartition(".")
    if name in table().get(module, ()):
        today = f"tensorflow.{full}"
        return Finding(node.lineno, Kind.BRIDGE, full, f"{today}: tf.keras has it")
    if module == "keras.backend" and name in _SESSION:
        return Finding(node.lineno, Kind.TF1, full, f"tf.compat.v1.keras.backend.{name}, which needs tf_keras")
    if module.partition(".")[2] in TODAY and isinstance(node.value, ast.Attribute):
        today = _today(module, "keras")
        return Finding(node.lineno, Kind.BRIDGE, full, f"{today}.{name}", _edits_of_module(node.value, module, today))
    if full == "keras.optimizers.TFOptimizer":
        text = "give the optimizer of tf.compat.v1.train to compile(...) itself; needs tf_keras and a graph"
        return Finding(node.lineno, Kind.TF1, full, text)
    if module == "keras.optimizers.legacy":
        inner = node.value
        edits = (cuts.between(inner.value, inner),) if isinstance(inner, ast.Attribute) else ()
        return Finding(node.lineno, Kind.BRIDGE, full, f"keras.optimizers.{name}", edits)
    return None


def of_import(node: ast.ImportFrom) -> Finding | None:
    """Return what is to say about `from keras.layers.core import Dense` and the like."""
    module = canonical(node.module or "")
    names = ", ".join(one.name if one.asname is None else f"{one.name} as {one.asname}" for one in node.names)
    found = f"from {node.module} import {names}"
    root = "tensorflow.keras" if (node.module or "").startswith("tensorflow.") else "keras"
    today = _import_today(node, module, root, names)
    if today is None:
        return None
    return Finding(node.lineno, Kind.BRIDGE, found, today, (cuts.whole(node, today),))


def of_plain_import(node: ast.Import, one: ast.alias) -> Finding | None:
    """Return what is to say about `import keras.utils.np_utils` and the like."""
    module = canonical(one.name)
    if not module.startswith("keras.") or module.partition(".")[2] not in TODAY:
        return None
    today = f"import {_today(module, one.name[: -len(module)] + 'keras')}{f' as {one.asname}' if one.asname else ''}"
    edits = (cuts.whole(node, today),) if len(node.names) == 1 else ()
    return Finding(node.lineno, Kind.BRIDGE, f"import {one.name}", today, edits)


def _today(module: str, root: str) -> str:
    """Return the module that has the names of `keras.utils.np_utils` today."""
    path = module.partition(".")[2]
    return f"tensorflow.keras.{path}" if TODAY[path].startswith("_tf_keras") else f"{root}.{TODAY[path]}"


def _edits_of_module(node: ast.Attribute, module: str, today: str) -> tuple[Edit, ...]:
    above = module.rpartition(".")[0]
    if today == above:
        return (cuts.between(node.value, node),)
    return (cuts.attribute(node, today.rpartition(".")[2]),) if today.rpartition(".")[0] == above else ()


def _import_today(node: ast.ImportFrom, module: str, root: str, names: str) -> str | None:
    path = module.partition(".")[2]
    if not module.startswith("keras"):
        return None
    if path == "optimizers.legacy":
        return f"from {root}.optimizers import {names}"
    if path in TODAY:
        there = TODAY[path]
        if there.startswith("_tf_keras"):
            return f"from tensorflow.keras.{path} import {names}"
        return f"from {root}.{there} import {names}"
    if any(one.name in table().get(module, ()) for one in node.names) and root == "keras":
        return f"from tensorflow.{module} import {names}"
    if len(node.names) == 1 and f"{path}.{node.names[0].name}".lstrip(".") in TODAY:
        only = node.names[0]
        there = TODAY[f"{path}.{only.name}".lstrip(".")]
        if there.startswith("_tf_keras"):
            return f"from tensorflow.keras.{path} import {names}"
        above, _, last = f"{root}.{there}".rpartition(".")
        return f"from {above} import {last} as {only.asname or only.name}"
    return None


def of_optimizer_call(full: str, call: ast.Call) -> list[Finding]:
    """Return what is to say about keras.optimizers.SGD(lr=..., decay=...)."""
    found = []
    for keyword in call.keywords:
        if keyword.arg == "lr":
            edit = cuts.keyword_name(keyword, "learning_rate")
            found.append(Finding(_line(keyword), Kind.BRIDGE, "lr=", "learning_rate=", (edit,)))
        if keyword.arg == "decay" and full.rpartition(".")[2] != "ExponentialMovingAverage":
            text = "Keras 3 ignores it: give schedules.InverseTimeDecay(rate, 1, decay) as learning_rate"
            found.append(Finding(_line(keyword), Kind.MEANING, "decay=", text))
    return found


def of_method_call(call: ast.Call, is_optimizer: bool) -> list[Finding]:
    """Return what is to say about methods of models and optimizers."""
    function = call.func
    assert isinstance(function, ast.Attribute)
    name, line = function.attr, cuts.end(function)[0]
    if name == "variables" and is_optimizer and not call.args and not call.keywords:
        edits = (cuts.between(function, call),)
        return [Finding(line, Kind.BRIDGE, "optimizer.variables()", "optimizer.variables", edits)]
    if name in _GENERATORS:
        today = name.partition("_")[0]
        renamed = Finding(line, Kind.BRIDGE, f"{name}(...)", f"{today}(...)", (cuts.attribute(function, today),))
        return [renamed, *_keywords(call, _OF_DATA, "give it to the data, a keras.utils.PyDataset")]
    if name in ("fit", "evaluate", "predict"):
        return _keywords(call, _OF_DATA, "give it to the data, a keras.utils.PyDataset")
    if name == "compile":
        return _keywords(call, ("experimental_run_tf_function",), "leave it out")
    if name == "get_scaled_loss":
        edits = (cuts.attribute(function, "scale_loss"),)
        return [Finding(line, Kind.BRIDGE, "get_scaled_loss(...)", "scale_loss(...)", edits)]
    if name == "get_unscaled_gradients" and len(call.args) == 1:
        text = "leave it out: apply_gradients of Keras 3 takes scaled gradients"
        return [Finding(line, Kind.BRIDGE, "get_unscaled_gradients(...)", text, _only_argument(call))]
    return []


def of_rate(node: ast.Attribute) -> Finding:
    """Return what is to say about optimizer.lr."""
    edit = cuts.attribute(node, "learning_rate")
    return Finding(node.end_lineno or node.lineno, Kind.BRIDGE, "optimizer.lr", "optimizer.learning_rate", (edit,))


def may_be_optimizer(text: str) -> bool:
    """
    Whether an expression is called as optimizers are.

    >>> from horovod.compat import keras_rules
    >>> [keras_rules.may_be_optimizer(text) for text in ("opt", "self.model.optimizer", "model")]
    [True, True, False]
    """
    return re.fullmatch(r"(.*[._])?opt(imizer)?\d*", text) is not None


def _keywords(call: ast.Call, names: tuple[str, ...], today: str) -> list[Finding]:
    return [
        Finding(_line(keyword), Kind.BRIDGE, f"{keyword.arg}=", today, (cuts.without_keyword(call, keyword),))
        for keyword in call.keywords
        if keyword.arg in names
    ]


def _only_argument(call: ast.Call) -> tuple[Edit, ...]:
    argument = call.args[0]
    return (Edit(*cuts.begin(call), *cuts.begin(argument), ""), cuts.between(argument, call))


def _line(node: Any) -> int:
    return node.lineno
