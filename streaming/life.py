"""Lives on disk: a folder for each beginning of the system, below `[lake].checkpoint`.

    lives/3/life.json       what the life is (below); written last, so a folder without it is unfinished
    lives/3/seed/paris      the prepared state of a region, where it does not begin from nothing
    lives/3/prologue        records to be sent when the life is announced, before or beside the router's
    lives/3/prologue.sent   there once all of them are sent
    lives/3/router/         Spark's checkpoint of the router, which belongs to this life alone

`life.json` says everything that must stay the same as long as the life goes on:

    epoch, why    its number, and the reason for its beginning
    earlier       the epochs of the lives before it
    identity      everything of the configuration that the stored state depends on
    words         the same in the words of the configuration file, for people
    toml          the configuration file itself: the state of a life can be read only with its own
    aliases       brokers that are gone, and those that their clients have moved to
    regions       how the overlay was cut: names, Spark keys, brokers. "auto" is resolved only here, so that another
                  machine with other cores goes on with the same regions
    links         the partition of each channel of the topic `links`
    records       the partition of each channel of the topic `records`
    deliveries    the number of partitions over which clients are spread
    topics        the id that Kafka gave to each topic that the queries read: a topic that was deleted and made again
                  has another id, and the offsets of the checkpoint mean nothing in it
    starts        the offsets at which the router begins
    seeded        whether regions begin from `seed`

A checkpoint that an earlier version made has one life, in the folder itself: `lacuna.json` and `router/`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from pyarrow import fs

from state.config import Config
from state.errors import StateError
from state.protocol.control import Offsets
from state.routing.link import Setup
from state.storage.codec import describe
from streaming.paths import absolute, file_system, refusals
from streaming.settings import Part, Settings
from streaming.stops import ROUTER, stopped

FILE = "life.json"
FORMAT = 3
FIRST_FILE, FIRST_FORMAT = "lacuna.json", 2
"""The file and the format of the version that knew no lives."""
FIRST_IDENTITY = {"engine.state": "row"}
"""What was not said while there was no choice."""
SENT = "prologue.sent"
READ = ("subscribe", "unsubscribe", "publish", "links", "control", "records")
"""The topics that the queries read."""
ORDER, STRATEGY = "the order of attributes", "the strategy of "
MOST_SAID = 3
"""Differences that a message names."""
RETURN = "Remedy: go back to that configuration, or change the system to this one: lacuna apply"


class Damaged(StateError):
    """A file of a checkpoint cannot be read; `found` says which, and why."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(str(stopped(ROUTER["checkpoint damaged"], found)))


class Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the file."""

    format: int
    epoch: int
    identity: dict[str, Any]
    regions: list[Part]
    links: dict[str, int]
    records: dict[str, int]
    deliveries: int
    topics: dict[str, str] = {}
    why: str = "made by an earlier version"
    earlier: list[int] = []
    starts: Offsets = {}
    seeded: bool = False
    words: dict[str, str] = {}
    toml: str = ""
    aliases: dict[str, str] = {}


class Sent(msgspec.Struct, array_like=True):
    """A record of the prologue: its topic without the prefix, partition, key, value and headers."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]] = []


def identity(config: Config, partitions: int) -> dict[str, Any]:
    """Return what must stay the same as long as a life goes on."""
    brokers = [line for setups in config.setups().values() for line in describe(setups).splitlines()]
    regions = config.overlay.regions
    return {
        "prefix": config.kafka.prefix,
        "partitions": partitions,
        "overlay.regions": [list(part) for part in regions] if isinstance(regions, tuple) else regions or "auto",
        "engine.state": config.state,
        "brokers": sorted(brokers),
    }


def words(config: Config) -> dict[str, str]:
    """Return what the stored state depends on, in the words of the configuration file."""
    found = {ORDER: ", ".join(attribute.name for attribute in config.space.attributes)}
    for a in config.space.attributes:
        domain = ", ".join(a.values) if a.kind == "category" else f"{a.value(a.low)} to {a.value(a.high)}"
        found[f"space.{a.name}"] = f"{a.kind}, {domain}"
        if a.borders:
            found[f"cells.{a.name}.borders"] = ", ".join(str(a.value(border)) for border in a.borders)
    directions = sorted(config.overlay.directions())
    found |= {f"the broker {broker}": "" for broker in sorted(config.overlay.brokers)}
    found |= {f"the link {a}-{b}": "" for a, b in directions if a < b}
    found["routing.remember"] = f"{config.remember / 1e6:g}"
    return found | {f"{STRATEGY}{a}>{b}": _strategy(config.setup(a, b)) for a, b in directions}


def _strategy(setup: Setup) -> str:
    spec = setup.spec
    parameters = [f"{key} = {value}" for key, value in (*spec.parameters, ("covering", spec.covering))]
    return ", ".join([spec.name, *parameters])


def stored_of(settings: Settings, partitions: int, why: str, topics: Mapping[str, str], *, seeded: bool) -> Stored:
    """Return the file of a new life."""
    return Stored(
        format=FORMAT,
        epoch=settings.epoch,
        identity=identity(settings.config, partitions),
        regions=list(settings.parts),
        links=dict(settings.links),
        records=dict(settings.records),
        deliveries=settings.deliveries,
        topics={name: topic for name, topic in topics.items() if name in READ},
        why=why,
        earlier=sorted(settings.earlier),
        starts=settings.starts,
        seeded=seeded,
        words=words(settings.config),
        toml=settings.config.text,
        aliases=dict(settings.aliases),
    )


def difference(
    stored: Stored, config: Config, partitions: int | None = None, besides: Collection[str] = ()
) -> str | None:
    """Return in what, `besides` these, a configuration differs from the one that a life was made for; None: nothing."""
    found = differences(stored, config, partitions, besides)
    more = [f"{len(found) - MOST_SAID} more differ"] if len(found) > MOST_SAID else []
    return "; ".join([*found[:MOST_SAID], *more]) or None


def differences(
    stored: Stored, config: Config, partitions: int | None = None, besides: Collection[str] = ()
) -> list[str]:
    """Return in what, `besides` these, a configuration differs from the one that a life was made for, in sentences.

    `partitions` is the number that is wanted; None: as many as the life has.
    """
    there = FIRST_IDENTITY | stored.identity
    wanted = identity(config, int(there["partitions"]) if partitions is None else partitions)
    keys = [key for key in wanted if key not in besides and there.get(key) != wanted[key]]
    found = [_changed(key, there[key], wanted[key]) for key in keys if key != "brokers"]
    if "brokers" in keys:
        found += _in_words(stored.words, words(config)) or ["space, links or strategies are others"]
    return found


def _in_words(there: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return in what two configurations differ. Of links that come or go, the strategies are not mentioned."""
    if not there:
        return []
    strategies = [key for key in wanted if key.startswith(STRATEGY)]
    others = {key for key in {*there, *wanted} if not key.startswith(STRATEGY) and key != ORDER}
    order = [(names.split(", ") if names else []) for names in (there.get(ORDER, ""), wanted[ORDER])]
    found = (
        [_changed(ORDER, there[ORDER], wanted[ORDER])] if order[0] != order[1] and {*order[0]} == {*order[1]} else []
    )
    for key in sorted(others):
        if key not in there:
            found.append(f"{key} is added" + (f": {wanted[key]}" if wanted[key] else ""))
        elif key not in wanted:
            found.append(f"{key} is removed")
        elif there[key] != wanted[key]:
            found.append(_changed(key, there[key], wanted[key]))
    return found + _strategies({key: (there[key], wanted[key]) for key in strategies if key in there})


def _strategies(both: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return which strategies of links that stay change; those that change alike in one sentence."""
    changes: dict[tuple[str, str], list[str]] = {}
    for key, change in both.items():
        if change[0] != change[1]:
            changes.setdefault(change, []).append(key.removeprefix(STRATEGY))
    return [
        _changed(f"{STRATEGY}{'every link' if len(links) == len(both) > 1 else ', '.join(links)}", *change)
        for change, links in changes.items()
    ]


def _changed(what: str, before: Any, now: Any) -> str:
    return f"{what} was {before}, and is {now}"


def refuse_other_topics(stored: Stored, folder: str, prefix: str) -> None:
    """Raise `StateError` if a life was made for topics with another prefix."""
    theirs = stored.identity["prefix"]
    if theirs != prefix:
        raise stopped(ROUTER["other topics"], f"{folder}: kafka.prefix was {theirs!r}, and is {prefix!r}")


class Folder:
    """The lives below a checkpoint's path.

    Folders are named as Spark needs them, with the scheme of an address (`s3a://bucket/...`); file systems know names
    without it.
    """

    def __init__(self, path: str) -> None:
        self.path, self.root = path, absolute(path)
        self._system, name = file_system(path)
        self._scheme = self.root.removesuffix(name)

    # reading

    def epochs(self) -> list[int]:
        """Return the epochs of the lives that are complete, in order."""
        found = self._names(f"{self.root}/lives")
        lives = [int(name) for name in found if name.isdigit() and self._has(f"{self.root}/lives/{name}/{FILE}")]
        if self._has(f"{self.root}/{FIRST_FILE}"):
            lives.append(self._first_epoch())
        return sorted(lives)

    def _first_epoch(self) -> int:
        """Return the epoch of the life in the folder itself; 0, which is none's, if its file cannot be read."""
        try:
            return self._first().epoch
        except Damaged:
            return 0

    def of(self, epoch: int) -> str:
        """Return the folder of a life."""
        place = f"{self.root}/lives/{epoch}"
        return place if self._has(f"{place}/{FILE}") or not self._has(f"{self.root}/{FIRST_FILE}") else self.root

    def read(self, epoch: int) -> Stored:
        """Read the file of a life. Raises `StateError` if it is damaged, or of another version."""
        folder = self.of(epoch)
        return self._first() if folder == self.root else self._read(f"{folder}/{FILE}", FORMAT)

    def _first(self) -> Stored:
        return self._read(f"{self.root}/{FIRST_FILE}", FIRST_FORMAT)

    def _read(self, file: str, format: int) -> Stored:
        try:
            content = json.loads(self._bytes(file))
            if isinstance(content, dict) and content["format"] != format:
                raise Damaged(f"{file}: format {content['format']} is not the one of this version, {format}")
            stored = msgspec.convert(content, Stored)
            int(stored.identity["partitions"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{file} ({error})") from None
        return stored

    def settings(self, config: Config, epoch: int, besides: Collection[str] = ()) -> Settings:
        """Return the settings of a life, with which this configuration must agree `besides` these."""
        stored, folder = self.read(epoch), self.of(epoch)
        refuse_other_topics(stored, folder, config.kafka.prefix)
        other = difference(stored, config, besides=besides)
        if other is not None:
            raise StateError(f"{folder}: the life was made for another configuration: {other}. {RETURN}")
        return Settings(
            config,
            stored.epoch,
            tuple(stored.regions),
            stored.links,
            stored.records,
            stored.deliveries,
            frozenset(stored.earlier),
            folder,
            stored.starts,
            stored.seeded,
            stored.aliases,
            (FIRST_IDENTITY | stored.identity)["engine.state"],
        )

    def batches(self, epoch: int, log: str) -> list[int]:
        """Return the batches in one of Spark's logs (`offsets`: planned, `commits`: committed), in order."""
        return sorted(int(name) for name in self._names(f"{self.of(epoch)}/router/{log}") if name.isdigit())

    def offsets(self, epoch: int, batch: int, prefix: str) -> Offsets:
        """Return the offsets behind a planned batch, by topic without the prefix."""
        file = f"{self.of(epoch)}/router/offsets/{batch}"
        try:
            lines = self._bytes(file).decode().splitlines()
            found = [json.loads(line) for line in lines[2:] if line.startswith("{")]
        except (OSError, ValueError) as error:
            raise Damaged(f"{file} ({error})") from None
        if not found:
            raise Damaged(f"{file} (it names no offsets)")
        return {topic.removeprefix(f"{prefix}."): ends for source in found for topic, ends in source.items()}

    def prologue(self, epoch: int) -> list[Sent] | None:
        """Return the records that a life still has to send; None if there are none, or all are sent."""
        folder = self.of(epoch)
        if self._has(f"{folder}/{SENT}") or not self._has(f"{folder}/prologue"):
            return None
        try:
            return msgspec.msgpack.decode(self._bytes(f"{folder}/prologue"), type=list[Sent])
        except msgspec.DecodeError as error:
            raise Damaged(f"{folder}/prologue ({error})") from None

    def refuse_strangers(self) -> None:
        """Refuse a folder that is no checkpoint of Lacuna, and not empty."""
        strangers = sorted(name for name in self._names(self.root) if not name.startswith(".") and name not in OURS)
        if strangers and not self.epochs():
            raise StateError(
                f"lake.checkpoint = {self.path!r}: the folder holds {', '.join(strangers[:3])} but no life, "
                "so it is not a checkpoint of Lacuna. Remedy: name another folder, or empty this one"
            )

    # writing

    def write(self, stored: Stored, seed: Mapping[str, bytes], prologue: Iterable[Sent]) -> None:
        """Prepare a life. Its file comes last: a folder without it is unfinished."""
        folder = f"{self.root}/lives/{stored.epoch}"
        self.remove(stored.epoch)
        with refusals("lake.checkpoint", self.path):
            self._system.create_dir(self._name(f"{folder}/seed"))
            for region, row in seed.items():
                self._put(f"{folder}/seed/{region}", row)
            sends = list(prologue)
            if sends:
                self._put(f"{folder}/prologue", msgspec.msgpack.encode(sends))
            self._put(f"{folder}/{FILE}", msgspec.json.format(msgspec.json.encode(stored), indent=1))

    def note_sent(self, epoch: int) -> None:
        """Note that the prologue of a life is sent."""
        self._put(f"{self.of(epoch)}/{SENT}", b"")

    def remove(self, epoch: int) -> None:
        """Remove the folder of a life."""
        with refusals("lake.checkpoint", self.path), suppress(FileNotFoundError):
            self._system.delete_dir(self._name(f"{self.root}/lives/{epoch}"))

    def _put(self, file: str, content: bytes) -> None:
        """Write a file, which appears whole or not at all."""
        folder, _, name = self._name(file).rpartition("/")
        with self._system.open_output_stream(f"{folder}/.{name}") as draft:
            draft.write(content)
        self._system.move(f"{folder}/.{name}", f"{folder}/{name}")

    def _name(self, path: str) -> str:
        return path.removeprefix(self._scheme)

    def _bytes(self, file: str) -> bytes:
        with self._system.open_input_stream(self._name(file)) as stream:
            return bytes(stream.read())

    def _has(self, file: str) -> bool:
        return bool(self._system.get_file_info(self._name(file)).is_file)

    def _names(self, folder: str) -> list[str]:
        found = self._system.get_file_info(fs.FileSelector(self._name(folder), allow_not_found=True))
        return [info.base_name for info in found]


OURS = ("lives", "archive", "archive-marks")
"""The names in a checkpoint's folder."""


def known(config: Config) -> Settings:
    """Return the settings of the newest life of a checkpoint, which must be there."""
    folder = Folder(config.lake.checkpoint)
    epochs = folder.epochs()
    if not epochs:
        raise StateError(
            f"{folder.root}: there is no such checkpoint. Remedy: run the job first, or name another configuration"
        )
    return folder.settings(config, epochs[-1])


def seed_of(folder: str, region: str) -> bytes:
    """Return the prepared state of a region."""
    system, root = file_system(folder)
    try:
        with system.open_input_stream(f"{root}/seed/{region}") as stream:
            return bytes(stream.read())
    except OSError as error:
        found = f"{folder}: the prepared state of the region {region} cannot be read ({error})"
        raise stopped(ROUTER["checkpoint damaged"], found) from None
