"""The topic `control` as a log of who holds a prefix and which lives it has had: compare and set by offset.

A **life** is one run of the whole system from a defined beginning; its number is the *epoch*. A system has one router
at a time, its *holder*. Kafka's sink cannot be fenced, so everything that is written is judged by its readers instead,
and all of them judge by this one log of one partition:

    key                value
    claim/<nonce>      {"after": 40, "who": "ann@host, process 7", "checkpoint": "host:/srv/checkpoint"}
    life/<epoch>       {"term": 52, "epoch": 3, "why": "...", "ends": {"links": {"0": 17}, ...}}
    tick               {"term": 52, "epoch": 3, "batch": 9, "offsets": {"publish": {"0": 5}, ...}, "released": false}
    command/<id>       see `commands`; of these, `apply` is for the holder
    declined/<offset>  {"term": 52, "asked": 60, "refused": ["..."]}: the holder does not do the command at this offset

A claim is valid if and only if `after` is the offset of the claim that is valid at that moment (null: there is none).
Its own offset is its *term*. Of two claims with the same `after`, the earlier offset wins; a claim by a process that
slept between reading and writing is void. Lives and ticks are void under any other term than the current one.

    offset   40 claim A (after -)     41 tick A     52 claim B (after 40)     53 claim C (after 40)     54 tick A
             A holds, term 40                       B holds, term 52          void: 40 is over          void

`ends` are the ends of the topics that the router writes, read just before the announcement. At or beyond them, output
of an earlier life is void: it comes from a router that does not know yet that it was succeeded (a zombie).

    topic      ... │ epoch 2: valid │ ends of 3 │ epoch 2: void    epoch 3: valid    epoch 9: foreign

The topic is compacted. That removes only ticks, of which the last one counts, so folding what is left gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec

from state.protocol.commands import COMMAND, Apply

CLAIM, LIFE, TICK, DECLINED = "claim/", "life/", "tick", "declined/"
"""Keys, or how keys begin."""
Judgement = Literal["valid", "void", "foreign"]
Offsets = dict[str, dict[str, int]]
"""Offsets by topic, named without the prefix, and partition."""


class Claim(msgspec.Struct, frozen=True):
    """A claim to a prefix: which claim it succeeds, who claims it, and for which checkpoint."""

    after: int | None
    who: str
    checkpoint: str


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    """The announcement of a life: why it begins, and where the output of the life before it ends.

    `aliases` are brokers that are gone, and those that their clients have moved to.
    """

    term: int
    epoch: int
    why: str
    ends: Offsets = {}
    aliases: dict[str, str] = {}


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tick of the holder: the last batch that it has committed, and the offsets behind that batch."""

    term: int
    epoch: int
    batch: int = -1
    offsets: Offsets = {}
    released: bool = False


class Declined(msgspec.Struct, frozen=True):
    """The holder's answer to a command to begin a new life, at this offset, that it does not do: why, in sentences."""

    term: int
    asked: int
    refused: list[str]


class Record(NamedTuple):
    """A record of the topic; `time` is when Kafka took it, in microseconds."""

    offset: int
    time: int
    key: bytes | None
    value: bytes | None


class Lives(NamedTuple):
    """The lives that were announced, in order, and the offsets of their announcements."""

    announced: tuple[Life, ...] = ()
    offsets: tuple[int, ...] = ()

    @property
    def newest(self) -> Life | None:
        """The life that is not ended; None before the first."""
        return self.announced[-1] if self.announced else None

    def before(self, offset: int) -> Lives:
        """Return the lives that were announced before an offset."""
        count = sum(announced < offset for announced in self.offsets)
        return Lives(self.announced[:count], self.offsets[:count])

    def judge(self, epoch: int, topic: str, partition: int, offset: int) -> Judgement:
        """Judge a record of `links`, `records` or `deliveries` by its epoch and position. O(lives).

        As long as no life was announced, everything is valid: an earlier version of Lacuna announced none.

        >>> lives = Lives((Life(1, 1, "first"), Life(9, 2, "apply", {"links": {"0": 50}})))
        >>> [lives.judge(1, "links", 0, offset) for offset in (49, 50)], lives.judge(2, "links", 0, 50)
        (['valid', 'void'], 'valid')
        >>> lives.judge(3, "links", 0, 51), lives.judge(2, "links", 0, 49)
        ('foreign', 'foreign')
        """
        if not self.announced:
            return "valid"
        for life, later in zip(self.announced, (*self.announced[1:], None), strict=True):
            if life.epoch == epoch:
                if offset < _end(life, topic, partition):
                    return "foreign"  # nothing of a life is written before its announcement
                return "valid" if later is None or offset < _end(later, topic, partition) else "void"
        return "foreign"


def _end(life: Life, topic: str, partition: int) -> int:
    return life.ends.get(topic, {}).get(str(partition), 0)


class Ordered(NamedTuple):
    """A command to begin a new life, and its offset."""

    offset: int
    command: Apply


class Prefix(NamedTuple):
    """The content of the topic up to an offset: the valid claim, its last tick, and the lives.

    `term` is the offset of the claim, `since` when Kafka took it, `ticked` the offset of the last tick. `asked` is the
    last command to begin a new life, as long as neither a life, nor another holder, nor the answer `declined` has
    followed. `next` is the offset after the last record, `latest` when Kafka took the newest one.
    """

    claim: Claim | None = None
    term: int | None = None
    since: int = 0
    beat: Beat | None = None
    ticked: int = -1
    lives: Lives = Lives()
    asked: Ordered | None = None
    declined: Declined | None = None
    next: int = 0
    latest: int = 0

    @property
    def is_released(self) -> bool:
        """True if nobody holds the prefix: it was never claimed, or the holder has said that it stops."""
        return self.claim is None or (self.beat is not None and self.beat.term == self.term and self.beat.released)


def fold(records: Iterable[Record], before: Prefix | None = None) -> Prefix:
    """Return the content of the topic after these records, which follow those that gave `before`.

    A record that is none of the above, or is void, changes nothing.
    """
    prefix = before or Prefix()
    for record in records:
        latest = max(prefix.latest, record.time)
        prefix = _after(prefix, record)._replace(next=record.offset + 1, latest=latest)
    return prefix


def _after(prefix: Prefix, record: Record) -> Prefix:
    key = (record.key or b"").decode(errors="replace")
    if key.startswith(CLAIM):
        claim = _read(record.value, Claim)
        if claim is not None and claim.after == prefix.term:
            return prefix._replace(claim=claim, term=record.offset, since=record.time, asked=None)
    elif key.startswith(LIFE):
        life = _read(record.value, Life)
        if life is not None and life.term == prefix.term and _is_next(prefix.lives, life) and key == life_key(life):
            lives = prefix.lives
            announced = Lives((*lives.announced, life), (*lives.offsets, record.offset))
            return prefix._replace(lives=announced, asked=None)
    elif key == TICK:
        beat = _read(record.value, Beat)
        if beat is not None and beat.term == prefix.term:
            return prefix._replace(beat=beat, ticked=record.offset)
    elif key.startswith(COMMAND):
        asked = _read(record.value, Apply)
        return prefix if asked is None else prefix._replace(asked=Ordered(record.offset, asked))
    elif key.startswith(DECLINED):
        declined = _read(record.value, Declined)
        if declined is not None and declined.term == prefix.term:
            waits = prefix.asked is not None and prefix.asked.offset > declined.asked
            return prefix._replace(declined=declined, asked=prefix.asked if waits else None)
    return prefix


def _is_next(lives: Lives, life: Life) -> bool:
    return lives.newest is None or life.epoch > lives.newest.epoch


def life_key(life: Life) -> str:
    """Return the key of an announcement."""
    return f"{LIFE}{life.epoch}"


T = TypeVar("T", Claim, Life, Beat, Declined, Apply)


def _read(value: bytes | None, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(value or b"", type=kind)
    except msgspec.DecodeError:
        return None


write = msgspec.json.Encoder().encode


def count_since(life: Life | None, topic: str, ends: Mapping[int, int]) -> int:
    """Return how many records the partitions of a topic have taken since a life began; `ends` are their ends now."""
    return sum(end - (0 if life is None else _end(life, topic, partition)) for partition, end in ends.items())
