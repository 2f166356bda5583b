"""Errors that are ours to raise.

    LacunaError
    ├── ConfigError       the configuration breaks a rule; names value, rule and remedy
    ├── StateError        stored state cannot be used (damaged, foreign, unknown version)
    └── InvariantError    a rule of the system is broken; the job must stop

A bad *event* is none of these: it is data, a `Reject` (see `events`), and the stream goes on.
"""

from __future__ import annotations


class LacunaError(Exception):
    """Base of all errors that Lacuna raises on purpose; its text is fit to be shown to a person."""


class ConfigError(LacunaError):
    """The configuration breaks a rule.

    >>> print(ConfigError("overlay.links", ["a", "a"], "a broker cannot be its own neighbour", "remove the pair"))
    overlay.links = ['a', 'a']: a broker cannot be its own neighbour. Remedy: remove the pair.
    """

    def __init__(self, where: str, value: object, rule: str, remedy: str) -> None:
        super().__init__(f"{where} = {value!r}: {rule}. Remedy: {remedy}.")
        self.where, self.value, self.rule, self.remedy = where, value, rule, remedy


class StateError(LacunaError):
    """Stored state cannot be used: damaged, written for another configuration, or of an unknown version."""


class InvariantError(LacunaError):
    """A rule that must always hold does not. Going on would lose publications, so the job stops."""
