"""Lives on disk: what was written is read again, and what does not fit is refused with its remedy."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from access.connection import partition_of
from state.config import Config, parse
from state.errors import ConfigError, StateError
from streaming.claims import Claimed, claim, release
from streaming.hashing import MASK, murmur3, spark_partition
from streaming.life import FILE, FIRST_FILE, Folder, Sent, difference, known, seed_of, stored_of
from streaming.settings import Settings, Spread, keyed, settle
from tests.core.histories import config_text

LINKS = [("b0", "b1")]
CHAIN = [("b0", "b1"), ("b1", "b2"), ("b2", "b3")]
IDS = {"subscribe": "A", "publish": "B", "deliveries": "C", "records": "D"}


def config_at(folder: Path, text: str | None = None) -> Config:
    config = parse(text or config_text(LINKS, '"auto"'))
    return dataclasses.replace(config, lake=dataclasses.replace(config.lake, checkpoint=str(folder / "checkpoint")))


def write_life(
    config: Config, epoch: int = 1, partitions: int = 2, prologue: Sequence[Sent] = (), **more: dict[str, bytes]
) -> Settings:
    """Write a life, and return its settings as they are read."""
    folder, seed = Folder(config.lake.checkpoint), more.get("seed", {})
    settings = dataclasses.replace(settle(config, epoch, partitions), starts={"publish": {"0": 5}})
    stored = stored_of(settings, partitions, "a test", IDS, seeded=bool(seed))
    folder.write(stored, seed, prologue)
    return folder.settings(config, epoch)


def test_a_life_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    made = write_life(config, 3)
    assert made == known(config)
    assert (made.epoch, made.starts, made.seeded) == (3, {"publish": {"0": 5}}, False)
    assert made.folder == str(tmp_path / "checkpoint" / "lives" / "3")
    later = write_life(config, 4, seed={"b0": b"row"})
    assert known(config) == later and Folder(config.lake.checkpoint).epochs() == [3, 4]
    assert later.seeded and seed_of(later.folder, "b0") == b"row"
    with pytest.raises(StateError, match=r"state of the region b1 cannot be read.*Remedy"):
        seed_of(later.folder, "b1")


def test_ids_are_kept_of_the_topics_that_are_read(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    write_life(config)
    assert Folder(config.lake.checkpoint).read(1).topics == {name: IDS[name] for name in IDS if name != "deliveries"}


def test_a_life_without_its_file_is_none(tmp_path: Path) -> None:
    """It is written last: a process that was killed before it has left a folder that is written again."""
    config = config_at(tmp_path)
    made = write_life(config, 2, seed={"b0": b"row", "b1": b"row"})
    (Path(made.folder) / FILE).unlink()
    assert Folder(config.lake.checkpoint).epochs() == []
    write_life(config, 2, seed={"b0": b"other"})
    assert sorted(path.name for path in (Path(made.folder) / "seed").iterdir()) == ["b0"]


def test_a_prologue_is_sent_once(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    sends = [Sent("records", 0, b"k", b"v"), Sent("deliveries", 2, b"ann", b"{}", [("trace", b"1")])]
    write_life(config, prologue=sends)
    folder = Folder(config.lake.checkpoint)
    assert folder.prologue(1) == sends
    folder.note_sent(1)
    assert folder.prologue(1) is None
    write_life(config, 2)
    assert folder.prologue(2) is None


def test_batches_and_offsets_are_those_of_spark(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    router = Path(write_life(config).folder) / "router"
    for log, batches in (("offsets", (8, 9, 10)), ("commits", (8, 9))):
        (router / log).mkdir(parents=True)
        for batch in batches:
            lines = [
                "v1",
                "{}",
                json.dumps({"lacuna.subscribe": {"0": batch}}),
                json.dumps({"lacuna.publish": {"0": 7}}),
            ]
            (router / log / str(batch)).write_text("\n".join(lines))
    (router / "offsets" / ".10.crc").touch()
    folder = Folder(config.lake.checkpoint)
    assert folder.batches(1, "offsets") == [8, 9, 10] and folder.batches(1, "commits") == [8, 9]
    assert folder.offsets(1, 9, "lacuna") == {"subscribe": {"0": 9}, "publish": {"0": 7}}
    for damaged in ("v1\n{}\n{broken", "v1\n{}", ""):
        (router / "offsets" / "9").write_text(damaged)
        with pytest.raises(StateError, match=r"offsets/9 \(.*damaged.*Remedy: restore"):
            folder.offsets(1, 9, "lacuna")


def test_a_checkpoint_of_the_version_before_lives_is_a_life(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    stored = stored_of(settle(config, 1_763_000_000_000_000, 2), 2, "", {}, seeded=False)
    (tmp_path / "checkpoint" / "router").mkdir(parents=True)
    old = {key: value for key, value in msgspec.to_builtins(stored).items() if key not in NEW} | {"format": 2}
    (tmp_path / "checkpoint" / FIRST_FILE).write_text(json.dumps(old))
    settings = known(config)
    assert settings.epoch == 1_763_000_000_000_000 and settings.folder == str(tmp_path / "checkpoint")
    assert (settings.starts, settings.seeded, settings.earlier) == ({}, False, frozenset())
    later = write_life(config, settings.epoch + 1)
    assert known(config) == later and later.folder.endswith(f"lives/{settings.epoch + 1}")


NEW = ("why", "earlier", "starts", "seeded")


def test_a_path_may_be_an_address(tmp_path: Path) -> None:
    plain = config_at(tmp_path)
    made = write_life(plain)
    lake = dataclasses.replace(plain.lake, checkpoint=f"file://{tmp_path}/checkpoint")
    assert known(dataclasses.replace(plain, lake=lake)).epoch == made.epoch


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (config_text(LINKS, '"flood"'), "the strategy of every link was auto, covering = lazy, and is flood, "),
        (
            config_text(LINKS, '"auto"') + '[routing.links."b0>b1"]\nstrategy = "flood"\n',
            "the strategy of b0>b1 was auto, covering = lazy, and is flood, ",
        ),
        (
            config_text([("b0", "b2")], '"auto"'),
            "the broker b1 is removed; the broker b2 is added; the link b0-b1 is removed; 1 more differ",
        ),
        (
            config_text(LINKS, '"auto"').replace("high = 7", "high = 8"),
            "space.x was int, 0 to 7, and is int, 0 to 8",
        ),
        (config_text(LINKS, '"auto"').replace("x = {", "z = {"), "space.x is removed; space.z is added: int, 0 to 7"),
        (
            config_text(LINKS, '"auto"').replace("x = {", "w = {").replace("y = {", "x = {").replace("w = {", "y = {"),
            "the order of attributes was x, y, colour, and is y, x, colour",
        ),
        (config_text(LINKS, '"auto"') + "remember = 5\n", "routing.remember was 86400, and is 5"),
        (config_text(LINKS, '"auto"', regions="2"), "overlay.regions was auto, and is 2"),
        (config_text(LINKS, '"auto"', regions='[["b0", "b1"]]'), "overlay.regions was auto, and is [['b0', 'b1']]"),
    ],
)
def test_a_changed_configuration_is_refused(tmp_path: Path, text: str, says: str) -> None:
    write_life(config_at(tmp_path))
    with pytest.raises(StateError, match="another configuration") as refused:
        known(config_at(tmp_path, text))
    assert says in str(refused.value) and "Remedy" in str(refused.value)


def test_another_prefix_is_another_system(tmp_path: Path) -> None:
    write_life(config_at(tmp_path))
    with pytest.raises(StateError, match=r"kafka.prefix was 'lacuna', and is 'other': .*Remedy: go back to that"):
        known(config_at(tmp_path, config_text(LINKS, '"auto"') + '[kafka]\nprefix = "other"\n'))


def test_another_number_of_partitions_is_a_difference(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    write_life(config)
    stored = Folder(config.lake.checkpoint).read(1)
    assert difference(stored, config, 2) is None and difference(stored, config) is None
    assert difference(stored, config, 4) == "partitions was 2, and is 4"
    assert difference(stored, config, 4, besides=("partitions",)) is None


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.refuse_strangers()
    (tmp_path / "archive").mkdir()
    (tmp_path / ".router.lock").touch()
    folder.refuse_strangers()
    (tmp_path / "offsets").mkdir()
    with pytest.raises(StateError, match="not a checkpoint of Lacuna"):
        folder.refuse_strangers()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 3}', '{"format": 3, "epoch": "x", "identity": {}}'])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    config = config_at(tmp_path)
    (Path(write_life(config).folder) / FILE).write_text(damage)
    with pytest.raises(StateError, match=r"damaged.*Remedy"):
        known(config)


@pytest.mark.parametrize("format", [1, 9])
def test_another_format_is_refused(tmp_path: Path, format: int) -> None:
    config = config_at(tmp_path)
    file = Path(write_life(config).folder) / FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": format}))
    with pytest.raises(StateError, match=rf"format {format} is not the one of this version, 3.*Remedy"):
        known(config)


# Regions, keys, partitions


def test_auto_is_resolved_once(tmp_path: Path) -> None:
    config = config_at(tmp_path, config_text(CHAIN, '"auto"'))
    made = settle(config, 1, 4, cores=2)
    assert made.parts != settle(config, 1, 4, cores=64).parts
    assert [part.brokers for part in settle(config, 1, 1, cores=64).parts] == [("b0", "b1", "b2", "b3")]


def test_channels_are_spread_over_partitions(tmp_path: Path) -> None:
    config = config_at(tmp_path, config_text(CHAIN, '"auto"', regions="4"))
    made = settle(config, 1, 4, spread=Spread(links=2, records=3, deliveries=5))
    assert made.links == {"b0>b1": 0, "b1>b0": 1, "b1>b2": 0, "b2>b1": 1, "b2>b3": 0, "b3>b2": 1}
    assert made.records == {"b0": 0, "b1": 1, "b2": 2, "b3": 0}
    assert made.deliveries == 5


def test_only_borders_are_channels(tmp_path: Path) -> None:
    config = config_at(tmp_path, config_text(CHAIN, '"auto"', regions='[["b1", "b0"], ["b2", "b3"]]'))
    made = settle(config, 1, 2)
    assert [part.name for part in made.parts] == ["b1", "b2"]
    assert set(made.links) == {"b1>b2", "b2>b1"} and set(made.records) == {"b1", "b2"}


@pytest.mark.parametrize("partitions", [3, 5, 17])
def test_every_region_has_a_partition_of_its_own(partitions: int) -> None:
    regions = tuple((f"broker {k}", f"other {k}") for k in range(partitions))
    parts = keyed(regions, partitions)
    assert {spark_partition(part.key, partitions) for part in parts} == set(range(partitions))
    assert [part.key.rpartition("#")[0] for part in parts] == [part.name for part in parts]


def test_keys_are_hashed_as_spark_and_kafka_do() -> None:
    """The example of Spark's documentation, hash('Spark', array(123), 2), and one of Kafka's own tests."""
    chained = MASK & -1321691492
    assert murmur3((2).to_bytes(4, "little"), murmur3((123).to_bytes(4, "little"), murmur3(b"Spark"))) == chained
    signed = [key for key in ("a", "aé", "zürich", "oslo", "ab") if murmur3(key.encode()) >> 31]
    for key in signed:
        assert spark_partition(key, 7) == (murmur3(key.encode()) - 2**32) % 7
    assert signed, "one of them is negative, as Spark sees it"
    assert murmur3("é".encode()[-1:]) == _murmur3_of_one_byte(0xA9 - 256)
    for key, hashed in ((b"21", -973932308), (b"foobar", -790332482)):
        assert [partition_of(key, n) for n in (5, 7, 1 << 31)] == [hashed % 2**31 % n for n in (5, 7, 1 << 31)]


def _murmur3_of_one_byte(byte: int) -> int:
    """Spark's hash of a single byte, which it takes with its sign, in the textbook's words."""
    k = byte * 0xCC9E2D51 % 2**32
    k = (k * 2**15 % 2**32 + (k >> 17)) * 0x1B873593 % 2**32
    h = 42 ^ k
    h = (h * 2**13 % 2**32 + (h >> 19)) * 5 + 0xE6546B64
    h = h % 2**32 ^ 1
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return h ^ h >> 16


def test_fewer_partitions_than_regions_are_refused(tmp_path: Path) -> None:
    config = config_at(tmp_path, config_text(CHAIN, '"auto"', regions="3"))
    with pytest.raises(ConfigError, match=r"overlay.regions = 3: .* there are 2\. Remedy: start with --partitions 3"):
        settle(config, 1, 2)


def test_a_lock_is_held_by_one_and_a_removed_file_locks_nobody(tmp_path: Path) -> None:
    file = str(tmp_path / "lock")
    first = claim(file, "here", "a router")
    with pytest.raises(Claimed, match=r"here: a router runs on this checkpoint already.*Remedy"):
        claim(file, "here", "a router")
    release(first)
    waiting = os.open(file, os.O_RDWR)
    Path(file).unlink()
    second = claim(file, "here", "a router")
    assert os.fstat(second).st_ino == Path(file).stat().st_ino
    os.close(waiting)
    release(second)


def test_nothing_is_known_of_a_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no such checkpoint"):
        known(config_at(tmp_path))
