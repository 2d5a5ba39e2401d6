# SPDX-License-Identifier: Apache-2.0
"""
Words for modules of Horovod that this release does not have, in place of a bare "No module named".

The finder is the last one that Python asks, and raises a ModuleNotFoundError, so `try: import horovod.mxnet` goes on as
for any module that is not there. It answers imports alone: `importlib.util.find_spec` returns None.
"""

from __future__ import annotations

import sys
from typing import Any

_MODULES = {
    "horovod.mxnet": "MXNet cannot be used, and its project has ended",
}
_IMPORT = "_find_and_load_unlocked"  # the function of Python's that asks finders for an import


class _Finder:
    """Knows no module, and says so in a sentence."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> None:
        words = _MODULES.get(fullname)
        if words is None:
            return
        caller = sys._getframe(1).f_back  # Python's _find_spec has called this function
        if caller is not None and caller.f_code.co_name == _IMPORT:
            text = f"{fullname} is not in this release of hvd: {words}; docs/guides/migrating.md says what differs"
            raise ModuleNotFoundError(text, name=fullname)


def register() -> None:
    """Ask this finder after all others; once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
