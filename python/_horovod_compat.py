# SPDX-License-Identifier: Apache-2.0
"""
What Python imports at the start of a rank, by horovod_compat.pth: bridges for old programs.

An old program may say `from keras.preprocessing.image import ImageDataGenerator`, or use names of TensorFlow 1, before
it imports anything of Horovod. So a finder waits for the first import of TensorFlow or Keras and has bridges built
then. Until then nothing is imported. Processes that are no ranks, and those with HOROVOD_COMPAT=0, have no finder.
"""

import os
import sys

_WAITED_FOR = ("tensorflow", "keras", "tf_keras")


class _Finder:
    """Stands before Python's own finders until one of the modules is looked for."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _WAITED_FOR or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        from horovod.compat import bridges  # noqa: F401  (which builds them)

        # Python goes through the finders of before.
        for finder in list(sys.meta_path):
            spec = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return spec
        return None


def start():
    """Wait, if this process is a rank of a job that horovodrun started, or if HOROVOD_COMPAT asks for it."""
    wanted = os.environ.get("HOROVOD_COMPAT") or ("1" if "HOROVOD_RANK" in os.environ else "0")
    if wanted in ("1", "tf1"):
        sys.meta_path.insert(0, _Finder())


start()
