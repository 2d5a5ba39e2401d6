# SPDX-License-Identifier: Apache-2.0
"""`python -m horovod.compat` and what the bridges stand on; nothing here imports TensorFlow."""

import doctest
import importlib
import json
import re
import subprocess
import sys
import warnings

import launching
import pytest
from horovod import compat
from horovod.compat import notes, patching, reading, source
from horovod.compat.finding import Kind

OLD = """\
import tensorflow as tf
import horovod.tensorflow as hvd
from keras.layers.core import Dense, Dropout
from keras.preprocessing.image import ImageDataGenerator
from keras.utils import np_utils

config = tf.ConfigProto()
images, labels = dataset.batch(32).make_one_shot_iterator().get_next()
kept = tf.nn.dropout(tf.layers.dense(images, 8), 0.9)
mean = tf.reduce_mean(kept, keep_dims=True) + tf.reduce_sum(kept)
opt = keras.optimizers.SGD(lr=0.1, decay=1e-6)
opt = hvd.DistributedOptimizer(opt)
model.compile(opt, "mse",
              experimental_run_tf_function=False)
model.fit_generator(batches, workers=4, epochs=3)
model.optimizer.lr = 0.1
hvd.broadcast_variables(opt.variables(), root_rank=0)
grads = opt.get_unscaled_gradients(tape.gradient(opt.get_scaled_loss(loss), weights))
"""

TODAY = """\
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
import horovod.tensorflow as hvd
from keras.layers import Dense, Dropout
from tensorflow.keras.preprocessing.image import ImageDataGenerator
from keras import utils as np_utils

config = tf.compat.v1.ConfigProto()
images, labels = tf.compat.v1.data.make_one_shot_iterator(dataset.batch(32)).get_next()
kept = tf.compat.v1.nn.dropout(tf.compat.v1.layers.dense(images, 8), 0.9)
mean = tf.compat.v1.reduce_mean(kept, keep_dims=True) + tf.reduce_sum(kept)
opt = keras.optimizers.SGD(learning_rate=0.1, decay=1e-6)
opt = hvd.DistributedOptimizer(opt)
model.compile(opt, "mse")
model.fit(batches, epochs=3)
model.optimizer.learning_rate = 0.1
hvd.broadcast_variables(opt.variables, root_rank=0)
grads = tape.gradient(opt.scale_loss(loss), weights)
"""


def test_a_program_becomes_one_of_today():
    old = OLD.replace("import horovod", "import keras; import horovod").encode()
    expected = TODAY.replace("import horovod", "import keras; import horovod")
    found = reading.findings_in(old)
    assert patching.edited(old, found).decode() == expected
    assert {one.kind for one in found if one.line == 11} == {Kind.BRIDGE, Kind.MEANING}
    # Nothing is left to write, but for what Keras 3 ignores, and layers need Keras 2.
    left = reading.findings_in(expected)
    assert [one.found for one in left] == ["tf.compat.v1.layers.dense", "decay="]


def test_a_program_with_an_estimator_becomes_one_of_today():
    old = """\
import tensorflow as tf
tf.compat.v1.disable_eager_execution()
estimator = tf.estimator.Estimator(f, config=tf.estimator.RunConfig())
estimator.train(tf.estimator.inputs.numpy_input_fn(x, shuffle=True), hooks=[tf.estimator.StopAtStepHook(3)])
"""
    expected = """\
import tensorflow as tf
from horovod.tensorflow import estimator as tf_estimator
tf.compat.v1.disable_eager_execution()
estimator = tf_estimator.Estimator(f, config=tf_estimator.RunConfig())
estimator.train(tf_estimator.inputs.numpy_input_fn(x, shuffle=True), hooks=[tf.compat.v1.train.StopAtStepHook(3)])
"""
    assert patching.edited(old.encode(), reading.findings_in(old)).decode() == expected
    assert reading.findings_in(expected) == []


@pytest.mark.parametrize(
    "line",
    [
        "import tensorflow.compat.v1 as tf; tf.disable_eager_execution(); tf.Session()",
        "import tensorflow as tf; tf.reduce_mean(x, axis=0); tf.nn.dropout(x, 0.5); tf.summary.scalar('loss', 1.0)",
        "import tensorflow as tf; opt = tf.compat.v1.train.AdamOptimizer(); opt.minimize(loss)",
        "import keras; opt = keras.optimizers.SGD(0.1); f(opt.variables, opt.learning_rate); model.compile(opt)",
        "from tensorflow import keras; from keras import layers; x.variables(); x.lr",
        "tf.ConfigProto()  # whatever tf is here",
    ],
)
def test_programs_of_today_have_nothing_to_write(line):
    assert reading.findings_in(line) == []


@pytest.mark.parametrize(
    ("line", "kind", "today"),
    [
        ("tf.contrib.slim.arg_scope()", Kind.CANNOT, "no contrib"),
        ("tf.contrib.layers.xavier_initializer()", Kind.CANNOT, "glorot_uniform_initializer"),
        ("from tensorflow.examples.tutorials.mnist import input_data", Kind.CANNOT, "no examples"),
        ("tf.estimator.DNNClassifier()", Kind.CANNOT, "no tf.estimator"),
        ("tf.estimator.Estimator(f)", Kind.TF1, "from horovod.tensorflow import estimator"),
        ("tf.estimator.inputs.numpy_input_fn(x)", Kind.TF1, "tf_estimator.inputs, with `from horovod.tensorflow"),
        ("tf.estimator.StopAtStepHook(3)", Kind.TF1, "tf.compat.v1.train.StopAtStepHook"),
        ("from tensorflow.train import Saver", Kind.TF1, "from tensorflow.compat.v1.train import Saver"),
        ("tf.keras.backend.set_session(s)", Kind.TF1, "tf.compat.v1.keras.backend.set_session"),
        ("tf.keras.optimizers.legacy.SGD(0.1)", Kind.BRIDGE, "keras.optimizers.SGD"),
        ("tf.losses.mean_squared_error(a, b)", Kind.TF1, "tf.compat.v1.losses.mean_squared_error"),
        ("tf.compat.v1.layers.dense(x, 3)", Kind.TF1, "tf_keras"),
        ("tf.compat.v1.nn.rnn_cell.LSTMCell(3)", Kind.TF1, "tf_keras"),
        ("tf.compat.v1.keras.backend.set_session(s)", Kind.TF1, "tf_keras"),
        ("tf.compat.v1.estimator.Estimator(f)", Kind.TF1, "from horovod.tensorflow import estimator"),
        ("import keras.utils.np_utils", Kind.BRIDGE, "import keras.utils"),
        ("from tensorflow.python import ipu", Kind.CANNOT, "from horovod.tensorflow import ipu"),
    ],
)
def test_single_lines(line, kind, today):
    found = [one for one in reading.findings_in(f"import tensorflow as tf\n{line}") if one.line == 2]
    assert [one.kind for one in found] == [kind]
    assert today in found[0].today


def test_modules_that_are_gone_are_written_by_their_names_of_today():
    old = """\
import keras.utils.np_utils
import tensorflow.keras.utils.np_utils as others
import keras.objectives
from tensorflow.python import ipu
from tensorflow.python.ipu.horovod import ipu_horovod_strategy as of_horovod
labels = keras.utils.np_utils.to_categorical(others.to_categorical(labels))
loss = keras.objectives.mean_squared_error
"""
    today = """\
import keras.utils
import tensorflow.keras.utils as others
import keras.losses
from horovod.tensorflow import ipu
from horovod.tensorflow.ipu.horovod import ipu_horovod_strategy as of_horovod
labels = keras.utils.to_categorical(others.to_categorical(labels))
loss = keras.losses.mean_squared_error
"""
    assert patching.edited(old.encode(), reading.findings_in(old)).decode() == today
    assert reading.findings_in(today) == []


def command(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "horovod.compat", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_command(tmp_path):
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "gone.py").write_text("import tensorflow as tf\ntf.contrib.slim\n")
    (tmp_path / "python2.py").write_text("print 'hello'\n")
    shown = command(tmp_path, "old.py")
    assert shown.returncode == 0
    assert "old.py:7: config = tf.ConfigProto()\n    with --compat tf1: tf.ConfigProto -> tf.compat" in shown.stdout
    assert "    write: config = tf.compat.v1.ConfigProto()\n" in shown.stdout
    patched = command(tmp_path, "--diff", "old.py")
    subprocess.run(["patch", "-p0"], cwd=tmp_path, input=patched.stdout, text=True, check=True, capture_output=True)
    assert not any(one.edits for one in reading.findings_in((tmp_path / "old.py").read_text()))
    told = command(tmp_path, "--json", "gone.py", "python2.py", "absent.py")
    assert told.returncode == 2
    assert [(one["line"], one["kind"]) for one in json.loads(told.stdout)["findings"]] == [(2, "cannot")]
    assert "python2.py cannot be read: line 1: Missing parentheses" in told.stderr
    assert command(tmp_path, "gone.py").returncode == 1


HOSTILE = {
    "latin.py": "# -*- coding: latin-1 -*-\nimport tensorflow as tf\nx = 'äöü'; s = tf.Session()\n".encode("latin-1"),
    "mark.py": b"\xef\xbb\xbfimport tensorflow as tf\ns = tf.Session()\n",
    "feeds.py": b"import tensorflow as tf\n\x0c\ndef f():\n    y = '\x0b\xe2\x80\xa8'\n    return tf.Session()\n",
    "windows.py": b"import tensorflow as tf\r\ns = tf.Session()\r\n",
    "no_end.py": b"import tensorflow as tf\ns = tf.Session()",
    "pieces.py": b"import tensorflow as tf\ns = (tf\n  . Session\n  ())\nprint(f'{tf.Session()}')\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_of_any_shape_are_patched(tmp_path, name):
    (tmp_path / name).write_bytes(HOSTILE[name])
    shown = command(tmp_path, name)
    assert shown.returncode == 0, shown.stderr
    if name == "feeds.py":
        assert "feeds.py:5: return tf.Session()" in shown.stdout
    assert "compat.v1.Session" in shown.stdout
    patched = subprocess.run(
        [sys.executable, "-m", "horovod.compat", "--diff", name], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    subprocess.run(["patch", "-p0", "--binary"], cwd=tmp_path, input=patched, check=True, capture_output=True)
    after = (tmp_path / name).read_bytes()
    compile(after, name, "exec")
    assert reading.findings_in(source.to_utf8(after)) == []
    for line in HOSTILE[name].splitlines():
        assert line in after or b"Session" in line


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"import tensorflow as tf\x00", "null bytes"),
        (b"# coding: martian\nx = 1\n", "unknown encoding: martian"),
        (b"x = '\xff'\n", "not correctly encoded|invalid or missing encoding"),
        (b"x = " + b"+".join([b"f()"] * 20000), "its expressions are nested too deeply"),
        (b"x = " + b"(" * 5000, "line 1: "),
        (b"print 'hello'\n", "line 1: Missing parentheses .*2to3"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, content, text):
    (tmp_path / "file.py").write_bytes(content)
    for options in ([], ["--diff"], ["--json"]):
        told = command(tmp_path, *options, "file.py", ".", "absent.py")
        assert told.returncode == 2
        first, second, third = told.stderr.splitlines()
        assert re.match(rf"file\.py cannot be read: .*({text})", first), first
        assert "Is a directory" in second
        assert "No such file" in third
        assert ("2to3" in first) == ("2to3" in text)


def test_modes(monkeypatch):
    monkeypatch.setenv("HOROVOD_COMPAT", "")
    assert compat.mode() == "1"
    monkeypatch.setenv("HOROVOD_COMPAT", "tf2")
    with pytest.raises(ValueError, match="HOROVOD_COMPAT=tf2: 0 leaves"):
        compat.mode()


def test_notes_are_said_once_and_by_rank_0(monkeypatch):
    monkeypatch.setattr(notes, "_said", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text in ("first", "first"):
            notes.say(text)
        monkeypatch.setenv("HOROVOD_RANK", "1")
        notes.say("second")
    assert [str(one.message) for one in caught] == ["first"]


@pytest.mark.parametrize(
    ("workers", "task", "says"),
    [
        ({"worker": 2}, ("worker", 0), True),
        ({"worker": 2}, ("worker", "1"), False),
        ({"chief": 1, "worker": 1}, ("chief", 0), True),
        ({"chief": 1, "worker": 1}, ("worker", 0), False),
        (None, ("worker", 0), True),
    ],
)
def test_notes_of_a_cluster_come_from_its_first_task(monkeypatch, workers, task, says):
    for name in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"):
        monkeypatch.delenv(name, raising=False)
    jobs = {kind: [f"{kind}{n}:1" for n in range(count)] for kind, count in (workers or {}).items()}
    config = json.dumps({"cluster": jobs, "task": dict(zip(("type", "index"), task))}) if workers else "[no JSON"
    monkeypatch.setenv("TF_CONFIG", config)
    monkeypatch.setattr(notes, "_said", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        notes.say("note")
    assert bool(caught) == says


def test_a_function_waits_for_a_module(tmp_path):
    (tmp_path / "late").mkdir()
    (tmp_path / "late/__init__.py").write_text("value = 3\n")
    program = """if True:
        import importlib.util, sys
        from horovod.compat import hooks
        before = list(sys.meta_path)
        hooks.after_import("late", lambda: print("there", sys.modules["late"].value))
        hooks.after_import("never", print)
        importlib.util.find_spec("late")  # asks, and imports nothing
        import late
        print(type(late.__spec__.loader).__name__, late.__file__.endswith("late/__init__.py"))
        hooks.after_import("late", lambda: print("at once"))
        assert not {"tensorflow", "keras"} & set(sys.modules)
    """
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["there 3", "SourceFileLoader True", "at once"]


@pytest.mark.parametrize(
    ("variables", "waits"),
    [
        ({}, False),
        ({"HOROVOD_RANK": "1"}, True),
        ({"HOROVOD_RANK": "1", "HOROVOD_COMPAT": "0"}, False),
        ({"HOROVOD_COMPAT": "tf1"}, True),
    ],
)
def test_the_start_of_python(variables, waits):
    program = (
        "import sys; print('_horovod_compat' in map(lambda one: type(one).__module__, sys.meta_path), *sys.modules)"
    )
    result = launching.run([sys.executable, "-c", program], launching.clean_environment(**variables))
    found, *modules = result.stdout.split()
    assert found == str(waits)
    assert "horovod" not in modules


@pytest.mark.parametrize(
    "module",
    [
        *(
            f"horovod.compat{name}"
            for name in ("", ".hooks", ".notes", ".names", ".patching", ".reading", ".source", ".__main__")
        ),
        "horovod.compat.keras3.calls",
        "horovod.compat.keras3.variables",
        "horovod.compat.keras_rules",
        "horovod.compat.tensorflow_rules",
        "horovod.compat.tf1_keras",
    ],
)
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0
