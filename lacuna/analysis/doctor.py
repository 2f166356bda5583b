"""What is wrong with this machine, this configuration, Kafka and the lake: each finding with its remedy.

A check returns findings; it never raises because of what it looks at, and changes nothing but a file that it writes and
removes again where it must know whether it may write.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from access.control import ControlLog
from access.errors import KafkaFailed
from access.security import check, expiries
from access.topics import differences, lacking, require_topics
from lacuna.local import infra
from state.config import Config
from state.errors import LacunaError
from state.protocol.topics import Topics

Level = Literal["good", "warning", "bad"]
LEAST_FREE = 1 << 30
"""Bytes that a disk should have free."""
MOST_SKEW = 5.0
"""Seconds by which this machine's clock may differ from Kafka's."""
SILENT = 60.0
"""Seconds without a tick after which a router seems dead."""
SOON = 14 * 86400
DEADLINE = 5.0


class Finding(NamedTuple):
    """What a check has found, and what to do about it."""

    about: str
    level: Level
    text: str
    remedy: str = ""


def examine(config: Config) -> Iterator[Finding]:
    """Yield the findings of all checks, in the order in which they matter."""
    checks: tuple[Callable[[Config], Iterator[Finding]], ...] = (_java, _ports, _disks, _secrets, _kafka)
    for check_one in checks:
        yield from check_one(config)


def _java(_: Config) -> Iterator[Finding]:
    for about, words in (("Java", ("java",)), ("jars", ("fetch", "spark", "--verify"))):
        try:
            infra(*words)
            yield Finding(about, "good", "as needed")
        except LacunaError as error:
            yield _bad(about, error)


def _ports(config: Config) -> Iterator[Finding]:
    where = config.endpoint
    if where.port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((where.host, where.port))
            yield Finding("metrics_port", "good", f"{where.host}:{where.port} is free")
        except OSError as error:
            text = f"{where.host}:{where.port} cannot be listened on ({error.strerror})"
            yield Finding(
                "metrics_port", "warning", text, "this is as it should be while the job runs; else choose another"
            )


def _disks(config: Config) -> Iterator[Finding]:
    for name, path in (("lake.path", config.lake.path), ("lake.checkpoint", config.lake.checkpoint)):
        if "://" in path and not path.startswith("file:"):
            yield Finding(
                name, "warning", f"{path} is not on this machine, and was not looked at", "see that it can be written"
            )
            continue
        folder = _nearest(Path(path.removeprefix("file:")))
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".lacuna-doctor-"):
                pass
        except OSError as error:
            yield Finding(
                name, "bad", f"{folder} cannot be written ({error.strerror})", "change its owner, or choose another"
            )
            continue
        free = shutil.disk_usage(folder).free
        level: Level = "good" if free >= LEAST_FREE else "bad"
        yield Finding(
            name, level, f"{folder} can be written, {free / 1e9:.1f} GB free", "" if level == "good" else "free some"
        )


def _nearest(path: Path) -> Path:
    """Return the folder itself, or the nearest one above it that is there."""
    return next(folder for folder in (path.resolve(), *path.resolve().parents) if folder.is_dir())


def _secrets(config: Config) -> Iterator[Finding]:
    security = config.kafka.security
    try:
        check(security)
        ends = expiries(security)
    except LacunaError as error:
        yield _bad("kafka.security", error)
        return
    for file, moment in ends.items():
        days = (moment - time.time()) / 86400
        level: Level = "good" if moment - time.time() > SOON else "warning"
        yield Finding(
            "certificate", level, f"{file} is valid for {days:.0f} days", "" if level == "good" else "renew it"
        )
    if not security.encrypts and not _is_here(config.kafka.bootstrap):
        text = "connections to Kafka are not encrypted"
        yield Finding("kafka.security", "warning", text, "set security in [kafka], unless the network is trusted")


def _is_here(bootstrap: str) -> bool:
    return all(address.strip().startswith(("localhost:", "127.", "[::1]:")) for address in bootstrap.split(","))


def _kafka(config: Config) -> Iterator[Finding]:
    kafka = config.kafka
    try:
        require_topics(kafka.bootstrap, Topics(kafka.prefix).all, DEADLINE)
        yield Finding("Kafka", "good", f"{kafka.bootstrap} answers, and has the topics {kafka.prefix}.*")
        found = differences(kafka.bootstrap, kafka.prefix, kafka.wanted, DEADLINE)
        yield from (Finding("topics", "warning", text, "change it with Kafka's own tools") for text in found)
        yield _rights(config)
        yield from _clock(config)
    except KafkaFailed as error:
        yield _bad("Kafka", error)


def _rights(config: Config) -> Finding:
    """Compare what this user may do with what the job needs: the whole of it, or the archive alone."""
    kafka = config.kafka
    lacks = {role: lacking(kafka.bootstrap, kafka.prefix, role, DEADLINE) for role in ("router", "archive")}
    for role, missing in lacks.items():
        if not missing:
            return Finding("rights", "good", f"this user may do what the {role} needs")
    text = f"this user may not do what the router needs: {', '.join(lacks['router'])}"
    return Finding("rights", "bad", text, "grant it what `lacuna acl router` prints")


def _clock(config: Config) -> Iterator[Finding]:
    """Compare this machine's clock with the newest moment that Kafka has stamped on the control topic.

    A router that runs ticks every few seconds, so that this moment is a recent one.
    """
    with ControlLog(config.kafka.bootstrap, config.kafka.prefix, DEADLINE) as control:
        prefix = control.read()
    ahead = prefix.latest / 1e6 - time.time()
    if ahead > MOST_SKEW:
        text = f"Kafka's clock is at least {ahead:.0f} s ahead of this machine's"
        yield Finding("clock", "warning", text, "let both be set by NTP")
    elif -ahead > SILENT and prefix.claim is not None and not prefix.is_released:
        text = f"{prefix.claim.who} holds the prefix, and has not ticked for {-ahead:.0f} s by this machine's clock"
        yield Finding("router", "warning", text, "start it again if it has died; else let the clocks be set by NTP")


def _bad(about: str, error: LacunaError) -> Finding:
    text, _, remedy = str(error).partition("Remedy: ")
    return Finding(about, "bad", text.strip().rstrip("."), remedy.strip() or "see the message")
