"""The local Kafka: started, used, killed, started again and stopped, as a program, as its callers use it.

Real brokers, each in a home of its own and at ports that were free; every wait is for a condition.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaTimeoutError

from infra import kraft
from infra.jars import pinned
from infra.java import find_java
from infra.kafka import LocalKafka

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "infra.kafka"]


def kafka(action: str, home: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """Run the program to its end, check its exit code, and return its JSON; that it ends shows its pipes are closed."""
    command = [*PROGRAM, action, "--home", str(home), "--json", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def lives(pid: int) -> bool:
    """Tell whether the process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return when the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def create(bootstrap: str, topic: str) -> None:
    """Make a topic of one partition, and see that it is the only one."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.wait_for_topics([topic], timeout_ms=30_000)
    assert admin.list_topics() == [topic]
    admin.close()


def produce(bootstrap: str, topic: str, values: range) -> None:
    """Put numbers into a topic and wait until the broker has them."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for result in [producer.send(topic, str(value).encode()) for value in values]:
        result.get(timeout=30)
    producer.close()


def consume(bootstrap: str, topic: str, count: int) -> list[int]:
    """Read that many numbers from the beginning of a topic of one partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values: list[int] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            values += [int(record.value) for record in records]
    consumer.close()
    return values


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    """Have the jars, so that no test's time includes the network."""
    subprocess.run([sys.executable, "-m", "infra.fetch", "kafka"], cwd=ROOT, capture_output=True, check=True)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a home that does not exist yet; whatever runs there is stopped after the test, however it went."""
    folder = tmp_path / "a hôme, mine"  # people have such folders
    yield folder
    with contextlib.suppress(AssertionError):
        kafka("stop", folder)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory, _jars: None) -> Path:
    """Return the storage of a broker that never ran, for the tests that need not see it made."""
    folder = tmp_path_factory.mktemp("formatted")
    kraft.format_storage(find_java().path, pinned("kafka").folder, folder, kraft.Ports(9092, 9093))
    return folder / "data"


@pytest.fixture
def ready(home: Path, storage: Path) -> Path:
    """Return a home whose storage is there already."""
    shutil.copytree(storage, home / "data")
    return home


def test_life_of_a_broker(home: Path) -> None:
    """Two starts at once give one broker; it keeps what it acknowledged through a kill -9; stopped, nothing is left."""
    command = [*PROGRAM, "start", "--home", str(home), "--port", "0", "--json"]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=180)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(answer.pop("changed") for answer in answers) == [False, True]
    assert answers[0] == answers[1]
    first = answers[0]
    assert set(first) == {"running", "state", "bootstrap", "pid", "home", "log"}
    assert kafka("status", home) == first | {"changed": False}
    assert kafka("start", home) == first | {"changed": False}

    create(first["bootstrap"], "numbers")
    produce(first["bootstrap"], "numbers", range(100))
    assert consume(first["bootstrap"], "numbers", 100) == list(range(100))

    os.kill(first["pid"], signal.SIGKILL)
    wait_for(lambda: not lives(first["pid"]))
    dead = kafka("status", home, code=3)
    assert (dead["running"], dead["state"], dead["pid"], dead["bootstrap"]) == (False, "stopped", None, None)

    second = kafka("start", home)
    assert second["changed"]
    assert second["bootstrap"] == first["bootstrap"]
    assert second["pid"] != first["pid"]
    produce(second["bootstrap"], "numbers", range(100, 110))
    assert consume(second["bootstrap"], "numbers", 110) == list(range(110))

    stopped = kafka("stop", home)
    assert (stopped["changed"], stopped["running"], stopped["pid"]) == (True, False, None)
    assert not lives(second["pid"])
    assert not (home / "kafka.pid").exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(second["bootstrap"].rpartition(":")[2])), timeout=5)
    assert kafka("stop", home)["changed"] is False


def test_a_start_that_is_told_to_end_takes_its_broker_along(ready: Path) -> None:
    """SIGTERM while it waits for the answer: no process, no pid file."""
    command = [*PROGRAM, "start", "--home", str(ready), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for((ready / "kafka.pid").exists)
        wait_for(lambda: (ready / "kafka.pid").read_text() != "")
        pid = int((ready / "kafka.pid").read_text())
        process.terminate()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not lives(pid)
    assert not (ready / "kafka.pid").exists()


def test_foreground_for_a_supervisor(ready: Path) -> None:
    """It stays while the broker runs, stops it when told to end, and fails when the broker ends by itself."""
    command = [*PROGRAM, "start", "--foreground", "--home", str(ready), "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert started["running"]
        with pytest.raises(KafkaTimeoutError):
            KafkaProducer(bootstrap_servers=started["bootstrap"], max_block_ms=1000).send("misspelt", b"")
        process.terminate()
        assert json.loads(process.stdout.readline())["state"] == "stopped"
        assert process.wait(timeout=60) == 0
    assert not lives(started["pid"])

    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        os.kill(json.loads(process.stdout.readline())["pid"], signal.SIGKILL)
        words = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "Kafka ended by itself.\nThe end of " in words


def test_a_failed_start_shows_the_log_and_leaves_no_process(home: Path) -> None:
    """The storage belongs to another node: the broker ends, and its reason is in the message, with a remedy."""
    data = home / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n")
    error = kafka("start", home, "--port", "0", code=1)["error"]
    assert "Kafka ended before it answered" in error
    assert "Stored node id 7 doesn't match" in error
    assert f"delete {home} and start again" in error
    assert not (home / "kafka.pid").exists()


def test_a_start_that_takes_too_long_is_withdrawn(ready: Path) -> None:
    """No answer within the deadline: the process is ended and the message says how to give it longer."""
    error = kafka("start", ready, "--port", "0", "--timeout", "0.2", code=1)["error"]
    pid = int(error.partition("(process ")[2].partition(")")[0])
    assert "did not answer" in error
    assert "--timeout" in error
    assert not lives(pid)
    assert kafka("status", ready, code=3)["state"] == "stopped"


@pytest.mark.parametrize("option", ["--port", "--controller-port"])
def test_a_port_in_use_is_refused(option: str, home: Path) -> None:
    """The message names the port, the rule and the way out; nothing was started or formatted."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = kafka("start", home, "--port", "0", option, str(port), code=1)["error"]
    assert f"port {port} ({option}) of 127.0.0.1 cannot be used: Address already in use" in error
    assert "Kafka needs two ports of its own" in error
    assert "--port 0" in error
    assert not (home / "data").exists()


def test_a_stale_pid_file_is_seen_through(home: Path) -> None:
    """The number now belongs to another program (this one): not running, and stop lets that program be."""
    home.mkdir()
    (home / "kafka.pid").write_text(f"{os.getpid()}\n")
    (home / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:9,CONTROLLER://127.0.0.1:10\n")
    assert kafka("status", home, code=3)["pid"] is None
    assert kafka("stop", home)["changed"] is False
    assert not (home / "kafka.pid").exists()


def test_status_and_stop_where_nothing_ever_was(home: Path) -> None:
    """They answer, and make no folder."""
    assert kafka("status", home, code=3)["state"] == "stopped"
    assert kafka("stop", home)["state"] == "stopped"
    assert not home.exists()


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """One message, with the remedy."""
    (tmp_path / "file").write_text("")
    error = kafka("start", tmp_path / "file" / "home", "--port", "0", code=1)["error"]
    assert "cannot write below" in error
    assert "choose another --home" in error


def test_one_broker_in_a_home(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a context in Python; while it runs, another port for the same home is refused."""
    monkeypatch.chdir(ready)
    with LocalKafka(Path(), port=0) as broker:
        monkeypatch.chdir(ROOT)
        port = int(broker.bootstrap.rpartition(":")[2]) if broker.bootstrap else 0
        error = kafka("start", ready, "--port", str(port + 2), code=1)["error"]
        assert f"already runs, at port {port}" in error
        assert kafka("status", ready)["pid"] == broker.pid
    assert kafka("status", ready, code=3)["state"] == "stopped"
