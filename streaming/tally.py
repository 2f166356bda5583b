"""Numbers about links, taken from the rows of `metrics` and `rejects` as the archive writes them.

Counters begin at zero when the job starts, as Prometheus expects of a process. Sizes are those of the last row of each
link, also of rows that were written before the start (`watch.BACK` commits of them are read).

A system of more than `MOST_DIRECTIONS` would have too many labels. Then only links between regions keep theirs, and
those inside a region are summed up as `region>*`. Clients and subscriptions are never labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from state.protocol.channel import direction_name
from state.protocol.messages import LOCAL
from streaming.exposition import Metric, Sample
from streaming.settings import Settings

MOST_DIRECTIONS = 200
REGION = "*"
"""The link of a row of `metrics` that is about a region as a whole."""
ROUTED = {"forwarded": "forward", "stopped": "stop"}
DECIDED = ("forward", "withhold", "promote", "cancel", "drop")
SIZED = ("heard", "active", "passive", "state_bytes")
COUNTED = (*ROUTED, *DECIDED, "delivered", "false_positives")
COLUMNS = ("broker", "link", *COUNTED, *SIZED)
"""The columns of `metrics` that are read."""


class Tally:
    """What the rows that were seen so far add up to."""

    def __init__(self, settings: Settings) -> None:
        self.begin_life(settings)
        self.counts: Counter[tuple[str, str]] = Counter()
        """By direction (`oslo>paris`, `oslo>local`) and counter."""
        self.rejects: Counter[str] = Counter()
        self._sizes: dict[tuple[str, str], Mapping[str, Any]] = {}

    def begin_life(self, settings: Settings) -> None:
        """Take the regions and links of a new life."""
        self._parts = settings.part_of
        self._sums_up = len(list(settings.config.overlay.directions())) > MOST_DIRECTIONS

    def add(self, row: Mapping[str, Any], *, count: bool = True) -> None:
        """Take a row of `metrics`; with `count` False only its sizes."""
        self._sizes[row["broker"], row["link"]] = {name: row.get(name) or 0 for name in SIZED}
        if count:
            label = direction_name(row["broker"], row["link"])
            for name in COUNTED:
                self.counts[label, name] += row.get(name) or 0

    @property
    def delivered(self) -> int:
        """Deliveries to clients."""
        return sum(count for (_, name), count in self.counts.items() if name == "delivered")

    @property
    def standing(self) -> dict[str, int]:
        """The standing subscriptions of clients, by region."""
        return self._by_region({place: sizes["heard"] for place, sizes in self._sizes.items() if place[1] == LOCAL})

    def carried(self) -> dict[str, int]:
        """Return the publications forwarded, by direction of a link."""
        return {label: count for (label, name), count in self.counts.items() if name == "forwarded" and count}

    def _by_region(self, values: Mapping[tuple[str, str], int]) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (broker, _), value in values.items():
            if broker in self._parts:
                found[self._parts[broker].name] += value
        return dict(found)

    # as metrics

    def metrics(self) -> Iterator[Metric]:
        """Yield what there is to expose."""
        yield Metric(
            "link_publications_total",
            "counter",
            "Publications considered for a link.",
            self._counted({name: {"action": action} for name, action in ROUTED.items()}),
        )
        yield Metric(
            "link_decisions_total",
            "counter",
            "Decisions about subscriptions on a link.",
            self._counted({name: {"action": name} for name in DECIDED}),
        )
        yield Metric(
            "link_false_positives_total",
            "counter",
            "Publications from a neighbour that went nowhere.",
            self._counted({"false_positives": {}}),
        )
        yield Metric(
            "link_received_total",
            "counter",
            "Publications that came over a link to the broker before the sign.",
            self._received(),
        )
        yield Metric("deliveries_total", "counter", "Deliveries to clients.", (Sample({}, self.delivered),))
        rejects = tuple(Sample({"rule": rule}, count) for rule, count in sorted(self.rejects.items()))
        yield Metric("rejects_total", "counter", "Refused records, by the rule that they broke.", rejects)
        yield from self._gauges()

    def _gauges(self) -> Iterator[Metric]:
        kept = {place: sizes for place, sizes in self._sizes.items() if place[1] not in (LOCAL, REGION)}
        sums: Counter[tuple[str, str]] = Counter()
        for (broker, link), sizes in kept.items():
            for state in ("active", "passive"):
                sums[self._label(broker, link), state] += sizes[state]
        yield Metric(
            "link_subscriptions",
            "gauge",
            "Subscriptions that a neighbour is told of (active), or that are withheld from it (passive).",
            tuple(Sample({"link": link, "state": state}, count) for (link, state), count in sorted(sums.items())),
        )
        yield Metric("subscriptions", "gauge", "Standing subscriptions of clients.", _by("region", self.standing))
        stored = self._by_region({place: sizes["state_bytes"] for place, sizes in self._sizes.items()})
        yield Metric("region_state_bytes", "gauge", "Size of the stored state of a region.", _by("region", stored))

    def _counted(self, names: Mapping[str, Mapping[str, str]]) -> tuple[Sample, ...]:
        sums: Counter[tuple[str, str]] = Counter()
        for (direction, name), count in self.counts.items():
            broker, _, link = direction.partition(">")
            if name in names and link not in (LOCAL, REGION):
                sums[self._label(broker, link), name] += count
        return tuple(Sample({"link": link, **names[name]}, count) for (link, name), count in sorted(sums.items()))

    def _received(self) -> tuple[Sample, ...]:
        """Return what came in over each link: all that the neighbour has forwarded."""
        sums: Counter[str] = Counter()
        for direction, count in self.carried().items():
            sender, _, receiver = direction.partition(">")
            sums[self._label(receiver, sender)] += count
        return _by("link", dict(sorted(sums.items())))

    def _label(self, broker: str, link: str) -> str:
        home, other = self._parts.get(broker), self._parts.get(link)
        if self._sums_up and home is not None and home == other:
            return f"{home.name}>*"
        return direction_name(broker, link)


def _by(label: str, values: Mapping[str, float]) -> tuple[Sample, ...]:
    return tuple(Sample({label: key}, value) for key, value in values.items())
