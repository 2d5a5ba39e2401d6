# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks' arguments have in common."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """How often something is done: as `type=` of an argument."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a count: give a whole number from 1 on")
    return number
