# SPDX-License-Identifier: Apache-2.0
"""`IPUEstimator` and `IPUEstimatorSpec`, the old names of the estimator."""

from __future__ import annotations

from typing import Any

from horovod.tensorflow.estimator import Estimator, EstimatorSpec


class IPUEstimatorSpec(EstimatorSpec):
    """
    EstimatorSpec with its arguments in the order of Graphcore's class.

    >>> IPUEstimatorSpec("eval", loss=0.5, eval_metric_ops={}).mode
    'eval'
    """

    def __init__(
        self,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: dict[str, Any] | None = None,
        host_call: Any = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> None:
        super().__init__(
            mode,
            predictions=predictions,
            loss=loss,
            train_op=train_op,
            eval_metric_ops=eval_metric_ops,
            host_call=host_call,
            training_hooks=training_hooks,
            evaluation_hooks=evaluation_hooks,
            prediction_hooks=prediction_hooks,
        )


class IPUEstimator(Estimator):
    """Estimator. Each step is one run of the session; `iterations_per_loop` of IPURunConfig has no effect."""
