# SPDX-License-Identifier: Apache-2.0
"""horovod.keras with Keras 3 on JAX."""

import keras_portable
import pytest
import ranks

together = ranks.in_one_start(2, env={"KERAS_BACKEND": "jax"}, preloaded="jax")


@pytest.mark.row("x7")
@together
def test_fit_equals_one_process():
    keras_portable.fit_equals_one_process()


@together
def test_overflow_on_one_rank():
    keras_portable.overflow_on_one_rank()


@together
def test_callbacks_values_and_files():
    keras_portable.callbacks_values_and_files()
