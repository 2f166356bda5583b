"""The identity of a checkpoint: for which configuration it was made, and which life of the system it is.

Beside Spark's own files lies `lacuna.json`, written once when the checkpoint is new:

    epoch         microseconds since 1970 at that moment, so a later life has a larger one
    identity      everything of the configuration that the stored state depends on
    regions       how the overlay was cut: names, Spark keys, brokers. "auto" is resolved only here, so that another
                  machine with other cores goes on with the same regions
    links         the partition of each channel of the topic `links`
    records       the partition of each channel of the topic `records`
    deliveries    the number of partitions over which clients are spread
    topics        the id that Kafka gave to each topic that the queries read: a topic that was deleted and made again
                  has another id, and the offsets of the checkpoint mean nothing in it

A configuration that does not fit is refused before anything starts. On a local path, a lock makes sure that two
programs that start at once do not both make the checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pyarrow import fs

from state.config import Config
from state.errors import StateError
from state.storage.codec import describe
from streaming.claims import alone
from streaming.paths import absolute, file_system, refusals
from streaming.settings import Part, Settings, Spread, settle

FILE = "lacuna.json"
FORMAT = 2
READ = ("subscribe", "unsubscribe", "publish", "links", "control", "records")
"""The topics that the queries read."""
BEGIN = (
    "Remedy: name another lake.checkpoint and another lake.path, and start: everything that the topics hold is then "
    "read again, standing subscriptions included; or restore the topics from a copy"
)
RETURN = "Remedy: go back to that configuration, or start with an empty checkpoint (events are then read again)"


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


def identity(config: Config, partitions: int) -> dict[str, Any]:
    """Return what must stay the same as long as a checkpoint is used."""
    brokers = [line for setups in config.setups().values() for line in describe(setups).splitlines()]
    regions = config.overlay.regions
    return {
        "prefix": config.kafka.prefix,
        "partitions": partitions,
        "overlay.regions": [list(part) for part in regions] if isinstance(regions, tuple) else regions or "auto",
        "brokers": sorted(brokers),
    }


def adopt(
    config: Config,
    partitions: int,
    cores: int | None = None,
    spread: Spread | None = None,
    topics: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings for a run on the configured checkpoint, which is made if it is new.

    `cores` counts only for a new checkpoint. `spread` (the partitions of the topics that the router writes) and
    `topics` (ids by name) are compared with those of an existing one.
    """
    place = _Place(config.lake.checkpoint)

    def make() -> Stored:
        made = settle(config, time.time_ns() // 1000, partitions, cores, spread)
        return Stored(
            format=FORMAT,
            epoch=made.epoch,
            identity=identity(config, partitions),
            regions=list(made.parts),
            links=dict(made.links),
            records=dict(made.records),
            deliveries=made.deliveries,
            topics={name: topic for name, topic in (topics or {}).items() if name in READ},
        )

    stored = place.read() if place.has() else place.create(make)
    settings = _checked(config, partitions, stored, place.file)
    _refuse_other_topics(stored.topics, topics or {}, config.kafka.prefix, place.file)
    _refuse_fewer_partitions(settings, spread, place.file)
    return settings


def known(config: Config) -> Settings:
    """Return the settings of a checkpoint that must be there, whatever its partitions."""
    place = _Place(config.lake.checkpoint)
    if not place.has():
        raise StateError(
            f"{place.file}: there is no such checkpoint. Remedy: run the job first, or name another configuration"
        )
    stored = place.read()
    return _checked(config, int(stored.identity["partitions"]), stored, place.file)


def _checked(config: Config, partitions: int, stored: Stored, file: str) -> Settings:
    _compare(stored.identity, identity(config, partitions), file)
    parts = tuple(stored.regions)
    return Settings(config, stored.epoch, parts, stored.links, stored.records, stored.deliveries)


class _Place:
    """The folder of a checkpoint, and the file in it that says what it is."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._system, self._folder = file_system(path)
        self.file = f"{self._folder}/{FILE}"

    def has(self) -> bool:
        return bool(self._system.get_file_info(self.file).is_file)

    def create(self, make: Callable[[], Stored]) -> Stored:
        """Write the identity of a new checkpoint, unless another program was faster; it appears whole or not at all."""
        with alone(f"{absolute(self._path)}/.{FILE}.lock", self._path):
            if self.has():
                return self.read()
            made = make()
            with refusals("lake.checkpoint", self._path):
                self._system.create_dir(self._folder)
                self._refuse_strangers()
                draft = f"{self._folder}/.{FILE}"
                with self._system.open_output_stream(draft) as file:
                    file.write(msgspec.json.format(msgspec.json.encode(made), indent=1))
                self._system.move(draft, self.file)
            return made

    def _refuse_strangers(self) -> None:
        names = (info.base_name for info in self._system.get_file_info(fs.FileSelector(self._folder)))
        strangers = sorted(name for name in names if not name.startswith("."))
        if strangers:
            raise StateError(
                f"lake.checkpoint = {self._path!r}: the folder holds {', '.join(strangers[:3])} but no {FILE}, "
                "so it is not a checkpoint of Lacuna. Remedy: name another folder, or empty this one"
            )

    def read(self) -> Stored:
        """Read the identity. Raises `StateError` if it is damaged, or of another version."""
        try:
            with self._system.open_input_stream(self.file) as file:
                content = json.loads(file.read())
            if isinstance(content, dict) and content["format"] != FORMAT:
                raise StateError(
                    f"{self.file}: format {content['format']} is not the one of this version, {FORMAT}. "
                    "Remedy: run the Lacuna that wrote it, or start with an empty checkpoint"
                )
            stored = msgspec.convert(content, Stored)
            int(stored.identity["partitions"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"{self.file}: the checkpoint's identity is damaged ({error}). "
                "Remedy: restore the checkpoint from a copy, or start with an empty one"
            ) from None
        return stored


def _compare(stored: dict[str, Any], wanted: dict[str, Any], file: str) -> None:
    for key in wanted:
        if stored.get(key) != wanted[key]:
            difference = _difference(stored.get(key), wanted[key], key)
            raise StateError(f"{file}: the checkpoint was made for another configuration: {difference}. {RETURN}")


def _refuse_other_topics(stored: Mapping[str, str], there: Mapping[str, str], prefix: str, file: str) -> None:
    remade = [name for name, topic in stored.items() if name in there and there[name] != topic]
    if remade:
        names = ", ".join(f"{prefix}.{name}" for name in remade)
        raise StateError(
            f"{file}: deleted and made again since the checkpoint was made: {names}. The offsets of the checkpoint do "
            f"not fit, and records would be skipped. {BEGIN}"
        )


def _refuse_fewer_partitions(settings: Settings, spread: Spread | None, file: str) -> None:
    """Refuse topics that lack a partition into which the router writes."""
    if spread is None:
        return
    needed = {
        "links": (max(settings.links.values(), default=0) + 1, spread.links),
        "records": (max(settings.records.values(), default=0) + 1, spread.records),
        "deliveries": (settings.deliveries, spread.deliveries),
    }
    for name, (least, there) in needed.items():
        if there < least:
            topic = settings.topics.of(name)
            raise StateError(
                f"{file}: the topic {topic} has {there} partitions, and the checkpoint was made for {least}. Remedy: "
                f"add partitions to it until there are {least}"
            )


def _difference(stored: object, wanted: object, key: str) -> str:
    if key == "brokers" and isinstance(stored, list) and isinstance(wanted, list):
        gone, new = sorted(set(stored) - set(wanted)), sorted(set(wanted) - set(stored))
        return f"stored {gone[:1] or 'nothing'}, configured {new[:1] or 'nothing'} ({len(gone)} and {len(new)} differ)"
    return f"{key} was {stored!r} and is {wanted!r}"
