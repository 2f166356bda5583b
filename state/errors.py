"""Errors that are ours to raise.

    LacunaError
    ├── ConfigError       the configuration breaks a rule; names value, rule and remedy
    ├── StateError        stored state cannot be used (damaged, foreign, unknown version)
    └── InvariantError    a rule of the system is broken; the job must stop

A bad *event* is none of these: it is data, a `Reject` (see `events`), and the stream goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 100
"""Characters of a value that a message shows."""


def shown(value: object, most: int = LONGEST) -> str:
    """A value as messages show it: a very long one without its middle.

    >>> shown("abc"), shown(10**400, 9)
    ("'abc'", '1000 ... 0000 (401 characters)')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python writes no ints of more than 4,300 digits, and no depths
        return "something too long to show"
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]} ({len(text):,} characters)"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a question for somebody who may have mistyped a word; nothing if no known word is near.

    >>> nearest("prise", ["price", "volume"]), nearest("x", ["price"])
    (" (did you mean 'price'?)", '')
    """
    found = get_close_matches(word, list(known), 1, 0.7) if len(word) <= LONGEST else []
    return f" (did you mean {found[0]!r}?)" if found else ""


class LacunaError(Exception):
    """Base of all errors that Lacuna raises on purpose; its text is fit to be shown to a person."""


class ConfigError(LacunaError):
    """The configuration breaks a rule; `value` is None where something is missing.

    >>> print(ConfigError("overlay.links", ["a", "a"], "a broker cannot be its own neighbour", "remove the pair"))
    overlay.links = ['a', 'a']: a broker cannot be its own neighbour. Remedy: remove the pair.
    >>> print(ConfigError("overlay", None, "this section is missing", "add [overlay]"))
    overlay: this section is missing. Remedy: add [overlay].
    """

    def __init__(self, where: str, value: object, rule: str, remedy: str) -> None:
        what = where if value is None else f"{where} = {shown(value)}"
        super().__init__(f"{what}: {rule}. Remedy: {remedy}.")
        self.where, self.value, self.rule, self.remedy = where, value, rule, remedy


class StateError(LacunaError):
    """Stored state cannot be used: damaged, written for another configuration, or of an unknown version."""


class InvariantError(LacunaError):
    """A rule that must always hold does not. Going on would lose publications, so the job stops."""
