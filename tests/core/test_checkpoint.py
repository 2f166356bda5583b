"""A checkpoint knows for which configuration it was made; what does not fit is refused before anything starts."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from state.config import Config, parse
from state.errors import ConfigError, LacunaError, StateError
from streaming.checkpoint import FILE, adopt, known
from streaming.claims import Claimed, claim, release
from streaming.hashing import MASK, kafka_partition, murmur3, spark_partition
from streaming.settings import Spread, keyed
from tests.core.histories import config_text

LINKS = [("b0", "b1")]
CHAIN = [("b0", "b1"), ("b1", "b2"), ("b2", "b3")]
DAMAGED = (
    '{"format": 2, "epoch": 1, "identity": {}, "regions": [], "links": {}, "records": {}, "deliveries": 1, "more": 1}'
)


def config_at(folder: Path, text: str | None = None) -> Config:
    config = parse(text or config_text(LINKS, '"auto"'))
    return dataclasses.replace(config, lake=dataclasses.replace(config.lake, checkpoint=str(folder / "checkpoint")))


def test_a_new_checkpoint_begins_an_epoch_and_keeps_it(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    first = adopt(config, 2)
    assert adopt(config, 2) == first == known(config)
    other = adopt(config_at(tmp_path / "other"), 2)
    assert other.epoch > first.epoch
    assert abs(first.epoch / 1e6 - time.time()) < 3600, "microseconds since 1970"


def test_a_path_may_be_an_address(tmp_path: Path) -> None:
    plain = config_at(tmp_path)
    lake = dataclasses.replace(plain.lake, checkpoint=f"file://{tmp_path}/checkpoint")
    address = dataclasses.replace(plain, lake=lake)
    assert adopt(address, 2).epoch == adopt(plain, 2).epoch
    assert (tmp_path / "checkpoint" / FILE).is_file()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (config_text(LINKS, '"flood"'), "flood"),
        (config_text([("b0", "b2")], '"auto"'), "b0>b1"),
        (config_text(LINKS, '"auto"').replace("high = 7", "high = 8"), "[0,8]"),
        (config_text(LINKS, '"auto"') + "remember = 5\n", "remember=5000000"),
        (config_text(LINKS, '"auto"') + '[kafka]\nprefix = "other"\n', "prefix was 'lacuna' and is 'other'"),
        (config_text(LINKS, '"auto"', regions="2"), "overlay.regions was 'auto' and is 2"),
        (config_text(LINKS, '"auto"', regions='[["b0", "b1"]]'), "overlay.regions was 'auto' and is [['b0', 'b1']]"),
    ],
)
def test_a_changed_configuration_is_refused(tmp_path: Path, text: str, says: str) -> None:
    adopt(config_at(tmp_path), 2)
    with pytest.raises(StateError, match="another configuration") as refused:
        adopt(config_at(tmp_path, text), 2)
    assert says in str(refused.value) and "Remedy" in str(refused.value)


def test_another_number_of_partitions_is_refused(tmp_path: Path) -> None:
    adopt(config_at(tmp_path), 2)
    with pytest.raises(StateError, match="partitions was 2 and is 4"):
        adopt(config_at(tmp_path), 4)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    (Path(config.lake.checkpoint) / "offsets").mkdir(parents=True)
    with pytest.raises(StateError, match="not a checkpoint of Lacuna"):
        adopt(config, 2)


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"format": 2}', '{"format": 2, "epoch": "x", "identity": {}}', DAMAGED]
)
def test_a_damaged_identity_is_refused(tmp_path: Path, damage: str) -> None:
    config = config_at(tmp_path)
    adopt(config, 2)
    (Path(config.lake.checkpoint) / FILE).write_text(damage)
    with pytest.raises(StateError, match=r"damaged.*Remedy"):
        adopt(config, 2)


@pytest.mark.parametrize("format", [1, 9])
def test_another_format_is_refused(tmp_path: Path, format: int) -> None:
    config = config_at(tmp_path)
    adopt(config, 2)
    file = Path(config.lake.checkpoint) / FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": format}))
    with pytest.raises(StateError, match=f"format {format} is not the one of this version"):
        adopt(config, 2)


def test_a_folder_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("a file")
    with pytest.raises(LacunaError, match="it must be a folder that this user may write to"):
        adopt(config_at(tmp_path), 2)


def test_auto_is_resolved_once_and_another_machine_does_not_change_it(tmp_path: Path) -> None:
    config = config_at(tmp_path, config_text(CHAIN, '"auto"'))
    made = adopt(config, 4, cores=2)
    assert [part.brokers for part in made.parts] == [("b0", "b1", "b2", "b3")]
    assert adopt(config, 4, cores=64) == adopt(config, 4, cores=1) == known(config) == made
    assert adopt(config_at(tmp_path / "other", config_text(CHAIN, '"auto"')), 4, cores=64).parts != made.parts


def test_there_are_no_more_regions_than_partitions(tmp_path: Path) -> None:
    made = adopt(config_at(tmp_path, config_text(CHAIN, '"auto"')), 1, cores=64)
    assert [part.brokers for part in made.parts] == [("b0", "b1", "b2", "b3")]


def test_channels_keep_the_partitions_that_they_were_given(tmp_path: Path) -> None:
    config = config_at(tmp_path, config_text(CHAIN, '"auto"', regions="4"))
    made = adopt(config, 4, spread=Spread(links=2, records=3, deliveries=5))
    assert made.links == {"b0>b1": 0, "b1>b0": 1, "b1>b2": 0, "b2>b1": 1, "b2>b3": 0, "b3>b2": 1}
    assert made.records == {"b0": 0, "b1": 1, "b2": 2, "b3": 0}
    assert made.deliveries == 5
    assert adopt(config, 4, spread=Spread(links=9, records=9, deliveries=9)) == made


IDS = {"subscribe": "A", "publish": "B", "deliveries": "C", "records": "D"}


def test_a_topic_that_was_made_again_is_refused(tmp_path: Path) -> None:
    """Its offsets begin again. Deliveries are not read by the queries; a Kafka without ids says nothing."""
    config = config_at(tmp_path)
    made = adopt(config, 2, topics=IDS)
    assert adopt(config, 2, topics=IDS) == adopt(config, 2, topics=IDS | {"deliveries": "new"}) == made
    assert adopt(config, 2) == made
    with pytest.raises(
        StateError, match=r"made again since the checkpoint was made: lacuna.publish. .*Remedy: name"
    ) as error:
        adopt(config, 2, topics=IDS | {"publish": "new"})
    assert str(Path(config.lake.checkpoint) / FILE) in str(error.value)
    assert adopt(config_at(tmp_path / "other"), 2, topics=IDS | {"publish": "new"}).epoch > made.epoch


def test_a_checkpoint_without_ids_of_topics_is_taken(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    made = adopt(config, 2)
    assert adopt(config, 2, topics=IDS) == made


@pytest.mark.parametrize("lacking", ["links", "records", "deliveries"])
def test_fewer_partitions_than_the_router_writes_to_are_refused(tmp_path: Path, lacking: str) -> None:
    config = config_at(tmp_path, config_text(CHAIN, '"auto"', regions="4"))
    wide = Spread(links=2, records=3, deliveries=5)
    adopt(config, 4, spread=wide)
    narrow = dataclasses.replace(wide, **{lacking: 1})
    with pytest.raises(StateError, match=rf"the topic lacuna.{lacking} has 1 partitions.*Remedy: add partitions"):
        adopt(config, 4, spread=narrow)


def test_only_borders_are_channels(tmp_path: Path) -> None:
    config = config_at(tmp_path, config_text(CHAIN, '"auto"', regions='[["b1", "b0"], ["b2", "b3"]]'))
    made = adopt(config, 2)
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
        assert [kafka_partition(key, n) for n in (5, 7, 1 << 31)] == [hashed % 2**31 % n for n in (5, 7, 1 << 31)]


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
        adopt(config, 2)
    assert not (tmp_path / "checkpoint" / FILE).exists()


def test_two_programs_that_start_at_once_make_one_checkpoint(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        epochs = {made.epoch for made in pool.map(lambda _: adopt(config_at(tmp_path), 2), range(8))}
    assert len(epochs) == 1


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
