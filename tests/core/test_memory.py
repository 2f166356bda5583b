"""Stored state between batches: snapshot, log and held groups all lead to the very same group."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Config, parse
from state.errors import StateError
from state.protocol.messages import LOCAL, Publish, Subscribe, Unsubscribe
from state.protocol.wire import pack, read_letter, unpack, write_letter
from state.routing.link import Link, group
from state.storage import memory as module
from state.storage.codec import encode
from state.storage.memory import Memory
from state.strategies import negative_approx
from tests.core.histories import STRATEGY_TABLES, config_text, events
from tests.core.test_overlay import message_of


def changes(config: Config, history: list[dict[str, object]]) -> list[Subscribe | Unsubscribe]:
    messages = [message_of(config, event, place) for place, event in enumerate(history)]
    return [message for message in messages if not isinstance(message, Publish)]


@settings(max_examples=80)
@given(st.data())
def test_any_mixture_of_workers_and_snapshots_is_the_same_group(data: st.DataObject) -> None:
    """Batches are taken by two workers at random, each holding what it last saw; some start from nothing."""
    config = parse(config_text([("b0", "b1")], data.draw(st.sampled_from(STRATEGY_TABLES))))
    setup = config.setup("b0", data.draw(st.sampled_from(["b1", LOCAL])))
    plain = group(setup)
    blob = Memory.new(setup).close()
    held: dict[int, Memory | None] = {0: None, 1: None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(negative_approx, "STEP", 2)
        patch.setattr(module, "FEWEST_CHANGES", data.draw(st.integers(0, 10)))
        for number, message in enumerate(changes(config, data.draw(events(("b0",), most=30)))):
            worker = data.draw(st.integers(0, 2))
            memory = Memory.open(blob, setup, held.get(worker))
            memory.records += 1
            assert memory.expire(number) == plain.expire(number)
            assert memory.step(LOCAL, message, number) == plain.step(LOCAL, message, number)
            if data.draw(st.integers(0, 5)) == 0:
                assert memory.rebuild() == plain.rebuild()
            if data.draw(st.booleans()) and memory.restless:
                assert memory.rest() == plain.rest()
            if isinstance(memory.state, Link) and isinstance(plain, Link):
                assert memory.state.number() == plain.number()
            memory.state.inbox.take("b1", 1, number + 1)
            plain.inbox.take("b1", 1, number + 1)
            blob = memory.close()
            if worker in held:
                held[worker] = memory
            memory.state.check()
            assert encode(memory.state) == encode(plain)
            assert memory.records == number + 1


def test_a_worker_that_failed_half_way_is_not_trusted() -> None:
    """Its group has taken steps that were never stored; it is decoded from the stored state instead."""
    config = parse(config_text([("b0", "b1")], '"union"'))
    setup = config.setup("b0", "b1")
    event = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": {}}
    message = message_of(config, event, 0)
    assert isinstance(message, Subscribe)
    stored = Memory.new(setup).close()
    held = Memory.open(stored, setup)
    held.step(LOCAL, message, 0)
    again = Memory.open(stored, setup, held)
    assert isinstance(again.state, Link) and len(again.state.told) == 0


def test_a_worker_with_another_history_is_not_trusted() -> None:
    config = parse(config_text([("b0", "b1")], '"union"'))
    setup = config.setup("b0", "b1")
    blobs, memories = [], []
    for name in ("one", "two"):
        event = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": name, "where": {}}
        message = message_of(config, event, 0)
        assert isinstance(message, Subscribe)
        memory = Memory.open(Memory.new(setup).close(), setup)
        memory.step(LOCAL, message, 0)
        blobs.append(memory.close())
        memories.append(memory)
    opened = Memory.open(blobs[0], setup, memories[1])
    assert opened is not memories[1]
    assert isinstance(opened.state, Link) and [n.id for n in opened.state.told.active] == ["one"]


def test_what_cannot_be_trusted_is_refused() -> None:
    setup = parse(config_text([("b0", "b1")], '"union"')).setup("b0", "b1")
    blob = Memory.new(setup).close()
    with pytest.raises(StateError, match="damaged"):
        Memory.open(blob[:-5], setup)
    with pytest.raises(StateError, match="format 9"):
        Memory.open(blob[:1] + b"\x09" + blob[2:], setup)


@settings(max_examples=100)
@given(st.data())
def test_messages_survive_the_wire(data: st.DataObject) -> None:
    config = parse(config_text([("b0", "b1")], '"union"'))
    history = data.draw(events(("b0", "b1")))
    messages = [message_of(config, event, place) for place, event in enumerate(history)]
    letter = read_letter(write_letter(3, 17, [pack(message) for message in messages]))
    assert (letter.epoch, letter.first) == (3, 17)
    assert [unpack(packed, config.space.dims) for packed in letter.messages] == messages
