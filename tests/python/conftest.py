# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside the tests importable."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools")]
