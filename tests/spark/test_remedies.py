"""Every stop, and its remedy followed to the letter: what is delivered and archived afterwards is what is owed.

The situations are those of `streaming.stops`. A system here is the product's service in the session of the tests, so
that a start takes seconds; the commands are those that the messages name, run by their own entry point. Kafka, Spark
and the tables are real. What brute force says is owed (`tests.core.oracle`) is compared with the deliveries that a
client would read and with the rows of the tables.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from pyspark.sql import SparkSession

from access.offsets import topic_spans, trim
from access.topics import ensure_topics
from lacuna.__main__ import main
from state.config import Config, parse
from state.errors import LacunaError
from state.protocol.commands import Apply
from state.protocol.topics import Topic, Topics
from streaming.apply import apply
from streaming.causes import KNOWN
from streaming.pipeline import Engine
from streaming.restarts import JobFailed
from streaming.service import Service
from streaming.stops import ARCHIVE, ROUTER
from tests.spark.conftest import NUMBERS, program
from tests.system.live import disk_of, text_at
from tests.system.owed import History, archived, delivered

pytestmark = pytest.mark.system

ENGINE = Engine(master="local[2,4]", partitions=2)


class System:
    """A configuration with a folder of its own, its history, and the job when it runs."""

    def __init__(self, home: Path, bootstrap: str, prefix: str = "") -> None:
        self.home, self.file = home, home / "lacuna.toml"
        prefix = prefix or f"r{next(NUMBERS)}"
        self.configure(text_at(bootstrap, prefix, home))
        ensure_topics(bootstrap, prefix, {"deliveries": Topic(partitions=1)})
        self.history = History(self.config)
        self.said: list[str] = []

    def configure(self, text: str) -> None:
        self.file.write_text(text)
        self.config: Config = parse(text)

    @contextmanager
    def running(self, engine: Engine = ENGINE) -> Iterator[Service]:
        """The job, until the block ends. `--tick 0`: nothing but events makes batches."""
        service = Service.of(self.config, engine, tick_seconds=0, say=self.said.append)
        service.start()
        try:
            yield service
        finally:
            service.stop_queries()

    def run(self) -> None:
        """Do everything that is in the topics, and stop."""
        with self.running() as service:
            service.wait(service.quiet)
            service.wait(service.archived)

    def refused(self, stop: str) -> None:
        """Start the job, which must refuse with this stop; the message is one line, and names the remedy."""
        about = (ROUTER | ARCHIVE)[stop]
        with pytest.raises((LacunaError, JobFailed)) as error, self.running() as service:
            service.wait(lambda: False)
        said = str(error.value)
        assert about.cause in said and said.endswith(f"Remedy: {about.remedy}") and "\n" not in said, said

    def stops(self, cause: str, service: Service, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until the running job stops for this cause; the message is one line, and names the remedy."""
        with pytest.raises(JobFailed) as error:
            service.wait(lambda: False, meanwhile)
        said, [known] = str(error.value), [known for known in KNOWN if known.cause == cause]
        assert cause in said and said.endswith(f"Remedy: {known.remedy}.") and "\n" not in said, said

    def command(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run a command of the command line, which must end with this code; its JSON."""
        assert main([*words, "--config", str(self.file), "--json"]) == code
        return dict(json.loads(self.read_output()))

    read_output: Callable[[], str]

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = deltalake.DeltaTable(f"{self.config.lake.path}/{table}").to_pyarrow_table()
        return list(found.to_pylist())

    def topic(self, name: str) -> str:
        return Topics(self.config.kafka.prefix).of(name)

    def first_letters(self) -> list[int]:
        """The first offset of each partition of the topic of letters."""
        return [span.first for span in topic_spans(self.config.kafka.bootstrap, [self.topic("links")]).values()]

    def copy(self, name: str) -> None:
        for folder in ("checkpoint", "lake"):
            shutil.copytree(self.home / folder, self.home / name / folder)

    def restore(self, name: str, *folders: str) -> None:
        for folder in folders:
            shutil.rmtree(self.home / folder)
            shutil.copytree(self.home / name / folder, self.home / folder)

    def check(self, *, again: Collection[str] = (), lost: Collection[str] = ()) -> None:
        """All that is owed was delivered but the publications `lost`, and once but those that came `again`.

        The table has the deliveries of every life.
        """
        found = delivered(self.config)
        made = Counter(delivery for life in found.values() for delivery in life)
        owed = Counter(delivery for delivery in self.history.owed if delivery[3] not in lost)
        assert made.keys() == owed.keys()
        assert {delivery[3] for delivery, count in made.items() if count > 1} <= set(again)
        assert archived(self.config) == {epoch: sorted(life) for epoch, life in found.items()}


@pytest.fixture
def new_system(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., System]]:
    def make(bootstrap: str, prefix: str = "") -> System:
        system = System(tmp_path, bootstrap, prefix)
        system.read_output = lambda: capsys.readouterr().out
        return system

    yield make
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def system(new_system: Callable[..., System], kafka: str) -> System:
    """A system that has run: four subscriptions in two regions, and a publication that was delivered."""
    return begun(new_system(kafka))


def begun(system: System) -> System:
    for k, broker in enumerate(("oslo", "rome", "praha", "wien")):
        system.history.subscribe(broker, f"s{k}")
    system.history.publish("oslo", "first")
    system.run()
    system.check()
    return system


# The router at its start


def test_restored_copy(system: System) -> None:
    system.copy("copy")
    system.history.subscribe("paris", "after the copy")
    system.run()
    system.history.publish("praha", "after the copy")
    system.run()
    system.check()
    system.restore("copy", "checkpoint", "lake")
    system.refused("restored copy")
    assert "delivered again" in system.command("apply", "--dry-run")["changes"][1]
    assert system.command("apply")["epoch"] == 2
    system.history.publish("rome", "after the remedy")
    system.run()
    system.check(again=["after the copy"])


def test_checkpoint_lost(system: System) -> None:
    """The folder of the lives is gone, and the rest with it but for the lake, which the archive's checkpoint fits."""
    system.history.subscribe("paris", "late")
    system.history.publish("praha", "unread")
    shutil.rmtree(system.home / "checkpoint" / "lives")
    system.refused("checkpoint lost")
    assert system.command("apply", "--from", "topics")["epoch"] == 2
    system.run()
    system.check(again=["first"])


def test_everything_on_the_machine_lost(system: System) -> None:
    """The backup that needs no copy: topics and the last tick give a new life, and `records` the tables."""
    for folder in ("checkpoint", "lake"):
        shutil.rmtree(system.home / folder)
    system.refused("checkpoint lost")
    assert system.command("apply", "--from", "topics")["epoch"] == 2
    system.history.publish("wien", "after the loss")
    system.run()
    system.check(again=["first"])


def test_checkpoint_damaged(system: System) -> None:
    """Each file that a start reads; restored from a copy, or, without one, a life from the topics."""
    life = system.home / "checkpoint" / "lives" / "1"
    last = max((life / "router" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (life / "life.json", last):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        system.refused("checkpoint damaged")
        with pytest.raises(LacunaError, match=r"damaged.*Remedy: .*lacuna apply --from topics"):
            apply(system.config, ENGINE, system.said.append, Apply())
        file.write_bytes(whole)
    go_on(system)
    (life / "life.json").write_text("{")
    assert system.command("apply", "--from", "topics")["epoch"] == 2
    system.run()
    system.check(again=["first", "after the remedy"])


def test_other_topics(system: System) -> None:
    before = system.file.read_text()
    system.configure(before.replace('prefix = "r', 'prefix = "other'))
    system.refused("other topics")
    system.configure(before)
    go_on(system)


def test_kafka_rolled_back(new_system: Callable[..., System], tmp_path: Path) -> None:
    """The router goes on with its own state, and new tables begin with what `records` still has; the old are aside."""
    home = tmp_path / "kafka"
    kafka = program("infra.kafka", "start", "--home", str(home), "--port", "0")["bootstrap"]
    port = kafka.rpartition(":")[2]
    try:
        system = begun(new_system(kafka))
        program("infra.kafka", "stop", "--home", str(home))
        shutil.copytree(home, tmp_path / "older")
        program("infra.kafka", "start", "--home", str(home), "--port", port)
        system.history.subscribe("paris", "after the copy")
        system.run()
        system.history.publish("praha", "gone")
        system.run()
        system.check()
        program("infra.kafka", "stop", "--home", str(home))
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "older", home)
        program("infra.kafka", "start", "--home", str(home), "--port", port)
        system.refused("Kafka rolled back")
        changes = system.command("apply")["changes"]
        assert any("publish, partition 0, offsets 1 to 1, which were read before" in change for change in changes)
        system.refused("records lost")
        system.command("archive", "rebuild", "--force")
        system.history.publish("oslo", "after the remedy")
        system.run()
        system.check(lost=["gone"])
        assert [d for d in delivered(system.config)[2] if d[2] == "after the copy"], "it stands: the state has it"
    finally:
        program("infra.kafka", "stop", "--home", str(home))


def test_topic_made_again(system: System, kafka: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    system.history.publish("praha", "unread")
    admin.delete_topics([system.topic("publish")])
    admin.close()
    system.refused("topic made again")
    system.command("apply")
    system.history.publish("oslo", "after the remedy")
    system.run()
    system.check(lost=["unread"])


def test_lost_range(system: System, kafka: str) -> None:
    system.history.publish("praha", "unread", "unread too")
    system.history.publish("rome", "there")
    trim(kafka, {(system.topic("publish"), 0): 3})
    system.refused("lost range")
    assert system.command("apply")["changes"][1:] == ["lost: publish, partition 0, offsets 1 to 2"]
    system.run()
    system.check(lost=["unread", "unread too"])


def test_changed_configuration(system: System) -> None:
    """Either remedy: back to the configuration as it was, or a new life with the new one."""
    before = system.file.read_text()
    system.configure(f'{before}[routing]\nstrategy = "flood"\n')
    system.refused("changed configuration")
    system.configure(before)
    system.history.publish("wien", "as before")
    system.run()
    system.check()
    system.configure(f'{before}[routing]\nstrategy = "flood"\n')
    assert system.command("apply")["epoch"] == 2
    system.history.publish("rome", "flooded")
    system.run()
    system.check()


# The archive


def test_archives_checkpoint_lost(system: System) -> None:
    for folder in ("archive", "archive-marks"):
        shutil.rmtree(system.home / "checkpoint" / folder)
    system.refused("archive's checkpoint lost")
    system.command("archive", "rebuild")
    go_on(system)


def test_older_tables(system: System) -> None:
    """The last commit of a table's log is deleted: its rows are gone, and everything else is as before."""
    log = system.home / "lake" / "deliveries" / "_delta_log"
    max(log.glob("*.json")).unlink()
    system.refused("older tables")
    system.command("archive", "rebuild")
    go_on(system)


def test_archives_checkpoint_mixed(system: System) -> None:
    """Spark's checkpoint of the archive is older than its marks and the tables."""
    system.copy("copy")
    for k in range(2):
        system.history.publish("rome", f"later {k}")
        system.run()
    system.restore("copy", "checkpoint/archive")
    system.history.publish("rome", "unread")
    system.refused("archive's checkpoint mixed")
    system.command("archive", "rebuild")
    go_on(system)


def test_records_lost(system: System, kafka: str) -> None:
    """Rows that were not archived are gone: new tables have what is left, the old ones stay beside them."""
    service = Service.of(system.config, ENGINE, tick_seconds=0, archive=False)
    system.history.publish("praha", "not archived")
    service.start()
    service.wait(service.quiet)
    service.stop_queries()
    trim(kafka, {part: span.next for part, span in topic_spans(kafka, [system.topic("records")]).items()})
    system.refused("records lost")
    system.command("archive", "rebuild", "--force")
    system.history.publish("oslo", "after the loss")
    system.run()
    rows = {row[3] for life in archived(system.config).values() for row in life}
    assert rows == {"after the loss"}
    assert {d[3] for life in delivered(system.config).values() for d in life} == {d[3] for d in system.history.owed}


def go_on(system: System, lost: Collection[str] = ()) -> None:
    system.history.publish("oslo", "after the remedy")
    system.run()
    system.check(lost=lost)


# The router while it runs


def test_a_damaged_state(system: System) -> None:
    """There is no copy: a new life begins from the topics."""
    for file in (system.home / "checkpoint" / "lives" / "1" / "router" / "state").rglob("*"):
        if file.is_file() and file.name[0].isdigit():
            file.write_bytes(file.read_bytes()[:20])
    system.history.publish("praha", "unread")
    with pytest.raises(JobFailed, match=r"damaged.*Remedy: .*lacuna apply --from topics"), system.running() as service:
        service.wait(lambda: False)
    with pytest.raises(LacunaError, match=r"damaged.*Remedy: .*lacuna apply --from topics") as refused:
        apply(system.config, ENGINE, system.said.append, Apply())
    assert "\n" not in str(refused.value)
    assert system.command("apply", "--from", "topics")["epoch"] == 2
    system.run()
    system.check(again=["first"])


def test_a_topic_that_is_deleted_while_it_runs(system: System, kafka: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    with pytest.raises(JobFailed, match=r"the router stopped: .*Remedy: .*lacuna apply\."), system.running() as service:
        admin.delete_topics([system.topic("publish")])
        service.wait(lambda: False)
    admin.close()
    system.refused("topic made again")
    system.command("apply")
    go_on(system)


def test_retention_that_overtakes_the_router(system: System, kafka: str) -> None:
    """It reads one publication at a time; most of those that wait are removed. The plan lists what is lost."""
    ids = [f"late {k}" for k in range(40)]
    with system.running(replace(ENGINE, most_records=1)) as service:
        system.history.publish("praha", *ids)
        trim(kafka, {(system.topic("publish"), 0): 40})
        system.stops("records that were not read yet are gone from Kafka", service)
    [lost] = [change for change in system.command("apply")["changes"] if change.startswith("lost: ")]
    found = re.fullmatch(r"lost: publish, partition 0, offsets (\d+) to 39", lost)
    assert found is not None, lost
    go_on(system, lost=ids[int(found[1]) - 1 : 39])


def test_a_record_that_is_too_large(system: System, kafka: str) -> None:
    limit_records(kafka, system.topic("deliveries"), 2000)
    with system.running() as service:
        system.history.publish("rome", "large", payload=random.Random(1).randbytes(5000).hex())
        system.stops("Kafka refuses a record because of its size", service)
    for topic in ("links", "deliveries", "records"):
        limit_records(kafka, system.topic(topic), 8388608)
    go_on(system)


def limit_records(kafka: str, topic: str, most: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": str(most)})])
    admin.close()


def test_a_worker_that_dies_again_and_again(system: System) -> None:
    """As one does that needs more memory than there is: each attempt of the batch ends in the same way."""
    with system.running() as service:
        system.history.publish("oslo", "deadly")
        system.stops("a worker died, perhaps for lack of memory", service, kill_workers)
    go_on(system)


def kill_workers() -> None:
    """kill -9 for all Python processes below this one that Spark has started."""
    for pid in below(os.getpid()):
        with suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def below(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [below_it for child in map(int, file.read_text().split()) for below_it in (child, *below(child))]
    return found


def test_a_disk_that_becomes_read_only(new_system: Callable[..., System], kafka: str, tmp_path: Path) -> None:
    """The disk of the lives alone: a lock beside them is open all the time, and its disk stays as it is."""
    (tmp_path / "checkpoint").mkdir()
    with disk_of(tmp_path / "checkpoint" / "lives", "64m") as disk:
        system = begun(new_system(kafka))
        with system.running() as service:
            service.wait(lambda: remounted(disk, "ro"))
            system.history.publish("wien", "unwritten")
            system.stops("the lake or the checkpoint cannot be written", service)
        assert remounted(disk, "rw")
        go_on(system)


def remounted(disk: Path, mode: str) -> bool:
    """Mount a disk again, to be only read or to be written; not possible while a file is written."""
    return subprocess.run(["mount", "-o", f"remount,{mode}", disk], capture_output=True, check=False).returncode == 0


def test_letters_are_trimmed_behind_the_router(system: System, kafka: str) -> None:
    """Kafka forgets letters that are a part of the committed state, and nothing else: a restart needs none of them."""
    with system.running() as service:
        for k in range(3):
            system.history.publish("oslo", f"letter {k}")
            service.wait(service.quiet)
        before = system.first_letters()
        service.trim_links()
        assert system.first_letters() > before
    go_on(system)
