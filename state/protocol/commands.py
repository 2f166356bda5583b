"""Commands of an operator to a running system, on the topic `control`. The rest of that topic is in `control`.

    key command/...     {"command": "rebuild"}                                      recompute what strategies keep
                        {"command": "prune", "prune": "network", "prunings": 100, "links": ["oslo>paris"]}
                        {"command": "prune", "prune": "off"}                        prune nothing
                        {"command": "prune", "prune": "configured"}                 as the configuration says, again
                        {"command": "apply", "source": "state"}                     begin a new life

`apply` is for the holder of the prefix (`control`), the others are for every region. Without `links`, a command is for
all of them. A link keeps a command about pruning as an `Override` of its configured pruning, in its stored state, until
the next such command; restarts and changes of the configuration do not end it. No neighbour has to be told, because the
originals of what was heard are always kept.

A record that is no command is a reject, like any record that cannot be read: it is recorded, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from math import inf
from typing import Annotated, Literal, cast

import msgspec

from state.filters.pruning import DIMENSIONS, Dimension, Pruning
from state.protocol.events import Reject, once

COMMAND = "command/"
"""The beginning of the key of a command; the rest makes the key unique."""
OFF, CONFIGURED = "off", "configured"
MOST_SAID = 500
"""Characters of a reject's message: it quotes the record, which may be long."""
CHOICES: tuple[str, ...] = (*DIMENSIONS, OFF, CONFIGURED)


class Override(msgspec.Struct, array_like=True, frozen=True):
    """The pruning of a link in place of the configured one; None: it does not prune."""

    pruning: Pruning | None


class Tick(msgspec.Struct, frozen=True, tag_field="command", tag="tick"):
    """Time passes."""


class Rebuild(msgspec.Struct, frozen=True, tag_field="command", tag="rebuild", forbid_unknown_fields=True):
    """Every link recomputes what its strategy keeps."""


class Prune(
    msgspec.Struct, frozen=True, tag_field="command", tag="prune", forbid_unknown_fields=True, omit_defaults=True
):
    """These links, or all, prune in another way from now on.

    >>> Prune("memory", 5, links=("oslo>paris",)).override
    Override(pruning=Pruning(dimension='memory', prunings=5, worst=None))
    >>> Prune("off").override, Prune("configured").override
    (Override(pruning=None), None)
    """

    prune: Literal["network", "memory", "throughput", "off", "configured"]
    prunings: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    worst: Annotated[float, msgspec.Meta(ge=0)] | None = None
    links: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        if self.prune not in DIMENSIONS and (self.prunings is not None or self.worst is not None):
            raise ValueError(f"with {self.prune!r} there is nothing that prunings or worst could stop")
        if self.worst == inf:
            raise ValueError("worst is not a finite number")

    @property
    def override(self) -> Override | None:
        """Return the pruning override for the link, or None to prune as configured."""
        if self.prune == CONFIGURED:
            return None
        if self.prune == OFF:
            return Override(None)
        return Override(Pruning(cast(Dimension, self.prune), self.prunings, self.worst))

    def concerns(self, link: str) -> bool:
        """Return whether the command is for this link."""
        return self.links is None or link in self.links


class Apply(
    msgspec.Struct, frozen=True, tag_field="command", tag="apply", forbid_unknown_fields=True, omit_defaults=True
):
    """Begin a new life: from the state of this one, or from the topics; `force`: also if their beginning is gone.

    With the configuration `toml`, if it is given; `moves` are brokers, and those that their clients move to.
    """

    source: Literal["state", "topics"] = "state"
    force: bool = False
    toml: str = ""
    moves: dict[str, str] = {}


Command = Tick | Rebuild | Prune

write_command = msgspec.json.Encoder().encode


def read_command(value: bytes, links: Collection[str]) -> Rebuild | Prune | Apply | Reject:
    """Read the command in a record, or return the reject that it is. `links` are those of the overlay. Never raises."""
    try:
        command = msgspec.convert(json.loads(value.decode(), object_pairs_hook=once), Rebuild | Prune | Apply)
    except UnicodeDecodeError as error:
        return _refused("utf8", f"byte {error.start} is not UTF-8")
    except (ValueError, RecursionError) as error:
        return _refused("type" if isinstance(error, msgspec.ValidationError) else "json", str(error))
    named = command.links if isinstance(command, Prune) else None
    unknown = [link for link in named or () if link not in links]
    return _refused("broker", f"{unknown[0]!r} is not a link of the overlay") if unknown else command


def _refused(rule: str, why: str) -> Reject:
    return Reject(rule, f"a command: {why}"[:MOST_SAID])
