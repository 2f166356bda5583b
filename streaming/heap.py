"""Keep what a Python worker holds for long out of the garbage collector's way.

Spark's Python daemon runs a full garbage collection after every task, and the worker takes no other task before it
ends. It visits every object in the worker: those of the imported libraries (a tenth of a second) and of every region
that is held (half a second for 10,000 subscriptions, on a busy machine). The next stage of the same batch often waits
for it.

So a worker freezes its objects (`gc.freeze`): a collection then visits only those made since. Frozen objects are freed
as soon as nothing refers to them, but cycles among them are not found. To find those as well, everything is thawed and
collected before it is frozen again; that happens only when the objects made since are a share of the frozen ones, so it
costs O(1) an object, and a cycle that is garbage stays at most until the worker has grown by that share.
"""

from __future__ import annotations

import gc

FEWEST = 20_000
"""New objects below which a collection takes no time worth saving."""
SHARE = 4
"""Objects are frozen again when those made since are more than this fraction (1/4) of the frozen ones."""


class Heap:
    """The objects of this process."""

    def __init__(self, fewest: int = FEWEST) -> None:
        self._fewest = fewest
        self._frozen = 0  # counted once, when they are frozen: counting takes as long as visiting

    def settle(self) -> bool:
        """Collect garbage and freeze the rest, if many objects are new. Return whether it did. O(new) otherwise."""
        if len(gc.get_objects()) <= max(self._fewest, self._frozen // SHARE):
            return False
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._frozen = gc.get_freeze_count()
        return True


HEAP = Heap()
