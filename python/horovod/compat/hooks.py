# SPDX-License-Identifier: Apache-2.0
"""Calls a function when the program has imported a module: now if it has, else right after."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import importlib.machinery


def after_import(name: str, function: Callable[[], None]) -> None:
    """
    Call `function` once, when the module is there with all that it has.

    >>> from horovod.compat import hooks
    >>> hooks.after_import("sys", lambda: print("there"))
    there
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        function()
        return
    _finder.wanted.setdefault(name, []).append(function)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def for_compat_v1(function: Callable[[ModuleType], None]) -> None:
    """Call `function` with tf.compat.v1, and with the second module that `import tensorflow.compat.v1` puts there."""
    function(sys.modules["tensorflow"].compat.v1)
    name = "tensorflow.compat.v1"
    if name not in sys.modules:
        after_import(name, lambda: function(sys.modules[name]))


class _Finder:
    """Stands before Python's own finders while something is waited for, and lets them find it."""

    def __init__(self) -> None:
        self.wanted: dict[str, list[Callable[[], None]]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.wanted:
            return None
        spec = _found_by_others(fullname, path, target)
        # Some only ask whether it is there.
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec

    def imported(self, name: str) -> None:
        """Call what waits for a module."""
        functions = self.wanted.pop(name, [])
        if not self.wanted and self in sys.meta_path:
            sys.meta_path.remove(self)
        for function in functions:
            function()


def _found_by_others(
    fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        if not isinstance(finder, _Finder) and hasattr(finder, "find_spec"):
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
    return None


class _Loader:
    """Does what the module's loader does, and says then that the module is there."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module is seen with its own loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _finder.imported(module.__name__)


_finder = _Finder()
