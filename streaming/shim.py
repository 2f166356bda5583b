"""What Spark calls for each region in each batch, and how Spark keeps the state (`[engine] state`).

    row    applyInPandasWithState: all pieces of a region in one row of bytes. Spark carries the row to the worker and
           back in every batch that reaches the region, at 35 to 50 ms for each megabyte. Best up to a few megabytes
    map    transformWithStateInPandas: the pieces as values of a map (`state.storage.sliced`). A batch asks for the
           pieces that it needs and writes those that change, each with an exchange over a socket

Both carry the same pieces and call the same step; they decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from state.storage.sliced import Sliced
from state.storage.store import Pieces, from_row, to_row
from streaming.heap import HEAP
from streaming.settings import Settings
from streaming.step import Step, gathered

MAP = "pieces"
"""The name of the map in Spark's state."""


def on_row(settings: Settings) -> Callable[[Any, Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """Return the function for `applyInPandasWithState`."""

    def take(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        name = settings.by_key[key[0]].name
        pieces = from_row(bytes(state.get[1]), name) if state.exists else {}
        if (yield from one_step(settings, name, frames, pieces)):
            state.update((1, to_row(pieces)))
        del pieces
        HEAP.settle()  # when the objects of this step alone are gone

    return take


class OnMap(StatefulProcessor):
    """The processor for `transformWithStateInPandas`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def init(self, handle: Any) -> None:
        """Declare the map, as Spark asks for it."""
        self._values = Values(handle.getMapState(MAP, "key string", "value binary"))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - Spark's names
        """Take the parcels of a region."""
        yield from one_step(self._settings, self._settings.by_key[key[0]].name, rows, Sliced(self._values))
        HEAP.settle()

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""


class Values:
    """Spark's map as one from text to bytes."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, key: str, /) -> bytes | None:
        """Return a value; None if there is none."""
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def __setitem__(self, key: str, value: bytes, /) -> None:
        self._state.updateValue((key,), (value,))

    def __delitem__(self, key: str, /) -> None:
        self._state.removeKey((key,))


def one_step(
    settings: Settings, name: str, frames: Iterator[pd.DataFrame], pieces: Pieces
) -> Generator[pd.DataFrame, None, bool]:
    """Let a region take its parcels: yield its records, write its state. Return whether that has changed."""
    parcels = (parcel for frame in frames for parcel in frame["parcel"])
    done = Step(settings, name, pieces, parcels, batch_number())
    yield from gathered(done.records())
    return done.close()


def batch_number() -> int:
    """Return the number of the batch that this task belongs to."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return -1 if number is None else int(number)
