"""The identity of a checkpoint: for which configuration it was made, and which life of the system it is.

Beside Spark's own files lies `lacuna.json`, written once when the checkpoint is new. It holds the epoch (microseconds
since 1970 at that moment, so a later life has a larger one) and everything of the configuration that the stored state
depends on. What does not fit is refused before anything starts.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from state.codec import describe
from state.config import Config
from state.errors import LacunaError, StateError
from state.messages import LOCAL
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
    folder = Path(config.lake.checkpoint)
    file = folder / FILE
    known = _read(file) if file.exists() else _create(folder, file, config, partitions)
    _compare(known["identity"], identity(config, partitions), file)
    return Settings(config, int(known["epoch"]))


def known(config: Config) -> Settings:
    """The settings of a checkpoint that must be there, whatever its partitions."""
    file = Path(config.lake.checkpoint) / FILE
    if not file.exists():
        raise StateError(
            f"{file}: there is no such checkpoint. Remedy: run the job first, or name another configuration"
        )
    stored = _read(file)
    _compare(stored["identity"], identity(config, int(stored["identity"]["partitions"])), file)
    return Settings(config, int(stored["epoch"]))


def _create(folder: Path, file: Path, config: Config, partitions: int) -> dict[str, Any]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strangers = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if strangers:
            raise StateError(
                f"lake.checkpoint = {str(folder)!r}: the folder holds {', '.join(strangers[:3])} but no {FILE}, "
                "so it is not a checkpoint of Lacuna. Remedy: name another folder, or empty this one"
            )
        made = {"format": FORMAT, "epoch": time.time_ns() // 1000, "identity": identity(config, partitions)}
        draft = folder / f".{FILE}"
        draft.write_text(json.dumps(made, indent=1))
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.rename(file)
    except OSError as error:
        raise LacunaError(
            f"lake.checkpoint = {str(folder)!r}: it cannot be written: {error.strerror}. "
            "Remedy: name a folder on a disk with room that this user may write to"
        ) from None
    return made


def _read(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text())
        if known["format"] != FORMAT:
            raise StateError(
                f"{file}: format {known['format']} is unknown. Remedy: run the Lacuna that wrote it, or a later one"
            )
        int(known["epoch"]), dict(known["identity"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{file}: the checkpoint's identity is damaged ({error}). "
            "Remedy: restore the checkpoint from a copy, or start with an empty one"
        ) from None
    return dict(known)


def _compare(stored: dict[str, Any], wanted: dict[str, Any], file: Path) -> None:
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
