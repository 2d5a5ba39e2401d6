# SPDX-License-Identifier: Apache-2.0
"""For the website: shows the examples in docstrings as code, by an extension of griffe."""

from __future__ import annotations

import re

import griffe

_EXAMPLE = re.compile(r"^(?:>>> .*|>>>)(?:\n.+)*", flags=re.M)


class Examples(griffe.Extension):
    """Puts a fence around every example, up to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **more) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
