"""Strategies beside each other, on the same events: what each sends, keeps and takes, as subscriptions grow in number.

A strategy is run on the first n subscriptions of the file, whatever is done to them later, and on all publications; n
doubles up to all of them. So a curve shows how a cost grows, and its last point is the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from lacuna.simulate import simulate
from state.config import Config
from state.errors import LacunaError
from state.strategies import Spec

HALVINGS = 4
WARM = 200
"""Lines from either end, simulated before the clock starts: what is used for the first time loads compiled kernels."""


@dataclass(frozen=True)
class Measure:
    """A quantity that is compared: its name in the results, its title, and a sentence that says what it is."""

    name: str
    title: str
    about: str


MEASURES = (
    Measure("subscription_messages", "messages", "messages about subscriptions over links, cancellations included"),
    Measure("table_entries", "entries", "subscriptions (mics: ranges) that brokers have heard from neighbours"),
    Measure(
        "publication_messages", "carried", "publications carried over links; one that crosses three links counts thrice"
    ),
    Measure("false_positives", "false", "of these, those that were of no use behind the link"),
    Measure("state_kb", "kB", "the state of all brokers as it is stored"),
    Measure("seconds", "seconds", "the simulation, on this machine"),
)


@dataclass(frozen=True)
class Result:
    """What one strategy did with the first `subscriptions` of the file."""

    strategy: str
    subscriptions: int
    subscription_messages: int
    table_entries: int
    publication_messages: int
    false_positives: int
    state_kb: float
    seconds: float
    deliveries: int
    rejects: int

    def as_json(self) -> dict[str, Any]:
        """Return the result as `--json` prints it."""
        return asdict(self)


class _Event(msgspec.Struct):
    kind: Any = None
    broker: Any = None
    client: Any = None
    id: Any = None


_decode = msgspec.json.Decoder(_Event).decode


def compare(config: Config, specs: Sequence[Spec], lines: Iterable[bytes], step: Callable[[str], None]) -> list[Result]:
    """Run each strategy at each size: by strategy in the order given, then by size."""
    events = [line for line in lines if line.strip()]
    numbers = list(_numbers(events))
    total = max((n for n in numbers if n is not None), default=0)
    if not total:
        raise LacunaError("there is no subscription to compare strategies on. Remedy: name a file that has some")
    results = []
    for spec in specs:
        chosen = config.with_strategy(spec)
        step(f"{spec}: preparing")
        simulate(chosen, events[:WARM] + events[-WARM:])
        for size in sizes(total):
            step(f"{spec}: {size:,} subscriptions")
            first = [line for line, n in zip(events, numbers, strict=True) if n is None or n <= size]
            results.append(_result(spec, size, simulate(chosen, first)))
    return results


def sizes(total: int) -> list[int]:
    """Return the numbers of subscriptions that are compared, the last of them all.

    >>> sizes(1000), sizes(3)
    ([62, 125, 250, 500, 1000], [1, 3])
    """
    return sorted({size for k in range(HALVINGS + 1) if (size := total >> k)})


def _numbers(events: Iterable[bytes]) -> Iterator[int | None]:
    """For each event: the number of its subscription by first appearance, from 1; None if it is about none."""
    seen: dict[tuple[str, ...], int] = {}
    for line in events:
        try:
            event = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield None  # a reject, whatever the size
            continue
        if event.kind not in ("subscribe", "unsubscribe"):
            yield None
            continue
        key = tuple(map(repr, (event.broker, event.client, event.id)))
        yield seen.setdefault(key, len(seen) + 1)


def _result(spec: Spec, size: int, summary: dict[str, Any]) -> Result:
    return Result(
        strategy=str(spec),
        subscriptions=size,
        subscription_messages=summary["subscription_messages"],
        table_entries=summary["table_entries"],
        publication_messages=summary["publication_messages"],
        false_positives=summary["false_positives"] + summary["false_forwards"],
        state_kb=round(summary["state_bytes"] / 1000, 1),
        seconds=summary["seconds"],
        deliveries=summary["deliveries"],
        rejects=summary["rejects"],
    )


def at_the_end(results: Sequence[Result]) -> list[Result]:
    """Return each strategy's result on the whole file."""
    whole = max(result.subscriptions for result in results)
    return [result for result in results if result.subscriptions == whole]


def lost(results: Sequence[Result]) -> dict[str, int]:
    """Return how many deliveries each strategy lost against the one that delivers most, where it lost some."""
    whole = at_the_end(results)
    most = max(result.deliveries for result in whole)
    return {result.strategy: most - result.deliveries for result in whole if result.deliveries < most}
