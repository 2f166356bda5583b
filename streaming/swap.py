"""Replacing several folders by others as if at once: renames that are listed in a journal before the first is done.

A program that is killed between two renames leaves the journal behind. Whoever uses the folders next calls `finish`,
which does the rest. A rename is done when its target is there: a target is free when its turn comes, because the list
moves the old folder away before it moves the new one in.

    journal written ──▶ old/a to aside/a ──▶ new/a to old/a ──▶ ... ──▶ journal removed
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from state.errors import StateError
from streaming.paths import refusals

Rename = tuple[str, str]
"""The path of a folder, and its new path on the same disk."""

_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(list[Rename]).decode


def swap(journal: str, renames: Sequence[Rename]) -> None:
    """Do all of these renames, in order, or leave a journal of them."""
    draft = Path(f"{journal}.draft")
    with refusals("lake.checkpoint", journal):
        draft.write_bytes(_write(list(renames)))
        draft.rename(journal)
    finish(journal)


def finish(journal: str) -> bool:
    """Do what is left of the renames in a journal. Return False if there is no journal."""
    try:
        renames = _read(Path(journal).read_bytes())
    except FileNotFoundError:
        return False
    except msgspec.MsgspecError as error:
        remedy = "Remedy: move it away; what was renamed is in the folders before-rebuild-*, and can be put back"
        raise StateError(f"{journal}: the list of renames is damaged ({error}). {remedy}") from None
    for source, target in renames:
        if not Path(target).exists():
            with refusals("lake.path", source):
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                rename(source, target)
    Path(journal).unlink()
    return True


def rename(source: str, target: str) -> None:
    """Rename one folder."""
    Path(source).rename(target)
