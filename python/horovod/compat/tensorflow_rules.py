# SPDX-License-Identifier: Apache-2.0
"""Names of TensorFlow 1 in a program."""

from __future__ import annotations

import ast

from horovod.compat import cuts
from horovod.compat.finding import Edit, Finding, Kind
from horovod.compat.names import table

# Calls that mean something else today without looking different, in programs that are of TensorFlow 1.
_OTHER_MEANING = {f"summary.{name}" for name in ("scalar", "histogram", "image", "audio", "text")} | {"nn.dropout"}
# Keywords of TensorFlow 1 that functions of the same name do not have today.
_OLD_KEYWORDS = {
    "keep_prob",
    "keep_dims",
    "reduction_indices",
    "dimension",
    "squeeze_dims",
    "fn1",
    "fn2",
    "filter",
    "collections",
    "validate_shape",
    "expected_shape",
    "use_resource",
    "seq_dim",
    "batch_dim",
}
_NEED_KERAS_2 = ("layers", "nn.rnn_cell", "nn.static_rnn", "nn.dynamic_rnn")
_SESSION_OF_KERAS_2 = ("keras.backend.set_session", "keras.backend.get_session")
_V1_MODULE = "tensorflow.compat.v1."
_IPU = "tensorflow.python.ipu"
_ESTIMATOR = (
    "Estimator",
    "EstimatorSpec",
    "RunConfig",
    "ModeKeys",
    "TrainSpec",
    "EvalSpec",
    "train_and_evaluate",
    "inputs",
)
# The name that a patch gives the module: programs often have a variable that is called estimator.
_ESTIMATOR_NAME = "tf_estimator"
FROM_HOROVOD = f"with `from horovod.tensorflow import estimator as {_ESTIMATOR_NAME}`"
# Names of hooks, and of what hooks get and return: tf.estimator has those of tf.train.
_OF_HOOKS = ("Hook", "SessionRunArgs", "SessionRunContext", "SessionRunValues", "SecondOrStepTimer", "SaverListener")
# What parts of tf.contrib are called today.
_CONTRIB = {
    "layers.xavier_initializer": "tf.compat.v1.glorot_uniform_initializer",
    "layers.variance_scaling_initializer": "tf.compat.v1.variance_scaling_initializer",
    "layers.l2_regularizer": "tf.keras.regularizers.l2",
    "layers.fully_connected": "tf.compat.v1.layers.dense",
    "layers.conv2d": "tf.compat.v1.layers.conv2d",
    "layers.flatten": "tf.compat.v1.layers.flatten",
    "layers.batch_norm": "tf.compat.v1.layers.batch_normalization",
    "rnn.BasicLSTMCell": "tf.compat.v1.nn.rnn_cell.BasicLSTMCell",
    "rnn.LSTMCell": "tf.compat.v1.nn.rnn_cell.LSTMCell",
    "data.AUTOTUNE": "tf.data.AUTOTUNE",
}


def of_name(full: str, node: ast.AST, root: ast.AST | None) -> Finding | None:
    """
    Return what is to say about a name such as tensorflow.train.Saver; `root` is the node of `tf` in it.

    >>> import ast
    >>> from horovod.compat import tensorflow_rules
    >>> node = ast.parse("tf.ConfigProto", mode="eval").body
    >>> tensorflow_rules.of_name("tensorflow.ConfigProto", node, node.value).today
    'tf.compat.v1.ConfigProto'
    """
    if full.startswith(_V1_MODULE):
        return _below_v1(full[len(_V1_MODULE) :], node, root)
    first, *rest = full.split(".")[1:] or [""]
    if first == "contrib":
        return _contrib(".".join(rest), node)
    if first == "estimator":
        return _estimator(rest, node, root)
    if first in ("compat", "keras", "experimental") or not _is_old(first, rest):
        return None
    path = ".".join([first, *rest])
    today = f"tf.compat.v1.{path}"
    if path.startswith(_NEED_KERAS_2):
        today += ", which needs tf_keras and TF_USE_LEGACY_KERAS=1"
    return Finding(_line(node), Kind.TF1, f"tf.{path}", today, _v1(root))


def of_call(full: str, node: ast.Call, root: ast.AST, in_old_program: bool) -> Finding | None:
    """Return what is to say about a call of a function that exists in TensorFlow 1 and today and differs."""
    path = full.partition(".")[2]
    module, _, name = path.rpartition(".")
    differs = table().get(f"tensorflow.{module}!" if module else "tensorflow!", frozenset())
    old = {keyword.arg for keyword in node.keywords} & _OLD_KEYWORDS
    if name not in differs or not (old or (in_old_program and path in _OTHER_MEANING)):
        return None
    return Finding(_line(node), Kind.TF1, f"tf.{path}", f"tf.compat.v1.{path}", _v1(root))


def of_import(node: ast.ImportFrom) -> Finding | None:
    """Return what is to say about `from tensorflow import name`, and about modules that are gone."""
    module = node.module or ""
    names = [one.name for one in node.names]
    if module.startswith(("tensorflow.contrib", "tensorflow.examples")) or (
        module == "tensorflow" and "contrib" in names
    ):
        text = "TensorFlow has no contrib and no examples any more"
        return Finding(_line(node), Kind.CANNOT, f"from {module} import {', '.join(names)}", text)
    if module == "tensorflow" and names == ["estimator"]:
        today = "from horovod.tensorflow import estimator"
        return Finding(_line(node), Kind.TF1, "from tensorflow import estimator", today, (cuts.whole(node, today),))
    path = module.split(".")[1:]
    if any(_is_old(*_split([*path, name])) for name in names):
        today = f"from {'.'.join(['tensorflow.compat.v1', *path])} import {', '.join(names)}"
        begin, length = node.col_offset + len("from "), len(module.encode())
        edit = Edit(node.lineno, begin, node.lineno, begin + length, ".".join(["tensorflow.compat.v1", *path]))
        return Finding(_line(node), Kind.TF1, f"from {module} import {', '.join(names)}", today, (edit,))
    return None


def after_import(node: ast.stmt, name: str, in_graphs: bool, has_estimator: bool) -> Finding | None:
    """Return what a program of TensorFlow 1 needs after this import: graphs, and the module for its estimators."""
    missing = []
    if not in_graphs:
        missing.append(("graphs and sessions", f"{name}.compat.v1.disable_v2_behavior()"))
    if has_estimator:
        missing.append(("tf.estimator", f"from horovod.tensorflow import estimator as {_ESTIMATOR_NAME}"))
    if not missing:
        return None
    indent = " " * node.col_offset
    edit = cuts.after(node, "".join(f"\n{indent}{today}" for _, today in missing))
    found, today = (", ".join(texts) for texts in zip(*missing))
    return Finding(_line(node), Kind.TF1, found, f"{today} after it", (edit,))


def iterator_of(call: ast.Call, name: str) -> Finding:
    """Return what to write for dataset.make_one_shot_iterator()."""
    function = call.func
    assert isinstance(function, ast.Attribute)
    today = f"{name}.compat.v1.data.{function.attr}"
    edits = (cuts.insertion(*cuts.begin(function.value), f"{today}("), cuts.between(function.value, call, ")"))
    return Finding(_line(function), Kind.TF1, f"dataset.{function.attr}()", f"{today}(dataset)", edits)


def of_ipu_import(node: ast.ImportFrom) -> Finding | None:
    """Return what is to say about `from tensorflow.python import ipu`, of Graphcore's TensorFlow."""
    module, names = node.module or "", ", ".join(map(ast.unparse, node.names))
    inside = module == _IPU or module.startswith(f"{_IPU}.")
    if not inside and not (module == "tensorflow.python" and [one.name for one in node.names] == ["ipu"]):
        return None
    today = f"from horovod.{module.replace('.python', '', 1)} import {names}"
    return Finding(_line(node), Kind.CANNOT, f"from {module} import {names}", today, (cuts.whole(node, today),))


def _below_v1(path: str, node: ast.AST, root: ast.AST | None) -> Finding | None:
    first, *rest = path.split(".")
    if first == "estimator":
        return _estimator(rest, node, root)
    if not path.startswith(_NEED_KERAS_2) and path not in _SESSION_OF_KERAS_2:
        return None
    return Finding(_line(node), Kind.TF1, f"tf.compat.v1.{path}", "needs tf_keras and TF_USE_LEGACY_KERAS=1")


def _split(path: list[str]) -> tuple[str, list[str]]:
    return path[0], path[1:]


def _is_old(first: str, rest: list[str]) -> bool:
    known = table()
    return first in known["tensorflow"] or bool(rest and rest[0] in known.get(f"tensorflow.{first}", ()))


def _contrib(path: str, node: ast.AST) -> Finding:
    today = _CONTRIB.get(path)
    text = f"{today}, or what it is called in Keras" if today else "TensorFlow has no contrib any more"
    edits = (cuts.whole(node, today),) if today and isinstance(node, ast.Attribute) else ()
    return Finding(_line(node), Kind.CANNOT, f"tf.contrib.{path}", text, edits)


def _estimator(rest: list[str], node: ast.AST, root: ast.AST | None) -> Finding:
    name = rest[0] if rest else ""
    found = f"tf.estimator.{name}".rstrip(".")
    if name.endswith(_OF_HOOKS):
        edits = (cuts.whole(node, f"{root.id}.compat.v1.train.{name}"),) if isinstance(root, ast.Name) else ()
        return Finding(_line(node), Kind.TF1, found, f"tf.compat.v1.train.{name}", edits)
    if name and name not in _ESTIMATOR:
        return Finding(_line(node), Kind.CANNOT, found, "TensorFlow has no tf.estimator any more")
    edits = (cuts.whole(node, ".".join([_ESTIMATOR_NAME, *rest])),) if root is not None else ()
    today = f"{_ESTIMATOR_NAME}.{name}".rstrip(".")
    return Finding(_line(node), Kind.TF1, found, f"{today}, {FROM_HOROVOD}", edits)


def _v1(root: ast.AST | None) -> tuple[Edit, ...]:
    return () if root is None else (cuts.after(root, ".compat.v1"),)


def _line(node: ast.AST) -> int:
    place: ast.expr = node  # type: ignore[assignment]
    return place.lineno
