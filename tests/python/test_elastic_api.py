# SPDX-License-Identifier: Apache-2.0
"""Names and signatures of Horovod's elastic modules: a program written for them finds the same ones here."""

import inspect
import subprocess
import sys

from ranks import in_one_start

COMMON = {
    "State": "bcast_object get_rank",
    "State.register_reset_callbacks": "self callbacks",
    "State.on_reset": "self",
    "State.on_hosts_updated": "self timestamp update_res",
    "State.commit": "self",
    "State.check_host_updates": "self",
    "State.save": "self",
    "State.restore": "self",
    "State.sync": "self",
    "State.reset": "self",
    "ObjectState": "bcast_object get_rank **kwargs",
    "run_fn": "func reset",
    "run": "func",
    "notification_manager.register_listener": "listener",
    "notification_manager.remove_listener": "listener",
    "notification_manager.handle_hosts_updated": "timestamp update_res",
    "HorovodInternalError": None,
    "HostsUpdatedInterrupt": "skip_sync",
}
ERRORS = {"HorovodInternalError": None, "HostsUpdatedInterrupt": "skip_sync", "run": "func"}
NUMPY = {"NumpyState": "arrays=None **kwargs", "rescale_lr": "rule", **ERRORS}
TENSORFLOW = {
    "TensorFlowKerasState": "model optimizer=None backend=None **kwargs",
    "TensorFlowState": "variables=None session=None **kwargs",
    **ERRORS,
}
KERAS = {
    "KerasState": "model optimizer=None **kwargs",
    "CommitStateCallback": "state batches_per_commit=1",
    "UpdateBatchStateCallback": "state",
    "UpdateEpochStateCallback": "state",
    **ERRORS,
}


def signature_of(value):
    words = []
    for one in inspect.signature(value).parameters.values():
        default = "" if one.default is one.empty else f"={one.default!r}"
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        words.append(stars + one.name + default)
    return " ".join(words)


def check(module, expected):
    for path, signature in expected.items():
        value = module
        for name in path.split("."):
            value = getattr(value, name)
        if signature is not None:
            assert signature_of(value) == signature, path
    for name in module.__all__:
        assert getattr(module, name).__doc__, name


def test_common_and_numpy():
    import horovod.numpy as hvd
    from horovod.common import elastic

    check(elastic, COMMON)
    check(hvd.elastic, NUMPY)
    state = elastic.State(hvd.broadcast_object, hvd.rank)
    assert state._host_messages.empty()


@in_one_start(1)
def test_tensorflow_and_keras():
    import horovod.keras
    import horovod.tensorflow

    check(horovod.tensorflow.elastic, TENSORFLOW)
    check(horovod.tensorflow.keras.elastic, KERAS)
    check(horovod.keras.elastic, KERAS)


def test_the_module_of_tensorflow_may_be_imported_first():
    subprocess.run([sys.executable, "-c", "import horovod.tensorflow.elastic"], check=True, timeout=100)
