# SPDX-License-Identifier: Apache-2.0
"""
Explains a hang: ``python -m horovod.flight FOLDER`` compares what the ranks dumped there and names the one at fault.

Ranks dump their last operations into ``HOROVOD_FLIGHT_DIR`` when an operation stalls, when they crash and on SIGUSR2.
"""

from horovod.flight.blame import Verdict, diagnose
from horovod.flight.dumps import Dump, Op, load

__all__ = ["Dump", "Op", "Verdict", "diagnose", "load"]
