"""Who asks, and what they may do: tokens with rights and limits.

    [[token]]                                   # the file that `[serve] tokens_file` names
    sha256  = "9f86d0..."                       # of the token, in hexadecimal digits
    client  = "ann"                             # the client that whoever holds the token is
    rights  = ["publish", "subscribe", "listen", "observe"]
    brokers = ["oslo"]                          # for publish and subscribe; default: all
    limits  = { streams = 10, requests_per_second = 1000, publications_per_second = 10000 }

A token is 256 random bits, so its digest needs no salt, and looking it up reveals nothing by the time it takes. The
file is read again when it has changed. A file that cannot be read leaves the tokens as they were, and is logged.

A program sends `Authorization: Bearer TOKEN`. A browser gets a cookie at `/login` that no script can read and that is
sent from no other site.

Without a file of tokens the gateway serves this machine alone, and believes whom the header `Lacuna-Client` names. A
foreign page in a browser here cannot send that header: a browser asks the gateway first, and is not allowed to.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from starlette.requests import HTTPConnection

from lacuna.serve.problems import Problem
from state.config import Serve
from state.errors import ConfigError, nearest
from state.protocol.events import MOST_NAME

Right = Literal["publish", "subscribe", "listen", "observe"]
RIGHTS: tuple[Right, ...] = get_args(Right)
COOKIE = "lacuna"
CLIENT_HEADER = "Lacuna-Client"
DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_BUCKETS = 10_000
"""Callers whose use is remembered; without tokens, anybody may name any client."""
WHERE = "serve.tokens_file"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How much one token may do."""

    streams: int = 10
    requests_per_second: float = 1000
    publications_per_second: float = 10_000


@dataclass(frozen=True)
class Caller:
    """Whose request it is. `client` is None for somebody at this machine who names no client.

    `key` is what its use is counted by: the digest of the token, or the client.
    """

    key: str
    client: str | None
    rights: frozenset[str] = frozenset(RIGHTS)
    brokers: frozenset[str] | None = None
    limits: Limits = Limits()


class Bucket:
    """What is left of a rate: it fills with time, up to what one second gives.

    >>> bucket = Bucket(2, now=0)
    >>> [bucket.take(1, now) for now in (0, 0, 0, 0.5)]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, rate: float, now: float) -> None:
        self.rate, self._left, self._at = rate, max(rate, 1.0), now

    def take(self, count: float, now: float) -> float:
        """Take so much. Return 0, or else the seconds after which there would be enough, and take nothing.

        More than a second's worth at once is allowed from a full bucket, and leaves it in debt.
        """
        full = max(self.rate, 1.0)
        self._left = min(full, self._left + (now - self._at) * self.rate)
        self._at = now
        wanted = min(count, full)
        if self._left < wanted:
            return (wanted - self._left) / self.rate
        self._left -= count
        return 0.0


class Auth:
    """Knows the callers, and counts what they use. For the thread of the event loop."""

    def __init__(self, serve: Serve, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the tokens. Raises `ConfigError` if the file cannot be used."""
        self._file, self._clock = serve.tokens_file, clock
        self._tokens: dict[str, Caller] = {}
        self._read: tuple[int, int, int] | None = None
        self._buckets: dict[tuple[str, str], Bucket] = {}
        if self._file is not None:
            self._read = _version(self._file)
            self._tokens = read_tokens(self._file)

    @property
    def uses_tokens(self) -> bool:
        """Whether a request must bring a token."""
        return self._file is not None

    def caller(self, request: HTTPConnection) -> Caller:
        """Return whose request this is. Raises `Problem` if it does not say, or not rightly."""
        if not self.uses_tokens:
            return self._named(request)
        token = bearer(request.headers.get("authorization")) or request.cookies.get(COOKIE)
        found = self.holder(token) if token else None
        if found is None:
            message = "the token is not known" if token else "there is no token"
            remedy = "send `Authorization: Bearer TOKEN`, or sign in at /login"
            raise Problem(401, "token", message, remedy, {"WWW-Authenticate": 'Bearer realm="lacuna"'})
        return found

    def holder(self, token: str) -> Caller | None:
        """Return the caller that a token stands for."""
        self._refresh()
        return self._tokens.get(hashlib.sha256(token.encode("utf-8", "replace")).hexdigest())

    def stands(self, caller: Caller) -> bool:
        """Return whether a caller still is as it was: its token may be gone, or have other rights now."""
        if not self.uses_tokens:
            return True
        self._refresh()
        return self._tokens.get(caller.key) == caller

    def require(self, request: HTTPConnection, right: Right, broker: str | None = None) -> Caller:
        """Return the caller, if it has a right, at a broker. Raises `Problem` if not."""
        caller = self.caller(request)
        request.state.client = caller.client  # for the audit log
        if right not in caller.rights:
            raise Problem(403, "right", f"the token lacks the right {right!r}", "have it granted in the tokens file")
        if broker is not None and caller.brokers is not None and broker not in caller.brokers:
            raise Problem(403, "right", f"the token is not for broker {broker!r}", "have it added in the tokens file")
        return caller

    def client(self, request: HTTPConnection, right: Right, broker: str | None = None) -> tuple[Caller, str]:
        """Return the caller, which must be a client, and the client's name."""
        caller = self.require(request, right, broker)
        if caller.client is None:
            raise Problem(401, "token", "no client is named", f"send `{CLIENT_HEADER}: NAME`")
        return caller, caller.client

    def spend(self, caller: Caller, publications: int = 0) -> None:
        """Count a request, or so many publications. Raises `Problem` beyond the caller's limits."""
        what = "publications" if publications else "requests"
        rate = caller.limits.publications_per_second if publications else caller.limits.requests_per_second
        wait = self._bucket(caller.key, what, rate).take(publications or 1, self._clock())
        if wait:
            seconds = str(max(1, round(wait + 0.5)))
            message = f"more than {rate:g} {what} a second"
            raise Problem(429, "limit", message, f"try again in {seconds} s", {"Retry-After": seconds})

    def _bucket(self, key: str, what: str, rate: float) -> Bucket:
        if len(self._buckets) >= MOST_BUCKETS:
            self._buckets.clear()
        bucket = self._buckets.get((key, what))
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[key, what] = Bucket(rate, self._clock())
        return bucket

    def _named(self, request: HTTPConnection) -> Caller:
        given = request.headers.get(CLIENT_HEADER)
        if given is None:
            return Caller("", None)
        try:
            name = given.encode("latin-1").decode()  # names may be UTF-8, which Starlette reads as Latin-1
        except UnicodeDecodeError:
            name = given
        if not 1 <= len(name) <= MOST_NAME:
            raise Problem(400, "header", f"{CLIENT_HEADER} is a name of 1 to {MOST_NAME} characters", "choose another")
        return Caller(name, name)

    def _refresh(self) -> None:
        """Read the file again if it has changed."""
        assert self._file is not None
        try:
            version = _version(self._file)
            if version == self._read:
                return
            self._read = version
            self._tokens = read_tokens(self._file)
            log.info("%s is read again: %d tokens", self._file, len(self._tokens))
        except ConfigError as error:
            if self._read is not None:
                log.error("the tokens stay as they were: %s", error)
            self._read = None


def bearer(header: str | None) -> str | None:
    """Return the token of an `Authorization` header.

    >>> bearer("Bearer abc"), bearer("bearer  abc "), bearer("Basic abc"), bearer(None)
    ('abc', 'abc', None, None)
    """
    scheme, _, token = (header or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _version(path: str) -> tuple[int, int, int]:
    try:
        found = Path(path).stat()
    except OSError as error:
        raise ConfigError(WHERE, path, f"it cannot be read ({error.strerror})", "name the file of tokens") from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_tokens(path: str) -> dict[str, Caller]:
    """Read a file of tokens. Return the callers by the digest of their token. Raises `ConfigError`."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(WHERE, path, f"it cannot be read: {error}", "correct it") from None
    entries = tables.get("token", [])
    if set(tables) - {"token"} or not isinstance(entries, list):
        raise ConfigError(WHERE, path, "it holds nothing but [[token]]", "write each token as [[token]]")
    callers = [_caller(entry, f"{WHERE}, token {k}") for k, entry in enumerate(entries, 1)]
    found = {caller.key: caller for caller in callers}
    if len(found) < len(callers):
        raise ConfigError(WHERE, path, "a digest is given twice", "leave one of the two out")
    return found


def _caller(entry: object, where: str) -> Caller:
    if not isinstance(entry, Mapping):
        raise ConfigError(where, None, "a token is a table", "write it as [[token]]")
    known = ("sha256", "client", "rights", "brokers", "limits")
    for key in entry:
        if key == "token":
            raise ConfigError(f"{where}.token", None, "a secret does not stand in the file", "write its sha256")
        if key not in known:
            rule = f"there is no such key{nearest(key, known)}"
            raise ConfigError(f"{where}.{key}", None, rule, f"use {', '.join(known)}")
    digest, client, rights = entry.get("sha256"), entry.get("client"), entry.get("rights")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest.lower()):
        raise ConfigError(f"{where}.sha256", None, "it is 64 hexadecimal digits", "write the SHA-256 of the token")
    if not isinstance(client, str) or not 1 <= len(client) <= MOST_NAME:
        raise ConfigError(f"{where}.client", client, f"a client has a name of 1 to {MOST_NAME} characters", "name it")
    if not isinstance(rights, list) or not set(map(str, rights)) <= set(RIGHTS):
        raise ConfigError(f"{where}.rights", rights, "there are no such rights", f"use some of {', '.join(RIGHTS)}")
    brokers = entry.get("brokers")
    if brokers is not None and not (isinstance(brokers, list) and all(isinstance(b, str) for b in brokers)):
        raise ConfigError(f"{where}.brokers", brokers, "it lists brokers", 'write ["oslo"], or leave it out for all')
    allowed = None if brokers is None else frozenset(brokers)
    return Caller(digest.lower(), client, frozenset(rights), allowed, _limits(entry.get("limits", {}), where))


def _limits(given: Any, where: str) -> Limits:
    known = [field.name for field in fields(Limits)]
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise ConfigError(f"{where}.limits", given, "there are no such limits", f"use some of {', '.join(known)}")
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ConfigError(f"{where}.limits.{key}", value, "it is a number above 0", "write one, or leave it out")
    return Limits(**given)
