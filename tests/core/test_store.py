"""Stored state between batches: snapshots, log and held regions all lead to the very same brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Config, parse
from state.errors import InvariantError, StateError
from state.protocol import ledger
from state.protocol.arrivals import Arrival, Channel
from state.protocol.commands import Prune, Rebuild, Tick
from state.protocol.frame import Frame, Letter, letter_of, read
from state.protocol.ledger import DAY, SECOND
from state.protocol.messages import LOCAL
from state.routing.outcome import Outcome
from state.routing.region import Region
from state.storage import store as module
from state.storage.codec import encode
from state.storage.sealed import MAGIC, seal, unseal
from state.storage.sliced import Sliced
from state.storage.store import HEAD, LOG, Head, Held, Setups, Store, from_row, to_row
from state.strategies import negative_approx
from tests.core.histories import config_text, configs, events
from tests.core.overlay import spread_out
from tests.core.stored import arrival_of, fields, setups_of

CONTROL = Channel(4, 0, "control")
COMMANDS: list[Any] = [Tick(), Rebuild(), Prune("network", 3), Prune("off"), Prune("configured")]


def whole(region: Region) -> dict[str, object]:
    """Everything that a region is between two steps."""
    return {
        "brokers": {name: (broker.version, fields(broker), encode(broker)) for name, broker in region.brokers.items()},
        "taught": {
            (name, other): (link.override, None if learned is None else tuple(part.tolist() for part in learned))
            for name, broker in region.brokers.items()
            for other, link in broker.links.items()
            for learned in [link.heard.learned]
        },
        "clock": region.clock,
        "channels": (region.senders, region.receivers, region.records, region.delivered),
        "quiet": (dict(region.waiting), region.log or []),
    }


def said(outcome: Outcome) -> tuple[object, ...]:
    """What a step said: the same for the same step."""
    deliveries = [(one.id, name, hops) for one, name, hops, _ in outcome.deliveries_in_order()]
    decided = [(one.setup.broker, one.setup.link, one.decision, one.active, one.passive) for one in outcome.decisions]
    return outcome.letters, deliveries, decided, outcome.counts


@st.composite
def batches(draw: st.DrawFn, config: Config) -> list[list[Arrival]]:
    """A history with times to live, ticks and commands, cut into batches; some are empty."""
    history = draw(events(config.overlay.brokers, most=20))
    cut: list[list[Arrival]] = [[]]
    time = 0
    for offset, event in enumerate(history):
        time += draw(st.integers(0, 3))
        if event["kind"] == "subscribe" and draw(st.booleans()):
            event["ttl"] = draw(st.integers(1, 12)) / 1e6
        cut[-1].append(arrival_of(config, event, offset, time))
        if draw(st.integers(0, 5)) == 0:
            command = draw(st.sampled_from(COMMANDS))
            cut[-1].append(Arrival(CONTROL, offset, time, config.overlay.brokers[0], LOCAL, command))
        cut += [[] for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2])))]
    return cut


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebuilds that take many steps even where little is kept."""
    monkeypatch.setattr(negative_approx, "STEP", 2)
    monkeypatch.setattr(ledger, "SECOND", 2)
    spread_out(monkeypatch)


def pieces_in(row: bytes | None) -> dict[str, bytes]:
    """The pieces of the region `all`, from a row, or none where nothing is stored."""
    return {} if row is None else from_row(row, "all")


def log_in(pieces: dict[str, bytes]) -> dict[str, bytes]:
    return {key: piece for key, piece in pieces.items() if key.startswith(LOG)}


@settings(max_examples=20)
@given(st.data())
def test_any_mixture_of_workers_and_snapshots_is_the_same_region(data: st.DataObject) -> None:
    """Batches are taken by two workers and by new ones at random; some attempts fail half-way or after they closed."""
    config = replace(data.draw(configs()), remember=data.draw(st.sampled_from([DAY, 7])))
    setups = setups_of(config)
    plain = Region("all", setups)
    stored: bytes | None = None
    workers = [Held(), Held()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST_INPUTS", data.draw(st.sampled_from([0, 3, 10])))
        patch.setattr(module, "MOST_CHUNKS", data.draw(st.sampled_from([2, 1024])))
        for number, arrivals in enumerate(data.draw(batches(config))):
            expected = said(plain.take(arrivals, number))
            plain.records.frame("rows", b"", number)
            plain.delivered += 1
            for attempt in data.draw(st.sampled_from(["x", "x", "hx", "cx"])):
                held = data.draw(st.sampled_from([*workers, Held()]))
                pieces = pieces_in(stored)
                store = held.open(pieces, "all", setups, 1, number)
                if attempt == "h":  # fails half-way
                    store.region.take(arrivals[: len(arrivals) // 2], number)
                    continue
                assert said(store.region.take(arrivals, number)) == expected
                store.region.records.frame("rows", b"", number)
                store.region.delivered += 1
                store.save()
                held.keep(store, number)
                if attempt == "x":  # otherwise the bytes were lost
                    stored = to_row(pieces)
            plain.log = []
            assert whole(store.region) == whole(plain)
            store.region.check()
            if data.draw(st.integers(0, 3)) == 0:
                decoded = Store.open(pieces_in(stored), "all", setups, 1).region
                assert whole(decoded) == whole(plain)
                assert gone(decoded) == gone(store.region), "or workers would not take snapshots at the same time"


def gone(region: Region) -> list[int]:
    return [broker.gone for broker in region.brokers.values()]


# Two regions


def letters(outcome: Outcome, offset: int) -> Iterator[Arrival]:
    """The letters of a step as arrivals at the other region."""
    for channel, frame in outcome.letters:
        opened = read(frame)
        assert isinstance(opened, Frame)
        letter = letter_of(opened)
        assert isinstance(letter, Letter)
        sender, receiver = channel.split(">")
        yield Arrival(Channel(1, 0, channel), offset, 0, receiver, sender, letter)


@settings(max_examples=10)
@given(st.data())
def test_regions_that_are_stored_after_every_batch_equal_regions_that_never_are(data: st.DataObject) -> None:
    """Two regions and the letters between them; the numbers and checksums of their channels survive."""
    table = data.draw(st.sampled_from(['"union"', '"negative"', '"mics"', '"auto"']))
    config = parse(config_text([("b0", "b1"), ("b1", "b2"), ("b2", "b3")], table))
    sides: dict[str, Setups] = {"west": setups_of(config, ["b0", "b1"]), "east": setups_of(config, ["b2", "b3"])}
    plain = {name: Region(name, setups) for name, setups in sides.items()}
    stored: dict[str, bytes | None] = dict.fromkeys(sides)
    held = Held()
    post: dict[str, list[Arrival]] = {"west": [], "east": []}
    for number, event in enumerate([*data.draw(events(config.overlay.brokers, most=20)), *[None] * 3]):
        sent: dict[str, list[Arrival]] = {"west": [], "east": []}
        for name, setups in sides.items():
            fresh = [arrival_of(config, event, number)] if event is not None and event["broker"] in setups else []
            arrivals = [*post[name], *fresh]
            pieces = pieces_in(stored[name])
            store = held.open(pieces, name, setups, 1, number)
            outcome = store.region.take(arrivals, number)
            assert said(outcome) == said(plain[name].take(arrivals, number))
            store.save()
            stored[name] = to_row(pieces)
            plain[name].log = []
            if data.draw(st.booleans()):
                held.keep(store, number)
            if event is None or data.draw(st.integers(0, 4)) == 0:
                assert whole(store.region) == whole(plain[name])
            other = "east" if name == "west" else "west"
            sent[other] += letters(outcome, number)
            again = list(post[name])  # letters that Kafka repeats change nothing
            assert not Store.open(pieces_in(stored[name]), name, setups, 1).region.take(again, number).letters
        post = sent


# One by one


CONFIG = parse(config_text([("b0", "b1"), ("b1", "b2")], '"union"'))
SETUPS = setups_of(CONFIG)


def subscribe(broker: str, number: int) -> Arrival:
    where = {"x": [number % 8, 7]}
    event = {"kind": "subscribe", "broker": broker, "client": "ann", "id": f"s{number}", "where": where}
    return arrival_of(CONFIG, event, number, number)


def after(stored: bytes | None, *arrivals: Arrival, held: Store | None = None) -> tuple[bytes, Store]:
    pieces = pieces_in(stored)
    store = Store.open(pieces, "all", SETUPS, 1, held)
    store.region.take(arrivals)
    store.save()
    return to_row(pieces), store


def versions(store: Store) -> dict[str, tuple[int, int]]:
    return {name: (store.region.brokers[name].version, snapshot) for name, snapshot in store._snapshots.items()}


def test_a_region_begins_from_nothing() -> None:
    stored, store = after(None)
    assert store.opened == "new" and versions(store) == {"b0": (0, 0), "b1": (0, 0), "b2": (0, 0)}
    assert len(store.region.brokers["b0"].subscriptions) == 0
    again = Store.open(pieces_in(stored), "all", SETUPS, 1)
    assert again.opened == "decode" and whole(again.region) == whole(store.region)


EVENT = {"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s0", "where": {"x": [0, 7]}}


def renewals(stored: bytes | None, count: int) -> tuple[bytes, Store]:
    """So many batches with one input of b0 each; the first is an input of the others too."""
    stored, store = after(stored)
    for offset in range(count):
        stored, store = after(stored, arrival_of(CONFIG, EVENT, offset, offset))
    return stored, store


def test_brokers_take_snapshots_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    """All brokers hear of the first; renewals are inputs of one broker only."""
    monkeypatch.setattr(module, "FEWEST_INPUTS", 5)
    stored, store = renewals(None, 6)
    assert versions(store) == {"b0": (6, 6), "b1": (1, 0), "b2": (1, 0)}
    assert whole(Store.open(pieces_in(stored), "all", SETUPS, 1).region) == whole(store.region)


def test_chunks_that_every_broker_has_a_later_snapshot_of_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chunk is needed by b1 and b2; the last stays for workers that are one batch behind."""
    monkeypatch.setattr(module, "FEWEST_INPUTS", 5)
    stored, store = renewals(None, 6)
    assert [chunk.versions["b0"] for chunk in store._log] == [(0, 1), (5, 6)]
    assert len(log_in(pieces_in(stored))) == 2


def test_a_quiet_broker_does_not_hold_back_the_log_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the log is too long, every broker in it takes a snapshot."""
    monkeypatch.setattr(module, "FEWEST_INPUTS", 5)
    monkeypatch.setattr(module, "MOST_CHUNKS", 3)
    _, store = renewals(None, 4)
    assert versions(store) == {"b0": (4, 4), "b1": (1, 1), "b2": (1, 1)} and len(store._log) == 1
    monkeypatch.setattr(module, "MOST_CHUNKS", 1024)
    monkeypatch.setattr(module, "FEWEST_INPUTS", 2)
    stored, _ = after(None)
    batch = [arrival_of(CONFIG, EVENT, offset, offset) for offset in range(11)]
    _, store = after(stored, *batch)
    assert versions(store) == {"b0": (11, 11), "b1": (1, 1), "b2": (1, 1)} and store._log == []


def test_batches_without_inputs_write_no_chunk() -> None:
    stored, store = after(None, subscribe("b0", 1))
    publication = arrival_of(CONFIG, {"kind": "publish", "broker": "b2", "id": "p", "at": AT}, 9, 9)
    again, other = after(stored, publication, held=store)
    assert other.opened == "hit" and log_in(pieces_in(again)) == log_in(pieces_in(stored))
    assert Store.open(pieces_in(again), "all", SETUPS, 1).region.clock == 9


AT = {"x": 5, "y": 5, "colour": "red"}


def pairs(config: Config, count: int) -> list[Arrival]:
    """So many subscriptions, each of which is cancelled at once; a microsecond apart."""
    events = [{"kind": kind, "id": f"s{k}"} for k in range(count) for kind in ("subscribe", "unsubscribe")]
    asked = {"subscribe": {"where": {"x": [1, 2]}}, "unsubscribe": {}}
    return [
        arrival_of(config, {"broker": "b0", "client": "ann", **event, **asked[event["kind"]]}, k, k)
        for k, event in enumerate(events)
    ]


LATER = 100 * SECOND
LAST: dict[str, Any] = {
    "a tick": Arrival(CONTROL, 9, LATER, "b0", LOCAL, Tick()),
    "a publication elsewhere": {"kind": "publish", "broker": "b2", "id": "p", "at": AT},
    "a subscription of another": {"kind": "subscribe", "broker": "b0", "client": "bob", "id": "s", "where": {}},
    "a renewal": EVENT,
}


@pytest.mark.parametrize("last", LAST)
def test_pairs_of_subscribe_and_unsubscribe_leave_nothing_when_their_time_is_past(
    last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens next. What is left at rest is a snapshot of a broker without them, and few inputs."""
    monkeypatch.setattr(ledger, "SECOND", SECOND)
    monkeypatch.setattr(ledger, "FORGOTTEN", 5_000)
    config = replace(CONFIG, remember=60 * SECOND)
    setups, pieces, began = setups_of(config), dict[str, bytes](), dict[str, bytes]()
    Store.open(began, "all", setups, 1).save()
    standing = [arrival_of(config, EVENT, 0, 0)] if last == "a renewal" else []
    store = Store.open(pieces, "all", setups, 1)
    store.region.take([*standing, *pairs(config, 4_000)])
    store.save()
    assert len(store.region.brokers["b0"].ledger.ended) == 4_000 and size(pieces) > 3 * size(began)
    store = Store.open(pieces, "all", setups, 1, store)
    final = LAST[last]
    store.region.take([final if isinstance(final, Arrival) else arrival_of(config, final, 10_000, LATER)])
    store.save()
    assert not store.region.brokers["b0"].ledger.ended
    assert size(pieces) < size(began) + 2_000
    assert whole(Store.open(pieces, "all", setups, 1).region) == whole(store.region)


def size(pieces: dict[str, bytes]) -> int:
    return sum(map(len, pieces.values()))


def test_a_worker_that_is_behind_catches_up() -> None:
    stored, held = after(None, subscribe("b0", 1))
    for number in range(2, 5):
        stored, _ = after(stored, subscribe("b1", number))
    caught = Store.open(pieces_in(stored), "all", SETUPS, 1, held)
    assert caught is held and caught.opened == "catch-up"
    assert whole(caught.region) == whole(Store.open(pieces_in(stored), "all", SETUPS, 1).region)


def test_a_worker_that_is_too_far_behind_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk that it would have to replay was dropped."""
    monkeypatch.setattr(module, "FEWEST_INPUTS", 0)
    stored, held = after(None, subscribe("b0", 1))
    for number in range(2, 5):
        stored, last = after(stored, subscribe("b1", number))
    opened = Store.open(pieces_in(stored), "all", SETUPS, 1, held)
    assert opened is not held and opened.opened == "decode"
    assert whole(opened.region) == whole(last.region)


def test_a_worker_that_failed_half_way_is_not_trusted() -> None:
    """Its region has taken steps that were never stored, or stopped in the middle of one."""
    stored, held = after(None, subscribe("b0", 1))
    Store.open(pieces_in(stored), "all", SETUPS, 1, held).region.take([subscribe("b0", 2)])
    opened = Store.open(pieces_in(stored), "all", SETUPS, 1, held)
    assert opened.opened == "decode" and len(opened.region.brokers["b0"].subscriptions) == 1


def test_a_worker_whose_last_batch_was_lost_is_not_trusted() -> None:
    """It closed, but the bytes were not kept; the batch is repeated from what is stored."""
    stored, held = after(None, subscribe("b0", 1))
    lost, held = after(stored, subscribe("b0", 2), held=held)
    again, store = after(stored, subscribe("b0", 2), held=held)
    assert store.opened == "decode" and again == lost


def test_a_worker_with_another_history_is_not_trusted() -> None:
    begun, _ = after(None)
    one, _ = after(begun, subscribe("b0", 1))
    _, other = after(begun, subscribe("b0", 2))
    opened = Store.open(pieces_in(one), "all", SETUPS, 1, other)
    assert opened is not other and [row.name.id for row in opened.region.brokers["b0"].subscriptions] == ["s1"]


@pytest.mark.parametrize(("cut", "says"), [(slice(0, -1), "ends too early"), (slice(1, None), "jumps from version 0")])
def test_a_log_that_lacks_a_chunk_is_refused(cut: slice, says: str) -> None:
    """Whole by its digests, and still not all that the brokers took."""
    stored, _ = after(None)
    for number in range(3):
        stored, _ = after(stored, subscribe("b0", number))
    pieces = pieces_in(stored)
    head = unseal(pieces[HEAD], Head, module.FORMAT, {}, "all")
    assert len(head.log) == 3
    short = msgspec.structs.replace(head, log=head.log[cut])
    with pytest.raises(StateError, match=f"{says}.*Remedy"):
        Store.open(pieces | {HEAD: seal(short, module.FORMAT)}, "all", SETUPS, 1)


def test_a_worker_that_is_behind_also_unlearns_a_command() -> None:
    """An override that was taken back is not in the head: the held region must not keep it."""
    commands = enumerate((Prune("network", 3), Prune("configured")))
    pruned, configured = (Arrival(CONTROL, k, k, "b0", LOCAL, command) for k, command in commands)
    stored, held = after(None, subscribe("b0", 1), pruned)
    assert any(link.override for link in held.region.brokers["b1"].links.values())
    stored, _ = after(stored, configured, subscribe("b0", 2))
    caught = Store.open(pieces_in(stored), "all", SETUPS, 1, held)
    assert caught.opened == "catch-up"
    assert not any(link.override for broker in caught.region.brokers.values() for link in broker.links.values())
    assert whole(caught.region) == whole(Store.open(pieces_in(stored), "all", SETUPS, 1).region)


def test_a_region_is_not_stored_in_the_middle_of_a_step() -> None:
    store = Store.open(pieces_in(None), "all", SETUPS, 1)
    store.region.feed(subscribe("b0", 1), 0)
    with pytest.raises(InvariantError, match="all is stored while messages wait"):
        store.save()


def test_sizes_are_those_of_what_is_stored() -> None:
    stored, store = after(None, subscribe("b0", 1))
    pieces = pieces_in(stored)
    expected = {key: len(piece) for key, piece in pieces.items() if not key.startswith(".")}
    expected |= {"head": len(pieces[HEAD]), "log": sum(map(len, log_in(pieces).values()))}
    assert store.sizes == expected and set(expected) > {"b1/b0", "b1/b2", "b1/.ledger", "b1/.subscriptions"}


class Reads(dict[str, bytes]):
    """Pieces somewhere else, that say what is read and written; chunks as `.log/`."""

    def __init__(self, pieces: dict[str, bytes]) -> None:
        super().__init__(pieces)
        self.touched: Counter[str] = Counter()

    def _touch(self, how: str, key: str) -> None:
        self.touched[f"{how} {LOG if key.startswith(LOG) else key}"] += 1

    def get(self, key: str, default: Any = None) -> Any:
        self._touch("get", key)
        return super().get(key, default)

    def __setitem__(self, key: str, piece: bytes) -> None:
        self._touch("put", key)
        super().__setitem__(key, piece)

    def __delitem__(self, key: str) -> None:
        self._touch("del", key)
        super().__delitem__(key)


def test_pieces_are_read_and_written_only_where_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEWEST_INPUTS", 5)
    stored, store = renewals(None, 5)
    pieces = Reads(pieces_in(stored))
    opened = Store.open(pieces, "all", SETUPS, 1, store)
    assert opened.opened == "hit" and pieces.touched == Counter(["get .head"])
    opened.region.take([arrival_of(CONFIG, EVENT, 5, 5)])
    opened.save()
    parts = ["put b0/.subscriptions", "put b0/.ledger", "put b0/b1"]
    assert pieces.touched == Counter(["get .head", "put .log/", *parts, *4 * ["del .log/"], "put .head"])


# In a map of small values


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.binary(max_size=40), min_size=1)), st.integers(1, 9))
def test_pieces_in_slices_are_the_same_pieces(written: dict[str, list[bytes]], size: int) -> None:
    """Whatever is written over what; nothing is left of what was longer, or is deleted."""
    values: dict[str, bytes] = {}
    sliced = Sliced(values, size)
    for key, versions in written.items():
        for piece in versions:
            sliced[key] = piece
            assert sliced.get(key) == piece
    assert all(sliced.get(key) == (written[key][-1] if key in written else None) for key in "abc")
    assert len(values) == sum(max(1, -(-len(versions[-1]) // size)) for versions in written.values())
    for key in written:
        del sliced[key]
    assert not values


def test_a_piece_that_lacks_a_slice_is_missing() -> None:
    values: dict[str, bytes] = {}
    Sliced(values, 2)["a"] = b"12345"
    del values["a#1"]
    assert Sliced(values, 2).get("a") is None


# What a worker holds


def test_a_region_that_is_held_keeps_no_bytes_of_its_parts() -> None:
    _, store = after(None, subscribe("b0", 1))
    assert store._listed and not store._pieces


def test_regions_that_were_not_seen_for_long_are_evicted() -> None:
    held = Held(unseen=3)
    for name, batch in (("one", 1), ("two", 2), ("two", 3), ("two", 4), ("two", 5)):
        store = held.open(pieces_in(None), name, SETUPS, 1, batch)
        store.save()
        held.keep(store, batch)
        assert len(held) == (1 if (name, batch) in (("one", 1), ("two", 5)) else 2)


def test_hits_catch_ups_and_decodes_are_counted() -> None:
    one, two = Held(), Held()
    stored: bytes | None = None
    for batch, worker in enumerate([one, one, two, one, two]):
        pieces = pieces_in(stored)
        store = worker.open(pieces, "all", SETUPS, 1, batch)
        store.region.take([subscribe("b0", batch)])
        store.save()
        stored = to_row(pieces)
        worker.keep(store, batch)
    assert one.counts == {"new": 1, "hit": 1, "catch-up": 1} and two.counts == {"decode": 1, "catch-up": 1}


def test_a_store_whose_batch_failed_is_not_held() -> None:
    held = Held()
    stored, _ = after(None, subscribe("b0", 1))
    held.keep(held.open(pieces_in(stored), "all", SETUPS, 1, 1), 1)  # never closed: not used either
    held.open(pieces_in(stored), "all", SETUPS, 1, 2)
    assert held.counts == {"decode": 2} and len(held) == 0


def test_another_epoch_or_region_is_held_by_itself() -> None:
    held = Held()
    for name, epoch in (("all", 1), ("all", 2), ("other", 1)):
        store = held.open(pieces_in(None), name, SETUPS, epoch, 1)
        store.save()
        held.keep(store, 1)
    assert len(held) == 3


# What cannot be trusted


@pytest.fixture(scope="module")
def row() -> bytes:
    stored, _ = after(None, subscribe("b0", 1), subscribe("b1", 2))
    stored, _ = after(stored, subscribe("b2", 3))
    return after(stored, subscribe("b2", 4))[0]


def test_damaged_state_is_refused(row: bytes) -> None:
    """Each kind of place: the row, its head, a chunk, a part."""
    pieces = pieces_in(row)
    (first, chunk), (second, other) = log_in(pieces).items()
    short = msgspec.msgpack.encode([pieces[HEAD], [other], {}])
    wrong: dict[str, bytes] = {
        "region all is damaged": row[:-5],
        "region all is damaged: .*decode": row.replace(b"b1/b2", b"b1/b\xff"),
        "does not begin as state of Lacuna": b"",
        "region all is damaged: decompression error": to_row(pieces | {HEAD: pieces[HEAD][:-3]}),
        "the log has 1 chunks, not 2": row[: len(MAGIC) + 1] + short,
        "chunk 1 of the log is not": to_row(pieces | {first: chunk[:-1] + bytes([chunk[-1] ^ 1])}),
        "chunk 1 of the log": to_row(pieces | {first: other, second: chunk}),
        "part b1/b2, is damaged: it is not": to_row(pieces | {"b1/b2": b"?"}),
        "part b1/b2, is damaged: it is missing": to_row({key: pieces[key] for key in pieces if key != "b1/b2"}),
    }
    for message, stored in wrong.items():
        with pytest.raises(StateError, match=message) as raised:
            Store.open(pieces_in(stored), "all", SETUPS, 1)
        assert "Remedy" in str(raised.value) and "region all" in str(raised.value)


@settings(max_examples=200)
@given(st.data())
def test_any_damage_is_noticed(row: bytes, data: st.DataObject) -> None:
    """A flipped byte or a cut anywhere is refused, or changes nothing."""
    blob = bytearray(row)
    if data.draw(st.booleans()):
        blob = blob[: data.draw(st.integers(0, len(blob) - 1))]
    else:
        blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        survived = Store.open(pieces_in(bytes(blob)), "all", SETUPS, 1)
    except StateError:
        return
    assert whole(survived.region) == whole(Store.open(pieces_in(row), "all", SETUPS, 1).region)


def test_unknown_formats_are_refused(row: bytes) -> None:
    of_row = row[: len(MAGIC)] + b"\x09" + row[len(MAGIC) + 1 :]
    head = pieces_in(row)[HEAD]
    of_head = to_row(pieces_in(row) | {HEAD: head[: len(MAGIC)] + b"\x09" + head[len(MAGIC) + 1 :]})
    for stored in (of_row, of_head):
        with pytest.raises(StateError, match=r"region all has version 9 .*Remedy"):
            Store.open(pieces_in(stored), "all", SETUPS, 1)


def test_state_of_something_else_is_refused(row: bytes) -> None:
    with pytest.raises(StateError, match="belongs to the region all, not to other"):
        Store.open(pieces_in(row), "other", SETUPS, 1)
    with pytest.raises(StateError, match="belongs to the epoch 1, not to 2"):
        Store.open(pieces_in(row), "all", SETUPS, 2)
    with pytest.raises(StateError, match="another configuration"):
        Store.open(pieces_in(row), "all", {"b0": SETUPS["b0"]}, 1)


def test_the_order_of_brokers_and_links_is_no_part_of_the_configuration(row: bytes) -> None:
    turned = {name: dict(reversed(links.items())) for name, links in reversed(SETUPS.items())}
    opened = Store.open(pieces_in(row), "all", turned, 1)
    assert whole(opened.region) == whole(Store.open(pieces_in(row), "all", SETUPS, 1).region)


def test_another_configuration_is_refused_and_shown_even_if_the_region_is_held() -> None:
    stored, held = after(None, subscribe("b0", 1))
    other = setups_of(parse(config_text([("b0", "b1"), ("b1", "b2")], '"flood"')))
    with pytest.raises(StateError, match=r"(?s)b0 was written for another configuration.*union.*flood.*Remedy"):
        Store.open(pieces_in(stored), "all", other, 1, held)


def test_a_migrated_head_is_read(row: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added to the head comes last, with a default; more than that takes a migration."""
    monkeypatch.setattr(module, "FORMAT", 2)
    monkeypatch.setattr(module, "MIGRATIONS", {1: lambda payload: payload})
    assert Store.open(pieces_in(row), "all", SETUPS, 1).opened == "decode"
