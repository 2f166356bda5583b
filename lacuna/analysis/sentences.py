"""What is told to a person, as values: sentences, each with its link and moment, and the facts behind them.

The command line, the API and the console render the same values, so all three say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from state.protocol.messages import Name
from state.storage.rows import name_value


@dataclass(frozen=True)
class Sentence:
    """One thing that is said: about which link (`oslo>paris`, or nothing), when it happened, what the state then is.

    `state` is `told`, `withheld`, `cancelled` or `dropped` of a subscription on a link; `forward` or `stop` of an event
    on a link; `reached` or `not reached` of the whole; or nothing.
    """

    text: str
    link: str = ""
    time: str = ""
    state: str = ""


@dataclass(frozen=True)
class Story:
    """A story: what it is about, its sentences in the order in which they are told, and the facts."""

    about: str
    sentences: tuple[Sentence, ...]
    facts: Any

    @property
    def text(self) -> str:
        """All sentences as one paragraph."""
        return " ".join(sentence.text for sentence in self.sentences)

    def as_json(self) -> dict[str, Any]:
        """Return the story as plain values: `about`, `sentences`, and each of the facts."""
        return {"about": self.about, "sentences": plain(self.sentences), **plain(self.facts)}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: a dataclass as an object, a name as in the tables.

    >>> plain((Name("oslo", "ann", "s1"), 3))
    [{'home': 'oslo', 'client': 'ann', 'subscription': 's1'}, 3]
    """
    if isinstance(value, Name):
        return name_value(value)
    if is_dataclass(value):
        return {key: plain(inner) for key, inner in _public(value)}
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _public(value: Any) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(value, field.name)) for field in fields(value))
