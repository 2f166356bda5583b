"""A copy of the whole overlay, made from the tables by the core's own code: what each link was told and has heard.

    subscriptions ──▶ clients of each broker                                   } one region of the whole overlay,
    decisions     ──▶ told[M] of each link (`Told.adopt`) ──requests──▶ heard   } to be asked, never changed by that

What the links decided is taken over as it was decided, not decided again: the router's arrivals came in an order that
no table has. Links that speak in ranges (strategy `mics`) are a function of what stands, so there the subscriptions are
fed to the region, which decides as the router did.

Of each subscription only the last decision on a link counts, and the last by which the neighbour was told. So a long
history is read in columns, and only what counts is taken over, in order.

A copy is exact, with these exceptions, which `Mirror.vague` names by link:

* a link that is pruned carries more: what publications taught it is not in the tables (nor is it there which links
  an operator prunes by command: these are not named);
* a strategy that is not exact (`negative-approx`) keeps more than its active list, and may decide otherwise;
* where a shape is leaving, what the neighbour still has may be told more generously than it was;
* rows that `[lake] keep` has removed are not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lacuna.analysis.decision_log import GONE, LAST_DECISION, TOLD, filter_of, name_from, name_of
from lacuna.analysis.lake import Lasting, Order, Tables, order_of
from state.config import Config
from state.errors import LacunaError
from state.filters.where import Asked, asked
from state.geometry.boxes import Boxes, Shape, boxes_where
from state.protocol.arrivals import RANKS, Arrival, Channel
from state.protocol.ledger import Limits
from state.protocol.messages import LOCAL, Name, Stamp, Subscribe, Unsubscribe
from state.protocol.reasons import Reason
from state.routing.decision import Decision
from state.routing.link import Setup
from state.routing.region import Region
from state.routing.subscriptions import Subscription
from state.routing.told import Told
from state.space import ValueRefused, timestamp_key
from state.storage.rows import Row

CHANGES = ("broker", "client", "subscription", "change", "filter", "arrived")
DECIDED = (
    *("broker", "link", "home", "client", "subscription", "origin", "action", "reason", "cause"),
    *("covered_by", "shape", "arrived"),
)
APPROXIMATE = ("negative-approx", "probabilistic", "zcurve")
ENDED = ("unsubscribe", "expire")
LAST_CHANGE = Lasting(("broker", "client", "subscription"), "change", ENDED)
FROM_TABLES = Channel(RANKS["subscribe"], 0, "tables")
SAYS = {str(reason): reason for reason in Reason}


class Mirror:
    """The overlay as the tables know it. `refresh` takes over what was added to them.

    `region` holds the core's own brokers and links; it must not be changed by whoever asks it.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables, self.config = tables, tables.config
        self._begin()

    def _begin(self) -> None:
        self._changes = self.tables.tail("subscriptions", CHANGES, LAST_CHANGE)
        self._decisions = self.tables.tail("decisions", DECIDED, LAST_DECISION)
        self.region = Region("mirror", _unpruned(self.config), measure="never", logs=False)
        self.asked: dict[Name, Asked] = {}
        """What each client asks for that stands."""
        self._shapes: dict[Name, tuple[Any, Boxes]] = {}
        self._versions = 0
        self._anew: dict[tuple[str, str], tuple[object, list[Name]]] = {}
        self._begun: int | None = None
        self._as_of: str | None = None

    @property
    def as_of(self) -> str | None:
        """The moment at which Kafka took the last event that the copy knows of; None if it knows of none."""
        return self._as_of

    def vague(self, broker: str, link: str) -> str | None:
        """Return why a link may do otherwise than its copy, as a person is told; None where it does the same."""
        spec = self.config.spec_of(broker, link)
        if spec.pruning is not None:
            return "this link is pruned: it may carry more"
        if spec.name in APPROXIMATE:
            return f"strategy {spec.name} is approximate: it may decide otherwise"
        return None

    @property
    def by_ranges(self) -> bool:
        """True if links speak in ranges."""
        return self.config.spec.by_ranges

    def refresh(self) -> bool:
        """Take over what was added to the tables. Return whether anything was. Raises `LacunaError` if it does not fit.

        It costs about a millisecond where nothing was.
        """
        try:
            return self._refresh()
        except ValueRefused as error:
            self._begin()
            remedy = "name the configuration that the job runs with, or wait until the archive has caught up"
            what = f"{self.tables.where}: rows do not fit the configuration ({error})"
            raise LacunaError(f"{what}. Remedy: {remedy}") from None
        except Exception:
            self._begin()  # some rows were taken over, and others were not
            raise

    def _refresh(self) -> bool:
        changes, decisions = self._changes.poll(), self._decisions.poll()
        if self._begun is not None and any(row["batch"] < -1 for row in (*changes, *decisions)):
            self._begin()  # a new life decides everything again
            changes, decisions = self._changes.poll(), self._decisions.poll()
        self._take(changes, decisions)
        return bool(changes or decisions)

    def _take(self, changes: list[Row], decisions: list[Row]) -> None:
        """Take over rows. At first those of the last life that decided everything again, with what they lean on."""
        if self._begun is None:
            self._begun = max(map(self.tables.begun, ("subscriptions", "decisions")))
            changes, decisions = ([r for r in rows if order_of(r)[0] >= self._begun] for rows in (changes, decisions))
            decisions = self._completed(decisions)
        for row in changes:
            self._change(row)
        for row in [] if self.by_ranges else decisions:
            self._adopt(row)
        arrived = [row["arrived"] for row in (*changes, *decisions) if row["arrived"]]
        self._as_of = max([*arrived, *filter(None, [self._as_of])], key=timestamp_key, default=None)

    def _completed(self, decisions: list[Row]) -> list[Row]:
        """Add the decisions about coverers that are gone, or changed, as long as certificates name their old shapes."""
        told: set[tuple[str, str, Name]] = set()
        lacking: set[tuple[str, str, Name]] = set()
        for row in decisions:
            link = row["broker"], row["link"]
            if row["action"] in TOLD:
                told.add((*link, name_of(row)))
                continue
            told.discard((*link, name_of(row)))
            named = {(*link, name_from(value)) for value in row["covered_by"] or ()}
            lacking |= named - told
        if not lacking:
            return decisions
        ids, last = sorted({name.id for *_, name in lacking}), order_of(decisions[-1])
        more = self.tables.rows("decisions", DECIDED, since=self._begun or 0, subscription=ids)
        every = {_place(row): row for row in decisions}
        for row in more:
            if (row["broker"], row["link"], name_of(row)) in lacking and order_of(row) <= last:
                every[_place(row)] = row
        return sorted(every.values(), key=order_of)

    # what clients ask for

    def _change(self, row: Row) -> None:
        name = Name(row["broker"], row["client"], row["subscription"])
        if name.broker not in self.region.brokers:
            return
        if row["change"] in ENDED:
            self._shapes.pop(name, None)
            if self.asked.pop(name, None) is not None:
                self._unsubscribe(name)
            return
        got = asked(self.config.space, filter_of(row["filter"]))
        if self.asked.get(name) != got:
            self._subscribe(name, got)
            self.asked[name] = got

    def _subscribe(self, name: Name, got: Asked) -> None:
        if self.by_ranges:
            self._feed(Subscribe(name, got.boxes, self.stamp(), tree=got.tree, exact=got.exact))
            return
        broker = self.region.brokers[name.broker]
        if name in broker.clients:
            broker.clients.remove(name)
        self._versions += 1
        row = Subscription(self._versions, name, LOCAL, Shape.of(got.boxes), got.tree, got.exact)
        broker.subscriptions.add(row)
        broker.clients.add(name, got.boxes, got.tree, got.exact)

    def _unsubscribe(self, name: Name) -> None:
        if self.by_ranges:
            self._feed(Unsubscribe(name, self.stamp()))
        else:
            broker = self.region.brokers[name.broker]
            broker.clients.remove(name)
            broker.subscriptions.remove(name)

    def _feed(self, request: Subscribe | Unsubscribe) -> None:
        arrival = Arrival(FROM_TABLES, self._versions, self._versions, request.name.broker, LOCAL, request)
        self.region.take([arrival])

    def stamp(self) -> Stamp:
        """Return a stamp that is later than all before it."""
        self._versions += 1
        return Stamp(None, self._versions, 0, self._versions)

    # what links decided

    def _adopt(self, row: Row) -> None:
        """Take over a decision, and let the neighbour hear what it was told by it."""
        broker, neighbour = row["broker"], row["link"]
        here = self.region.brokers.get(broker)
        if here is None or neighbour not in here.links:
            return  # the link was removed since
        heard = self.region.brokers[neighbour].links[broker].heard
        told = here.links[neighbour].told
        if not isinstance(told, Told):
            return
        for decision in told.adopt(self._decision(row), self._certified_with(row)):
            for request in decision.messages():
                if isinstance(request, Subscribe):
                    self._versions += 1
                    shape = Shape.of(request.boxes)
                    heard.apply(Subscription(self._versions, request.name, broker, shape, request.tree))
                elif isinstance(request, Unsubscribe):
                    heard.apply(request)

    def _certified_with(self, row: Row) -> list[Name]:
        """Return those that the link certified anew before this row, because of the same event."""
        link, event = (row["broker"], row["link"]), (order_of(row)[:2], row["arrived"], row.get("cause"))
        if self._anew.get(link, (None, []))[0] != event:
            self._anew[link] = event, []
        names = self._anew[link][1]
        if row["action"] == "withhold":
            names.append(name_of(row))
        cause = row.get("cause")
        return names if cause and name_from(cause) == name_of(row) else []

    def _decision(self, row: Row) -> Decision:
        name, action = name_of(row), row["action"]
        boxes = None if action in GONE else self._boxes(name, row["shape"])
        if boxes is None and action not in GONE:
            action = "cancel"  # it has ended meanwhile, and the decision about that is on its way
        got = self.asked.get(name)
        tree = got.tree if got is not None and got.boxes == boxes else None
        reason = SAYS.get(row["reason"].rpartition(": ")[2], Reason.GAP)
        coverers = tuple(name_from(value) for value in row["covered_by"] or ())
        return Decision(action, name, row["origin"], reason, boxes or (), coverers, tree=tree)

    def _boxes(self, name: Name, shape: list[Row] | None) -> Boxes | None:
        """Return the boxes of a recorded shape. A large one is not recorded: those that its client asks for."""
        if shape is None:
            return self.asked[name].boxes if name in self.asked else None
        known = self._shapes.get(name)
        if known is None or known[0] != shape:
            known = shape, tuple(box for where in shape for box in boxes_where(self.config.space, where))
            self._shapes[name] = known
        return known[1]


def _place(row: Row) -> tuple[str, str, Order, Name]:
    return row["broker"], row["link"], order_of(row), name_of(row)


def _unpruned(config: Config) -> Mapping[str, Mapping[str, Setup]]:
    """Return the setups of all brokers without pruning, which cannot be copied, and without limits on what stands."""

    def free(setup: Setup) -> Setup:
        return replace(setup, spec=replace(setup.spec, pruning=None), limits=Limits())

    return {broker: {link: free(setup) for link, setup in links.items()} for broker, links in config.setups().items()}
