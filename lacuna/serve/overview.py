"""The figures of the pages, from the tables.

    metrics         what each direction carried and was told, in a window of time or since the tables begin; its history
    subscriptions   what stands, by name; how many messages flooding would have sent
    publications    the last ones, as points
    rejects         the last ones, and how many

A table is read again only when it has a new version, and no more often than every `PAUSE` seconds, however many people
look; columns are summed up as arrays, without a Python object for each row.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from lacuna.analysis.lake import Lake
from lacuna.serve.layout import Direction
from state.config import Config
from state.protocol.messages import LOCAL
from state.space import Corner, Keys
from state.storage.rows import Row
from state.storage.tables import REGION

PAUSE = 2.0
RECENT = 10_000
"""Publications that a filter is compared with."""
SHOWN = 200
"""Rejects that are shown at most."""
NAMED = 50
"""Things of one name that are shown at most."""
POINTS = 60
"""Moments in a history."""
HOT = 0.95
"""A direction is hot that carried this share of what the busiest one carried."""
ENDED = ("unsubscribe", "expire")
SUMMED = ("publications", "forwarded", "stopped", "messages", "delivered")
SIZES = ("epoch", "batch", "seq", "broker", "link", "state_bytes")
WINDOWS = {
    "": ("since the tables begin", 0),
    "10m": ("last 10 minutes", 600),
    "1h": ("last hour", 3600),
    "1d": ("last day", 86400),
}


class Flow(NamedTuple):
    """One direction of a link: the publications that it carried, and what was asked of its sender."""

    considered: int
    carried: int
    told: int
    withheld: int

    @property
    def share(self) -> float:
        return self.carried / self.considered if self.considered else 0.0


@dataclass(frozen=True)
class Figures:
    """What flowed in a window of time."""

    flows: Mapping[Direction, Flow]
    delivered: int
    messages: int
    flooded: int
    standing: Mapping[str, int]
    rejects: int
    regions: int

    @property
    def carried(self) -> int:
        return sum(flow.carried for flow in self.flows.values())

    @property
    def saved(self) -> float | None:
        """The share of messages about subscriptions that flooding would have sent in addition."""
        return 1 - self.messages / self.flooded if self.flooded else None

    @property
    def hot(self) -> frozenset[Direction]:
        most = max((flow.carried for flow in self.flows.values()), default=0)
        return frozenset(d for d, flow in self.flows.items() if most and flow.carried >= HOT * most)


class Moment(NamedTuple):
    """A part of a history: rates per second, the delay of the router, seconds of a batch, bytes of state."""

    at: datetime
    events: float
    delivered: float
    delay: float | None
    batch: float | None
    state_bytes: int | None


@dataclass(frozen=True)
class Publication:
    """One of the last publications."""

    id: str
    key: str
    broker: str
    arrived: datetime


class Overview:
    """Reads the tables of one lake, for all threads that serve pages."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.time) -> None:
        self.config, self._clock, self._lock = config, clock, threading.RLock()
        self.tables = Lake(config)
        self._kept: dict[tuple[str, str], tuple[float, object, Any]] = {}

    def _cached(
        self, table: str, what: str, make: Callable[[pa.dataset.Dataset], Any], since: datetime | None = None
    ) -> Any:
        """Return what is made of a table, made again when the table has a new version, or for another moment."""
        with self._lock:
            looked, version, value = self._kept.get((table, what), (-PAUSE, None, None))
            now = self._clock()
            if now - looked < PAUSE:
                return value
            newest = self.tables.opened(table).version(), since
            if newest != version:
                value = make(self.tables.dataset(table))
            self._kept[table, what] = now, newest, value
            return value

    # what flows

    def figures(self, window: str = "") -> Figures:
        """Return the figures of a window, one of `WINDOWS`. Raises `LacunaError` if a table is not there."""
        span = WINDOWS[window][1]
        minute = datetime.fromtimestamp(self._clock() // 60 * 60, UTC)
        since = minute - timedelta(seconds=span) if span else None
        sums: Counter[tuple[str, str, str]] = Counter()
        for (broker, link), values in self._summed(window, since).items():
            for name, value in zip(SUMMED, values, strict=True):
                sums[broker, link, name] += value
        sizes = self._sizes()
        flows = {}
        for a, b in self.config.overlay.directions():
            asked = sizes.get((b, a), {})
            carried, considered = sums[a, b, "forwarded"], sums[a, b, "publications"]
            flows[a, b] = Flow(considered, carried, asked.get("active") or 0, asked.get("passive") or 0)
        messages = sum(
            value for (_, link, name), value in sums.items() if name == "messages" and link not in (LOCAL, REGION)
        )
        standing = self.standing()
        counts = Counter(standing["broker"].to_pylist())
        links = len(self.config.overlay.brokers) - 1
        newest = max((row["epoch"] for row in sizes.values()), default=0)
        return Figures(
            flows,
            sum(value for (_, _, name), value in sums.items() if name == "delivered"),
            messages,
            self._changes(window, since) * links,
            counts,
            self._reject_count(window, since),
            sum(link == REGION and row["epoch"] == newest for (_, link), row in sizes.items()),
        )

    def _summed(self, window: str, since: datetime | None) -> dict[Direction, tuple[int, ...]]:
        def make(rows: pa.dataset.Dataset) -> dict[Direction, tuple[int, ...]]:
            found = rows.to_table(columns=["broker", "link", *SUMMED], filter=_later(since))
            sums = found.group_by(["broker", "link"]).aggregate([(name, "sum") for name in SUMMED])
            columns = [sums["broker"].to_pylist(), sums["link"].to_pylist()]
            values = zip(*(sums[f"{name}_sum"].to_pylist() for name in SUMMED), strict=True)
            return {(a, b): tuple(int(v or 0) for v in value) for a, b, value in zip(*columns, values, strict=True)}

        found: dict[Direction, tuple[int, ...]] = self._cached("metrics", f"sums {window}", make, since)
        return found

    def _sizes(self) -> dict[Direction, Row]:
        """Return the last row about each link, of clients (`LOCAL`) and of each region."""

        def make(rows: pa.dataset.Dataset) -> dict[Direction, Row]:
            columns = ["broker", "link", "active", "passive", "epoch", "batch"]
            table = rows.to_table(columns=columns)
            last = _last_of(table, ["broker", "link"])
            return {(row["broker"], row["link"]): row for row in last.to_pylist()}

        found: dict[Direction, Row] = self._cached("metrics", "sizes", make)
        return found

    def _changes(self, window: str, since: datetime | None) -> int:
        def make(rows: pa.dataset.Dataset) -> int:
            changed = ~pc.field("change").isin(["renew", "carry"])
            later = _later(since)
            return int(rows.count_rows(filter=changed if later is None else changed & later))

        return int(self._cached("subscriptions", f"changes {window}", make, since))

    def _reject_count(self, window: str, since: datetime | None) -> int:
        def make(rows: pa.dataset.Dataset) -> int:
            return int(rows.count_rows(filter=_later(since)))

        return int(self._cached("rejects", f"count {window}", make, since))

    # what stands

    def standing(self) -> pa.Table:
        """Return the subscriptions that stand: the last row of each, those that came last first."""

        def make(rows: pa.dataset.Dataset) -> pa.Table:
            columns = ["broker", "client", "subscription", "change", "arrived", "filter", "epoch", "batch", "seq"]
            table = rows.to_table(columns=columns)
            whole = table.filter((pc.field("batch") < -1) | (pc.field("change") == "carry"))["epoch"]
            if len(whole):  # the last life that recorded everything it began with
                table = table.filter(pc.field("epoch") >= pc.max(whole).as_py())
            last = _last_of(table, ["broker", "client", "subscription"])
            last = last.filter(~pc.field("change").isin(list(ENDED)))
            return last.sort_by([("epoch", "descending"), ("batch", "descending"), ("seq", "descending")])

        return self._cached("subscriptions", "standing", make)

    def named_subscriptions(self, id: str, client: str | None, broker: str | None) -> list[tuple[str, str, str]]:
        """Return broker, client and id of the subscriptions that were ever known by this name."""
        wanted = pc.field("subscription") == id
        for column, value in (("client", client), ("broker", broker)):
            wanted = wanted if value is None else wanted & (pc.field(column) == value)
        rows = self.tables.dataset("subscriptions").to_table(columns=["broker", "client"], filter=wanted)
        names = rows.group_by(["broker", "client"]).aggregate([]).sort_by([("client", "ascending")])[:NAMED]
        return [(row["broker"], row["client"], id) for row in names.to_pylist()]

    # publications

    def recent(self) -> tuple[list[Publication], Keys]:
        """Return the last publications, the newest first, and their points."""

        def make(_: pa.dataset.Dataset) -> tuple[list[Publication], Keys]:
            columns = ("publication", "publication_key", "broker", "arrived", "point")
            rows = self.tables.last("publications", RECENT, columns)[::-1]
            found = [
                Publication(row["publication"], row["publication_key"], row["broker"], moment(row["arrived"]))
                for row in rows
            ]
            return found, self.config.space.points([self.point_of(row) for row in rows])

        found: tuple[list[Publication], Keys] = self._cached("publications", "recent", make)
        return found

    def point_of(self, row: Row) -> Corner:
        """Return the keys of a row of `publications`. An attribute that it did not name is at its least."""
        space = self.config.space
        return tuple(
            a.low if row["point"].get(a.name) is None else a.key(row["point"][a.name]) for a in space.attributes
        )

    def way_of(self, key: str) -> tuple[Row | None, list[Row], list[Row]]:
        """Return a publication with its routes and deliveries."""
        found = self.tables.rows("publications", publication_key=key)
        if not found:
            return None, [], []
        columns = ("broker", "link", "hop", "action", "origin")
        routes = self.tables.rows("routes", columns, publication_key=key)
        deliveries = self.tables.rows("deliveries", ("broker", "client", "subscription", "hop"), publication_key=key)
        return found[-1], routes, deliveries

    def named(self, id: str) -> list[Row]:
        """Return some publications with an id."""
        columns = ["publication", "publication_key", "broker", "arrived"]
        rows = self.tables.dataset("publications").head(NAMED, columns=columns, filter=pc.field("publication") == id)
        found: list[Row] = rows.to_pylist()
        return found

    # rejects and history

    def rejects(self) -> list[Row]:
        """Return the last rejects, the newest first."""
        found: list[Row] = self._cached("rejects", "last", lambda _: self.tables.last("rejects", SHOWN)[::-1])
        return found

    def history(self, window: str = "1h") -> list[Moment]:
        """Return how it went in a window, in parts of equal length."""
        span = WINDOWS[window][1] or 86400
        step = span // POINTS
        end = int(self._clock()) // step * step + step
        begin = end - span

        def make(rows: pa.dataset.Dataset) -> list[Moment]:
            counts = ["subscribes", "unsubscribes", "delivered", "millis", "batches"]
            since = datetime.fromtimestamp(begin, UTC)
            table = rows.to_table(columns=[*SIZES, *counts, "arrived", "written"], filter=_later(since))
            before = rows.to_table(columns=list(SIZES), filter=pc.field("arrived") < since)
            return _history(table, _last_of(before, ["broker", "link"]), begin, step)

        found: list[Moment] = self._cached("metrics", f"history {window}", make, datetime.fromtimestamp(begin, UTC))
        return found

    def written(self) -> datetime | None:
        """Return when the last row of the tables was written, as far as is known."""

        def make(rows: pa.dataset.Dataset) -> datetime | None:
            found: datetime | None = pc.max(rows.to_table(columns=["written"])["written"]).as_py()
            return found

        moments: list[datetime | None] = [
            self._cached(table, "written", make) for table in ("metrics", "subscriptions")
        ]
        return max((m for m in moments if m is not None), default=None)


def _later(since: datetime | None) -> Any:
    return None if since is None else pc.field("arrived") >= since


def _last_of(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the last row for each value of these columns, by epoch, batch and, if it is there, `seq`."""
    codes = np.zeros(table.num_rows, np.int64)
    for name in names:
        column = table[name].combine_chunks().dictionary_encode()
        codes = np.unique(codes * (len(column.dictionary) + 1) + column.indices.to_numpy(), return_inverse=True)[1]
    keys = [table[name].to_numpy() for name in ("seq", "batch", "epoch") if name in table.schema.names]
    order = np.lexsort(keys)
    last = np.zeros(codes.max(initial=-1) + 1, np.int64)
    last[codes[order]] = order
    return table.take(pa.array(last))


def _history(table: pa.Table, before: pa.Table, begin: int, step: int) -> list[Moment]:
    parts: list[list[Row]] = [[] for _ in range(POINTS)]
    for row in sorted(table.to_pylist(), key=_place):
        place = int(row["arrived"].timestamp() - begin) // step
        if 0 <= place < POINTS:
            parts[place].append(row)
    state = _State()
    state.follow(sorted(before.to_pylist(), key=_place))
    moments = []
    for k, rows in enumerate(parts):
        state.follow(rows)
        moments.append(_moment_of(datetime.fromtimestamp(begin + k * step, UTC), rows, step, state.bytes))
    return moments


def _place(row: Row) -> tuple[int, int, int]:
    return row["epoch"] or 0, row["batch"], row["seq"] or 0


class _State:
    """The size of the state: of each link as its last row says, which holds until there is another."""

    def __init__(self) -> None:
        self._epoch = 0
        self._sizes: dict[tuple[str, str], int] = {}

    def follow(self, rows: Iterable[Row]) -> None:
        """Take the sizes that rows of `metrics` tell, in order."""
        for row in rows:
            if row["epoch"] != self._epoch:
                self._epoch, self._sizes = row["epoch"], {}
            if row["state_bytes"] is not None:
                self._sizes[row["broker"], row["link"]] = row["state_bytes"]

    @property
    def bytes(self) -> int | None:
        """How large it is, if that is known."""
        return sum(self._sizes.values()) if self._sizes else None


def _moment_of(at: datetime, rows: list[Row], step: int, state_bytes: int | None) -> Moment:
    own = [row for row in rows if row["link"] == LOCAL]
    regions = [row for row in rows if row["link"] == REGION]
    events = sum((row["subscribes"] or 0) + (row["unsubscribes"] or 0) for row in own)
    delays = [(row["written"] - row["arrived"]).total_seconds() for row in rows if row["written"] is not None]
    millis = [row["millis"] / max(row["batches"] or 1, 1) for row in regions if row["millis"]]
    return Moment(
        at,
        events / step,
        sum(row["delivered"] or 0 for row in own) / step,
        max(delays, default=None),
        max(millis) / 1000 if millis else None,
        state_bytes,
    )


def moment(text: str | datetime) -> datetime:
    """Return a moment that a table gives as text.

    >>> moment("2026-05-01T12:00:00Z").hour
    12
    """
    return text if isinstance(text, datetime) else datetime.fromisoformat(text)
