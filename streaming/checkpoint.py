"""The identity of a checkpoint: for which configuration it was made, and which life of the system it is.

Beside Spark's own files lies `lacuna.json`, written once when the checkpoint is new. It holds the epoch (microseconds
since 1970 at that moment, so a later life has a larger one) and everything of the configuration that the stored state
depends on. What does not fit is refused before anything starts.
"""

from __future__ import annotations

import json
import time
from typing import Any

from pyarrow import fs

from state.config import Config
from state.errors import StateError
from state.protocol.messages import LOCAL
from state.storage.codec import describe
from streaming.paths import file_system, refusals
from streaming.settings import Settings

FILE = "lacuna.json"
FORMAT = 1


def identity(config: Config, partitions: int) -> dict[str, Any]:
    """What must stay the same as long as a checkpoint is used."""
    groups = [
        describe(config.setup(broker, link))
        for broker, neighbours in config.overlay.neighbours.items()
        for link in (LOCAL, *neighbours)
    ]
    return {"prefix": config.kafka.prefix, "partitions": partitions, "groups": sorted(groups)}


def adopt(config: Config, partitions: int) -> Settings:
    """The settings for a run on the configured checkpoint, which is made if it is new."""
    place = _Place(config.lake.checkpoint)
    stored = place.read() if place.has() else place.create(identity(config, partitions))
    _compare(stored["identity"], identity(config, partitions), place.file)
    return Settings(config, int(stored["epoch"]))


def known(config: Config) -> Settings:
    """The settings of a checkpoint that must be there, whatever its partitions."""
    place = _Place(config.lake.checkpoint)
    if not place.has():
        raise StateError(
            f"{place.file}: there is no such checkpoint. Remedy: run the job first, or name another configuration"
        )
    stored = place.read()
    _compare(stored["identity"], identity(config, int(stored["identity"]["partitions"])), place.file)
    return Settings(config, int(stored["epoch"]))


class _Place:
    """The folder of a checkpoint, and the file in it that says what it is."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._system, self._folder = file_system(path)
        self.file = f"{self._folder}/{FILE}"

    def has(self) -> bool:
        return bool(self._system.get_file_info(self.file).is_file)

    def create(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Write the identity of a new checkpoint; it appears whole or not at all."""
        made = {"format": FORMAT, "epoch": time.time_ns() // 1000, "identity": identity}
        with refusals("lake.checkpoint", self._path):
            self._system.create_dir(self._folder)
            self._refuse_strangers()
            draft = f"{self._folder}/.{FILE}"
            with self._system.open_output_stream(draft) as file:
                file.write(json.dumps(made, indent=1).encode())
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

    def read(self) -> dict[str, Any]:
        try:
            with self._system.open_input_stream(self.file) as file:
                stored = json.loads(file.read())
            if stored["format"] != FORMAT:
                raise StateError(
                    f"{self.file}: format {stored['format']} is unknown. "
                    "Remedy: run the Lacuna that wrote it, or a later one"
                )
            int(stored["epoch"]), dict(stored["identity"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"{self.file}: the checkpoint's identity is damaged ({error}). "
                "Remedy: restore the checkpoint from a copy, or start with an empty one"
            ) from None
        return dict(stored)


def _compare(stored: dict[str, Any], wanted: dict[str, Any], file: str) -> None:
    for key in wanted:
        if stored.get(key) != wanted[key]:
            difference = _difference(stored.get(key), wanted[key], key)
            raise StateError(
                f"{file}: the checkpoint was made for another configuration: {difference}. "
                "Remedy: go back to that configuration, or start with an empty checkpoint (events are then read again)"
            )


def _difference(stored: object, wanted: object, key: str) -> str:
    if isinstance(stored, list) and isinstance(wanted, list):
        gone, new = sorted(set(stored) - set(wanted)), sorted(set(wanted) - set(stored))
        return f"stored {gone[:1] or 'nothing'}, configured {new[:1] or 'nothing'} ({len(gone)} and {len(new)} differ)"
    return f"{key} was {stored!r} and is {wanted!r}"
