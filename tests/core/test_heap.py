"""A worker's objects out of the way of the collection that Spark runs after every task; garbage is still found."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from state.config import parse
from streaming import shim, sources
from streaming.heap import Heap
from streaming.settings import Settings, settle
from streaming.sources import sort_records
from tests.core.histories import config_text
from tests.core.shell import forget

FEWEST = 1000


class Node:
    """An object that refers to itself: only a collection frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def frozen_heap() -> Iterator[Heap]:
    """A heap whose objects so far are frozen, and are not afterwards."""
    gc.unfreeze()  # what `conftest` froze
    heap = Heap(FEWEST)
    assert heap.settle(), "the modules imported here are many objects"
    gc.disable()
    yield heap
    gc.enable()
    gc.unfreeze()
    gc.freeze()  # as `conftest` does: every later collection in this process would look at all modules again


def many(heap: Heap) -> list[list[None]]:
    """More objects than the heap lets be."""
    return [[] for _ in range(max(FEWEST, gc.get_freeze_count() // 4) + 100)]


def test_a_collection_visits_only_what_is_new(frozen_heap: Heap) -> None:
    assert len(gc.get_objects()) < FEWEST < gc.get_freeze_count()
    assert not frozen_heap.settle(), "nothing is new"


def test_objects_are_frozen_again_when_many_are_new(frozen_heap: Heap) -> None:
    held = many(frozen_heap)
    before = gc.get_freeze_count()
    assert frozen_heap.settle()
    assert gc.get_freeze_count() >= before + len(held)
    assert not frozen_heap.settle()


def test_garbage_among_frozen_objects_is_found(frozen_heap: Heap) -> None:
    """A region that is dropped is a cycle; the worker must not keep it for ever."""
    node, held = Node(), many(frozen_heap)
    dropped = weakref.ref(node)
    frozen_heap.settle()
    del node
    gc.collect()
    assert dropped() is not None, "frozen"
    held += many(frozen_heap)
    assert frozen_heap.settle()
    assert dropped() is None


class Watcher:
    """Counts the objects that are there when it is called."""

    def __init__(self) -> None:
        self.publications: list[int] = []

    def settle(self) -> bool:
        self.publications.append(sum(type(o).__name__ in ("Publish", "Arrival") for o in gc.get_objects()))
        return False


def test_both_stages_settle_when_their_own_objects_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settle(parse(config_text([("b0", "b1")], '"auto"')), 7, 1)
    both_stages(settings)  # kernels may have to be compiled, which leaves cycles behind
    gc.collect()
    watcher = Watcher()
    monkeypatch.setattr(shim, "HEAP", watcher)
    monkeypatch.setattr(sources, "HEAP", watcher)
    both_stages(settings)
    assert watcher.publications == [0, 0]


def both_stages(settings: Settings) -> None:
    """Sort three publications and let their region take them, as a new process."""
    forget()
    rows: list[dict[str, Any]] = []
    at = b'{"id": "p", "at": {"x": 1, "y": 1, "colour": "red"}}'
    for offset in range(3):
        topic = settings.topics.of("publish")
        record = {"topic": topic, "partition": 0, "offset": offset, "time": 1, "key": b"b0", "value": at}
        rows.append({**record, "headers": None, "now": 2})
    [parcels] = sort_records(settings)(iter([pa.RecordBatch.from_pylist(rows)]))
    state = SimpleNamespace(exists=False, update=lambda _: None)
    key = (settings.parts[0].key,)
    frames: Iterator[pd.DataFrame] = iter([parcels.to_pandas()])
    assert sum(len(out) for out in shim.on_row(settings)(key, frames, state)) > 0
