"""Strategies by name, and the specification of one with its parameters.

To add a strategy: a module with a `Strategy` whose constructor takes its parameters with defaults, an entry in
`STRATEGIES`, and the rules for its parameters in `PARAMETERS`. Nothing else changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, cast

from state.errors import ConfigError, nearest
from state.filters.pruning import DIMENSIONS, Pruning
from state.matching.boxlist import BoxList
from state.space import Space
from state.strategies.auto import Auto
from state.strategies.base import Dump, Strategy, Verdict
from state.strategies.cover import Cover
from state.strategies.flood import Flood
from state.strategies.hybrid import Hybrid
from state.strategies.negative import NegativeOrUnion
from state.strategies.negative_approx import NegativeApprox
from state.strategies.probabilistic import Probabilistic
from state.strategies.union import Union
from state.strategies.zcurve import MOST_BITS, ZCurveCover

__all__ = ["PARAMETERS", "STRATEGIES", "Dump", "Spec", "Strategy", "Verdict"]

STRATEGIES: dict[str, type[Strategy]] = {
    s.name: s for s in (Flood, Cover, ZCurveCover, Union, NegativeOrUnion, NegativeApprox, Probabilistic, Auto, Hybrid)
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for the value of a parameter: a test, and the same in words."""

    holds: Callable[[object], bool]
    words: str


def one_of(*values: str) -> Rule:
    return Rule(lambda value: value in values, " or ".join(repr(value) for value in values))


def whole(least: int, most: int = 2**63 - 1) -> Rule:
    return Rule(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
        f"a whole number of at least {least}, below 2^63" if most == 2**63 - 1 else f"from {least} to {most}",
    )


def fraction(words: str, least: float) -> Rule:
    return Rule(
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and least <= value < 1, words
    )


YES_OR_NO = Rule(lambda value: isinstance(value, bool), "true or false")


def dims_rule(value: object) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"selective:[1-9][0-9]{0,2}", value) is not None
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        return False
    return 0 < len(value) == len(set(value))


DIMS = Rule(dims_rule, "a list of attributes, each once, or 'selective:N'")
BITS = Rule(lambda value: whole(1).holds(value) and cast(int, value) <= 63, "a whole number from 1 to 63")
INNER = Rule(lambda value: isinstance(value, str | Mapping), "the name or table of another strategy")
INSIDE = ("auto", "union", "negative", "cover")
"""Strategies that `hybrid` may be put in front of: those that are exact about what they see."""
BY_RANGES = "mics"
"""The strategy under which links speak in ranges of a curve; not a `Strategy`, see `rangetold`."""


def amount() -> Rule:
    return Rule(
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf,
        "a finite number of at least 0",
    )


COMMON = {
    "covering": one_of("lazy", "active"),
    "prune": one_of(*DIMENSIONS),
    "prunings": whole(0),
    "worst": amount(),
}
PARAMETERS: dict[str, dict[str, Rule]] = {
    "flood": {},
    "cover": {"index": one_of("auto", "tree", "rows")},
    "zcurve": {
        "epsilon": fraction("a number of at least 0 and below 1", 0.0),
        "bits": whole(1, MOST_BITS),
        "budget": whole(1),
        "stop": one_of("level", "share"),
    },
    "union": {"budget": whole(1)},
    "negative": {
        "index": one_of("tree", "rtree"),
        "order": one_of("overlap", "fixed"),
        "join": one_of("never", "doubling"),
        "most": whole(1),
    },
    "negative-approx": {
        "k": whole(0),
        "bound": one_of("constant", "dynamic"),
        "select": one_of("ratio", "benefit", "cost"),
        "order": one_of("overlap", "fixed"),
        "unsubscribe": one_of("approximate", "exact"),
        "drift": whole(0),
        "variant": one_of("bounded", "printed"),
    },
    "probabilistic": {
        "delta": fraction("a number above 0 and below 1", 1e-300),
        "trials": whole(1),
        "audit": YES_OR_NO,
        "capped": one_of("withhold", "forward"),
    },
    "auto": {"budget": whole(1)},
    "hybrid": {"inner": INNER, "bits": BITS, "dims": DIMS},
    BY_RANGES: {
        "bits": BITS,
        "cells": one_of("equal", "fitted"),
        "gap": whole(0),
        "max_ranges": whole(1),
        "dims": DIMS,
    },
}


@dataclass(frozen=True)
class Spec:
    """A strategy's name and its parameters, checked; `covering` and `pruning` belong to all of them.

    Of a link B>M, the strategy decides what B tells M, and the pruning is of what B heard from M.

    >>> Spec.of({"name": "union", "budget": 5}, "routing.strategy")
    Spec(name='union', parameters=(('budget', 5),), covering='lazy', pruning=None)
    """

    name: str
    parameters: tuple[tuple[str, Any], ...] = ()
    covering: str = "lazy"
    pruning: Pruning | None = None

    @classmethod
    def of(cls, given: object, where: str) -> Spec:
        """The specification that a configuration gives as a name or a table; `ConfigError` if it breaks a rule."""
        table: Mapping[str, object] = {"name": given} if isinstance(given, str) else _table(given, where)
        name = table.get("name")
        if name is None:
            remedy = f"add name, one of {', '.join(PARAMETERS)}"
            raise ConfigError(where, dict(table), "this table does not name a strategy", remedy)
        if not isinstance(name, str) or name not in PARAMETERS:
            rule = f"no such strategy{nearest(str(name), PARAMETERS)}"
            raise ConfigError(where, name, rule, f"choose one of {', '.join(PARAMETERS)}")
        rules = {**COMMON, **PARAMETERS[name]}
        parameters = {key: value for key, value in table.items() if key != "name"}
        for key, value in parameters.items():
            _check_parameter(name, key, value, rules, where)
        covering = str(parameters.pop("covering", "lazy"))
        pruning = _pruning(parameters, where)
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
        if "inner" in plain:
            plain["inner"] = _inner(plain["inner"], f"{where}.inner")
        return cls(name, tuple(sorted(plain.items())), covering, pruning)

    @property
    def by_ranges(self) -> bool:
        """Do links under this strategy speak in ranges, not in boxes?"""
        return self.name == BY_RANGES

    def build(self, space: Space, active: BoxList) -> Strategy:
        """The strategy itself, on top of a list of active subscriptions."""
        given = {key: value.build if isinstance(value, Spec) else value for key, value in self.parameters}
        return STRATEGIES[self.name](space, active, **given)

    @property
    def proves(self) -> bool:
        """Is nothing ever withheld without a proof?"""
        return self.by_ranges or STRATEGIES[self.name].proves

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        """The name and the parameters; every row about a decision has it."""
        extra = dict(self.parameters) | ({} if self.covering == "lazy" else {"covering": self.covering})
        if self.pruning is not None:
            given = {"prunings": self.pruning.prunings, "worst": self.pruning.worst}
            extra |= {
                "prune": self.pruning.dimension,
                **{key: value for key, value in given.items() if value is not None},
            }
        return self.name + "".join(f" {key}={_said(value)}" for key, value in sorted(extra.items()))


def _said(value: object) -> str:
    if isinstance(value, Spec):
        return f"({value})" if value.parameters else str(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _pruning(parameters: dict[str, Any], where: str) -> Pruning | None:
    """The pruning among parameters, which it is taken out of."""
    dimension, stops = parameters.pop("prune", None), {k: parameters.pop(k, None) for k in ("prunings", "worst")}
    if dimension is not None:
        return Pruning(dimension, **stops)
    for key, value in stops.items():
        if value is not None:
            rule = f"there is nothing to stop without prune = {' or '.join(repr(d) for d in DIMENSIONS)}"
            raise ConfigError(f"{where}.{key}", value, rule, f"add prune, or remove {key}")
    return None


def _inner(given: object, where: str) -> Spec:
    spec = Spec.of(given, where)
    if spec.name not in INSIDE or spec != Spec(spec.name, spec.parameters):
        raise ConfigError(
            where, str(spec), f"inside hybrid there is one of {', '.join(INSIDE)}, lazy", "choose one of these"
        )
    return spec


def _table(given: object, where: str) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise ConfigError(where, given, "a strategy is a name or a table with a name", 'write strategy = "auto"')
    return given


def _check_parameter(name: str, key: str, value: object, rules: Mapping[str, Rule], where: str) -> None:
    if key not in rules:
        raise ConfigError(f"{where}.{key}", value, f"strategy {name} has no such parameter", f"use {', '.join(rules)}")
    if not rules[key].holds(value):
        raise ConfigError(f"{where}.{key}", value, f"it must be {rules[key].words}", "change or remove it")
