# SPDX-License-Identifier: Apache-2.0
"""Which elements of a pass have come and which were used, and how many go into each batch. No TensorFlow here."""

from __future__ import annotations

import numpy as np


class Ledger:
    """
    The ids of one rank's pass.

    >>> import numpy as np
    >>> from horovod.tensorflow.data.ledger import Ledger
    >>> ledger = Ledger(np.array([7, 3, 5]))
    >>> ledger.arrived(np.array([3, 7])), ledger.arrived(np.array([7, 5]))
    (array([ True,  True]), array([False,  True]))
    >>> ledger.missing()
    array([], dtype=int64)
    """

    def __init__(self, ids: np.ndarray) -> None:
        self._ids = ids.astype(np.int64)
        self._order = np.argsort(self._ids)
        self._sorted = self._ids[self._order]
        self._arrived = np.zeros(len(ids), bool)
        self._marked = np.zeros(len(ids), bool)
        self._again = 0
        self._asked = False

    def missing(self) -> np.ndarray:
        """Return the ids that have not come, in the order of the pass; all but the first call are repairs."""
        found = self._ids[~self._arrived]
        self._again += len(found) if self._asked else 0
        self._asked = True
        return found

    def arrived(self, ids: np.ndarray) -> np.ndarray:
        """Note that these ids have come, and return for each whether it is new."""
        places = self._places(ids)
        fresh = ~self._arrived[places]
        self._arrived[places] = True
        return fresh

    def mark(self, ids: np.ndarray) -> None:
        """Note that these ids were used; ValueError unless each has come and is marked for the first time."""
        places = self._places(ids)
        if not self._arrived[places].all():
            raise ValueError(f"done: the id {ids[~self._arrived[places]][0]} was not given out yet")
        if self._marked[places].any() or len(np.unique(places)) != len(places):
            raise ValueError("done: an id is marked for the second time; call it once for each batch")
        self._marked[places] = True

    def marked(self) -> np.ndarray:
        """Return the ids that were used."""
        return self._ids[self._marked]

    def text(self, rounds: int) -> str:
        """Return the report of a pass of so many rounds."""
        more = f" in {rounds - 1} rounds" if rounds > 1 else ""
        return f"{int(self._marked.sum())} of {len(self._ids)} elements, each once; {self._again} sent again{more}"

    def _places(self, ids: np.ndarray) -> np.ndarray:
        found = np.searchsorted(self._sorted, ids)
        known = found < len(self._sorted)
        known[known] = self._sorted[found[known]] == np.asarray(ids)[known]
        if not known.all():
            raise ValueError(f"the id {np.asarray(ids)[~known][0]} is none of this rank's pass")
        return self._order[found]


def batch_sizes(elements: int, batch_size: int, rank: int, size: int) -> list[int]:
    """
    Return how many elements each batch of a rank has: equally many batches on all ranks, none of them empty.

    >>> from horovod.tensorflow.data.ledger import batch_sizes
    >>> [batch_sizes(11, 4, rank, 2) for rank in (0, 1)]
    [[4, 2], [4, 1]]
    >>> [batch_sizes(9, 4, rank, 2) for rank in (0, 1)]
    [[4, 1], [3, 1]]
    """
    most = -(-elements // size)
    sizes = [batch_size] * (most // batch_size) + [most % batch_size] * (most % batch_size > 0)
    own = len(range(rank, elements, size))
    if own < most and sizes:  # by one
        short = len(sizes) - 1 if sizes[-1] > 1 else 0
        sizes[short] -= 1
        if sizes[short] == 0:
            raise ValueError(
                f"{elements} elements cannot be shared out among {size} ranks in batches of {batch_size} so that all "
                f"ranks take equally many steps: leave out {elements % size} elements, or take larger batches"
            )
    return sizes
