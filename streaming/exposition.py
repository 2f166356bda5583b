"""Numbers as Prometheus reads them: its text format, version 0.0.4.

# HELP lacuna_kafka_up Whether Kafka answers.
# TYPE lacuna_kafka_up gauge
lacuna_kafka_up 1
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

PREFIX = "lacuna_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]


class Sample(NamedTuple):
    """A value of a metric; `suffix` is that of a histogram's parts."""

    labels: Labels
    value: float
    suffix: str = ""


class Metric(NamedTuple):
    """A metric with all its samples. A metric without samples is not written."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    about: str
    samples: tuple[Sample, ...]


def text_of(metrics: Iterable[Metric]) -> str:
    """Return metrics as text.

    >>> print(text_of([Metric("up", "gauge", "Whether.", (Sample({"query": 'a"b'}, 1.0),))]), end="")
    # HELP lacuna_up Whether.
    # TYPE lacuna_up gauge
    lacuna_up{query="a\\"b"} 1
    """
    return "".join(f"{line}\n" for metric in metrics if metric.samples for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    name = f"{PREFIX}{metric.name}"
    yield f"# HELP {name} {metric.about}"
    yield f"# TYPE {name} {metric.kind}"
    for labels, value, suffix in metric.samples:
        written = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{name}{suffix}{f'{{{written}}}' if written else ''} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


@dataclass
class Histogram:
    """How many values lie at or below each of some bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self, labels: Labels) -> Iterator[Sample]:
        """Yield the parts of the histogram."""
        below = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            yield Sample({**labels, "le": bound}, below, "_bucket")
        yield Sample(labels, self.total, "_sum")
        yield Sample(labels, below, "_count")
