# SPDX-License-Identifier: Apache-2.0
"""
Looks for what keeps a job from starting or slows it down: ``horovodrun doctor``, or ``python -m horovod.doctor``.

Every finding is PASS, WARN or FAIL, and says what to do about it. With ``-H`` the other hosts are examined too, and the
network between them is measured.
"""

from horovod.doctor.findings import Finding, Level
from horovod.doctor.machine import Facts, examine, gather

__all__ = ["Facts", "Finding", "Level", "examine", "gather"]
