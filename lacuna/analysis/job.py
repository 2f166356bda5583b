"""How the job is, as it says itself over HTTP (`streaming.watch`).

Where nothing answers, the control topic says who held the prefix last.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any

from access.control import ControlLog
from access.errors import KafkaFailed
from state.config import Config

PATIENCE = 3.0
"""Seconds that the job, and then Kafka, may take to answer."""
NAME_IT = "name its address: [serve] job, or `lacuna status --url`"


def status_of(config: Config) -> dict[str, Any]:
    """Return what the job of a configuration says, or why it says nothing."""
    return status_at(config, config.serve.job or address_of(config))


def address_of(config: Config) -> str:
    """Return where a job of this configuration answers on this machine."""
    host = "127.0.0.1" if config.endpoint.host in ("0.0.0.0", "::") else config.endpoint.host
    return f"http://{f'[{host}]' if ':' in host else host}:{config.endpoint.port}"


def status_at(config: Config, url: str) -> dict[str, Any]:
    """Return what the job says, or why it says nothing."""
    try:
        with urllib.request.urlopen(f"{url}/status", timeout=PATIENCE) as answer:
            status = dict(json.loads(answer.read()))
    except (OSError, ValueError, urllib.error.URLError) as error:
        why = getattr(error, "reason", error)
        return _down(config, f"no job answers at {url} ({why}). Remedy: start it with `lacuna run`, or {NAME_IT}")
    if status.get("prefix") != config.kafka.prefix:
        other = f"the job at {url} has the prefix {status.get('prefix')!r}, not {config.kafka.prefix!r}"
        return _down(config, f"{other}. Remedy: give each job its own metrics_port in [engine], or {NAME_IT}")
    return status


def _down(config: Config, reason: str) -> dict[str, Any]:
    """Return the status of a job that does not answer, with what Kafka knows of it."""
    try:
        with ControlLog(config.kafka.bootstrap, config.kafka.prefix, PATIENCE) as control:
            prefix = control.read()
    except KafkaFailed as error:
        return {"state": "down", "reasons": [reason, str(error)], "prefix": config.kafka.prefix}
    if prefix.claim is None:
        last = "no router has run on this prefix yet"
    else:
        what = "was let go by" if prefix.is_released else "is held by"
        since = f"{datetime.fromtimestamp(prefix.since / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
        last = f"the prefix {what} {prefix.claim.who}, who took it at {since}"
    return {"state": "down", "reasons": [reason, last], "prefix": config.kafka.prefix}
