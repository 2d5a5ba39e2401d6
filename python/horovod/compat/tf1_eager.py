# SPDX-License-Identifier: Apache-2.0
"""
`tf.enable_eager_execution(config=...)`: today's TensorFlow has its devices by then, and takes no such configuration.

So the settings of the configuration are made one by one, with the functions that TensorFlow has for them today.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

from horovod.compat import notes


def with_config(plain: Callable, tensorflow: ModuleType) -> Callable:
    """Return `enable_eager_execution` that takes a ConfigProto."""

    @functools.wraps(plain)
    def enable_eager_execution(config: Any = None, device_policy: Any = None, execution_mode: Any = None) -> None:
        if config is not None and not isinstance(config, tensorflow.compat.v1.ConfigProto):
            raise TypeError(f"config={config!r} is no tf.ConfigProto: give one, or leave it out")
        plain(None, device_policy, execution_mode)
        if config is not None:
            _set_gpus(config, tensorflow.config)
            _set_threads(config, tensorflow.config.threading)

    return enable_eager_execution


def _set_gpus(config: Any, today: Any) -> None:
    options = config.gpu_options
    gpus = today.list_physical_devices("GPU")
    visible = gpus
    if config.device_count.get("GPU", 1) == 0:
        visible = []
    elif options.visible_device_list:
        numbers = [int(number) for number in options.visible_device_list.split(",")]
        # On a machine without GPUs, a program pins its local rank's all the same.
        visible = [gpus[number] for number in numbers] if gpus else []
    if visible != gpus:
        today.set_visible_devices(visible, "GPU")
    if options.allow_growth:
        for gpu in visible:
            today.experimental.set_memory_growth(gpu, True)
    if options.per_process_gpu_memory_fraction and gpus:
        notes.say(
            "per_process_gpu_memory_fraction has no effect in eager execution: write "
            "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=...)])"
        )


def _set_threads(config: Any, today: Any) -> None:
    if config.inter_op_parallelism_threads:
        today.set_inter_op_parallelism_threads(config.inter_op_parallelism_threads)
    if config.intra_op_parallelism_threads:
        today.set_intra_op_parallelism_threads(config.intra_op_parallelism_threads)
