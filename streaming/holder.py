"""The holder of a prefix: one router at a time, whatever machines and directories are used.

The control topic is the only judge (`state.protocol.control`). A start goes through these steps, and touches nothing
before its claim is valid:

    lock       the checkpoint's lock file, on a local path: against a second start on this machine
    watch      read control. If somebody holds the prefix, and is not a process that died with the lock that is held
               here now, wait for `PATIENCE` seconds, by this machine's own clock, for one more tick: then it lives, and
               this start is refused. No tick: the holder is dead, and may be succeeded.
    (the caller gathers its evidence, and refuses what does not fit)
    claim      append the claim and read back up to it. If another claim was faster, this start is refused.

From then on the holder ticks every `BEAT` seconds. It reads control before each tick: once another claim is valid, it
is superseded, writes nothing more and stops. A tick says how far the router is, so that a life can begin from the
topics where this one ended. The last tick releases the prefix: the next start need not wait.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from access.control import ControlLog
from state.config import Config
from state.errors import LacunaError
from state.protocol.control import CLAIM, DECLINED, TICK, Beat, Claim, Declined, Life, Offsets, Prefix, life_key
from streaming.claims import NOTHING, claim, release
from streaming.paths import absolute, is_local

BEAT = 5.0
"""Seconds between two ticks, at most."""
PATIENCE = 3 * BEAT
"""Seconds without a tick after which a holder counts as dead."""
BETWEEN_LOOKS = 0.5


NO_ALIASES: Mapping[str, str] = MappingProxyType({})

pause = time.sleep


class PrefixHeld(LacunaError):
    """Another router holds the prefix."""


class Holder:
    """A router's claim to a prefix. Two threads use it: one ticks, the other may begin a new life meanwhile."""

    def __init__(self, config: Config, say: Callable[[str], None], patience: float = PATIENCE) -> None:
        path = absolute(config.lake.checkpoint)
        self._prefix_name, self._patience, self._say = config.kafka.prefix, patience, say
        self._lock = claim(f"{path}/.router.lock", path, "a router")
        self._checkpoint = f"{socket.gethostname()}:{path}" if is_local(path) else path
        self._control = ControlLog(config.kafka.bootstrap, config.kafka.prefix)
        self._alone = threading.Lock()
        self.prefix = Prefix()
        self.term: int | None = None

    # taking hold

    def watch(self) -> Prefix:
        """Return the content of control when nobody else holds the prefix. Raises `PrefixHeld` if a holder lives."""
        seen = self._control.read()
        until = None if self._is_dead(seen) else time.monotonic() + self._patience
        if until is not None and seen.claim is not None:
            self._say(f"waiting whether {seen.claim.who} still runs a router on the prefix {self._prefix_name}")
        while until is not None and time.monotonic() < until:
            pause(BETWEEN_LOOKS)
            now = self._control.read()
            if _lives(seen, now):
                raise self._held(now)
            until = None if now.is_released else until
        self.prefix = self._control.read()
        return self.prefix

    def _is_dead(self, prefix: Prefix) -> bool:
        """Return whether the holder has stopped, or has died and left the lock that is held here now."""
        ours = self._lock != NOTHING and prefix.claim is not None and prefix.claim.checkpoint == self._checkpoint
        return prefix.is_released or ours

    def claim(self) -> None:
        """Become the holder. Raises `PrefixHeld` if another start was faster."""
        who = f"{getpass.getuser()}@{socket.gethostname()}, process {os.getpid()}"
        offset = self._control.append(f"{CLAIM}{uuid.uuid4()}", Claim(self.prefix.term, who, self._checkpoint))
        self.prefix = self._control.read()
        if self.prefix.term != offset:
            raise self._held(self.prefix)
        self.term = offset

    def _held(self, prefix: Prefix) -> PrefixHeld:
        holder = prefix.claim or Claim(None, "another process", "an unknown place")
        since = f"{datetime.fromtimestamp(prefix.since / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return PrefixHeld(
            f"kafka.prefix = {self._prefix_name!r}: a router holds it since {since}: {holder.who}, with the checkpoint "
            f"{holder.checkpoint}. Nothing was touched. Remedy: stop that one first, or choose another kafka.prefix"
        )

    # holding

    def announce(self, epoch: int, why: str, ends: Offsets, aliases: Mapping[str, str] = NO_ALIASES) -> Life:
        """Announce a life. It counts as soon as Kafka has the record."""
        assert self.term is not None
        life = Life(self.term, epoch, why, ends, dict(aliases))
        with self._alone:
            self._control.append(life_key(life), life)
            self.prefix = self._control.read()
        if self.prefix.lives.newest != life:
            raise self._held(self.prefix)
        return life

    def beat(self, epoch: int, batch: int, offsets: Offsets, *, ticks: bool = True) -> None:
        """Tick, if `ticks`. Raises `PrefixHeld` if this holder was succeeded."""
        with self._alone:
            self.prefix = self._control.read()
            if self.prefix.term != self.term:
                raise self._held(self.prefix)
            if ticks and self.term is not None:
                self._control.append(TICK, Beat(self.term, epoch, batch, offsets))

    def decline(self, asked: int, refused: list[str]) -> None:
        """Say that the command at this offset is not done, and why."""
        assert self.term is not None
        with self._alone:
            self._control.append(f"{DECLINED}{asked}", Declined(self.term, asked, refused))

    def release(self, epoch: int, batch: int, offsets: Offsets) -> None:
        """Let the prefix go. The last tick says how far the router was, and that nobody need wait for the next."""
        try:
            if self.term is not None and self._control.read().term == self.term:
                self._control.append(TICK, Beat(self.term, epoch, batch, offsets, released=True))
        finally:
            self.close()

    def close(self) -> None:
        """Give the lock back and close the connections; the claim stays as it is."""
        self._control.close()
        release(self._lock)
        self._lock = NOTHING


def _lives(before: Prefix, now: Prefix) -> bool:
    """Return whether the holder has shown that it lives: by a tick, a life or another claim."""
    changed = (now.term, now.lives, now.ticked) != (before.term, before.lives, before.ticked)
    return changed and not now.is_released
