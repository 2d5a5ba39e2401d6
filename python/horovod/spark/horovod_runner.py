# SPDX-License-Identifier: Apache-2.0
"""HorovodRunner, under the name and with the arguments that notebooks know."""

from __future__ import annotations

from typing import Any, Callable


class HorovodRunner:
    """
    Runs a function on |np| ranks: on Spark's executors if `np` is positive, on the driver's machine if it is negative.

    `np=0` takes all slots of Spark. `driver_log_verbosity="all"` shows what ranks print, "log_callback_only" does not.
    """

    def __init__(self, np: int, driver_log_verbosity: str = "all") -> None:
        if isinstance(np, bool) or not isinstance(np, int):
            raise TypeError(f"np={np!r}: give a number: of ranks on executors, or, below 0, of ranks on the driver")
        if driver_log_verbosity not in ("all", "log_callback_only"):
            raise ValueError(f'driver_log_verbosity={driver_log_verbosity!r}: give "all" or "log_callback_only"')
        self.num_processor = np
        self.driver_log_verbosity = driver_log_verbosity

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """
        Run ``main(**kwargs)`` on every rank and return what rank 0 returned.

        >>> from horovod.spark import HorovodRunner
        >>> def double(number):
        ...     return number * 2
        >>> HorovodRunner(np=-2).run(double, number=21)
        42
        """
        if self.num_processor < 0:
            from horovod.runner import run

            return run(main, kwargs=kwargs, num_proc=-self.num_processor)[0]
        from horovod.spark.runner import run as run_on_spark

        verbose = 1 if self.driver_log_verbosity == "all" else 0
        return run_on_spark(main, kwargs=kwargs, num_proc=self.num_processor or None, verbose=verbose)[0]
