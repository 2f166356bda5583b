"""The hub hands each record of the tail to those whose it is, and lets go whom it cannot serve without a gap."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lacuna.serve.auth import Auth, Caller, Limits
from lacuna.serve.cursor import Cursor
from lacuna.serve.hub import MOST_PENDING, Hub, Listener
from lacuna.serve.problems import Problem
from lacuna.serve.tail import Batch
from producers.judging import Judgement
from state.config import Kafka, Serve
from state.protocol.control import Life, Lives

LIFE = Life(0, 1, "test", {"deliveries": {"0": 0}})
NEXT = Life(0, 2, "test", {"deliveries": {"0": 2}})


def judgement(*lives: Life) -> Judgement:
    return Judgement(Lives(lives, tuple(range(len(lives)))), {0: 1000})


def record(client: str, offset: int, seq: int, epoch: int = 1, more: str = "", channel: str = "oslo") -> Any:
    value = json.dumps({"channel": channel, "epoch": epoch, "seq": seq, "payload": more}).encode()
    return SimpleNamespace(partition=0, offset=offset, key=client.encode(), value=value, headers=[])


class Trial:
    """A hub without its threads: batches come from the test."""

    def __init__(self) -> None:
        self.hub = Hub(Kafka(), Auth(Serve()))
        self.offset = 0

    def listener(self, client: str) -> Listener:
        """A listener that is live."""
        found = Listener(Caller(client, client), client, Cursor(1, 0, self.offset), lambda: None)
        self.hub.admit(found)
        self.hub._hold(None, 0)
        self.dispatch()
        self.hub._plug(found, 0)
        return found

    def dispatch(self, *records: Any, lives: tuple[Life, ...] = (LIFE,), jumped: frozenset[int] = frozenset()) -> None:
        done: list[bool] = []
        self.offset = max([self.offset, *(r.offset + 1 for r in records)])
        self.hub._dispatch(Batch(list(records), {0: self.offset}, jumped, judgement(*lives)), lambda: done.append(True))
        assert done == [True], "or the tail would wait for ever"


def got(listener: Listener) -> list[int]:
    frames = b"".join(listener.pending).decode().split("\n\n")[:-1]
    return [json.loads(frame.partition("data: ")[2])["seq"] for frame in frames]


def in_a_loop(body: Callable[[], None]) -> None:
    async def run() -> None:
        body()

    asyncio.run(run())


def test_each_gets_its_own_once_and_nothing_that_is_not_the_routers() -> None:
    def body() -> None:
        trial = Trial()
        ann, twin, bob = trial.listener("ann"), trial.listener("ann"), trial.listener("bob")
        strange = SimpleNamespace(partition=0, offset=9, key=b"ann", value=b"\xff", headers=[])
        trial.dispatch(
            *(record("ann", 0, 1), record("bob", 1, 2), record("ann", 2, 3), record("ann", 3, 1), record("ann", 4, 3)),
            *(record("ann", 5, 4, epoch=9), record("ann", 6, 5000), record("ann", 7, 5), record("cat", 8, 6), strange),
            record("ann", 10, 7, channel="x\nid: 9"),
        )
        assert got(ann) == got(twin) == [1, 3, 5] and got(bob) == [2]
        assert ann.cursor is not None and ann.cursor.text() == "1.0.8.oslo:5"
        assert trial.hub.delivered == 7

    in_a_loop(body)


def test_a_slow_listener_is_let_go_at_the_record_that_it_has_not_got() -> None:
    def body() -> None:
        trial = Trial()
        slow, quick = trial.listener("ann"), trial.listener("bob")
        many = 1 + MOST_PENDING // 50_000
        trial.dispatch(*(record("ann", n, n + 1, more="x" * 50_000) for n in range(many + 3)))
        trial.dispatch(record("bob", many + 3, many + 4))
        assert slow.live is None and quick.live == 0 and got(quick) == [many + 4]
        assert slow.cursor is not None and slow.cursor.offset == len(got(slow)) == many
        assert slow.size < MOST_PENDING + 60_000

    in_a_loop(body)


@pytest.mark.parametrize("why", ["life", "jump"])
def test_who_cannot_go_on_at_the_tail_catches_up_from_where_it_was(why: str) -> None:
    def body() -> None:
        trial = Trial()
        ann = trial.listener("ann")
        trial.dispatch(record("ann", 0, 1))
        lives, jumped = ((LIFE, NEXT), frozenset()) if why == "life" else ((LIFE,), frozenset({0}))
        trial.dispatch(record("ann", 2, 1, epoch=2), lives=lives, jumped=jumped)
        assert ann.live is None and ann.cursor is not None and ann.cursor.offset == 1
        assert got(ann) == [1]

    in_a_loop(body)


def test_a_token_has_so_many_streams_and_gets_them_back() -> None:
    def body() -> None:
        hub = Hub(Kafka(), Auth(Serve()))
        caller = Caller("k", "ann", limits=Limits(streams=2))
        first, second, third = (Listener(caller, "ann", None, lambda: None) for _ in range(3))
        hub.admit(first)
        hub.admit(second)
        with pytest.raises(Problem):
            hub.admit(third)
        hub.leave(first)
        hub.admit(third)
        assert hub.streams == 2 and hub.closed["left"] == 1
        hub.drain()
        with pytest.raises(Problem):
            hub.admit(first)

    in_a_loop(body)
