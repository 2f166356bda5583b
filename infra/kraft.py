"""A single-node Kafka in KRaft mode: its settings, its storage, its command line, and whether it answers.

Broker and controller are one process, as Kafka 4 allows for a node on its own.
Paths in the settings are relative to the home, in which the process runs: a home with spaces, commas or letters beyond
ASCII then never meets the rules of a properties file.
"""

import base64
import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from infra.errors import InfraError
from infra.ports import HOST, listens

# Why these: a misspelt topic name creates nothing; one node, so one copy; one partition for each internal topic (50 by
# default, each with files and a cost at the start); a cleaner's buffer that fits the small heap; retention by time
# alone (7 days, Kafka's default), because dropping by size could drop what a stopped job has yet to read, in segments
# small enough for it to take effect; a session of 5 s (9 by default), because after a kill -9 the broker is let back in
# only when its old session has ended.
PROPERTIES = """\
# Written by infra.kafka at each start; changes made here are lost.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{advertised},CONTROLLER://{host}:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
log.retention.hours=168
log.segment.bytes=134217728
broker.session.timeout.ms=5000
broker.heartbeat.interval.ms=1000
"""
SETTINGS, DATA = "server.properties", "data"
BROKER_JVM = (
    "-Xmx512m",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",  # 300 lines of settings
)
LOCALE = {"LC_ALL": "C.UTF-8"}  # in the plain C locale Java cannot name a folder with letters beyond ASCII
TOOL_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *BROKER_JVM[-1:])


@dataclass(frozen=True, slots=True)
class Ports:
    """Where clients and the controller are spoken to."""

    client: int
    controller: int

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.client}"


def write_settings(
    home: Path, ports: Ports, data: str = DATA, name: str = SETTINGS, advertised: int | None = None
) -> None:
    """Write the broker's settings below its home. `advertised` is the port that clients are told, if it is another."""
    told = advertised or ports.client
    text = PROPERTIES.format(host=HOST, port=ports.client, advertised=told, controller=ports.controller, data=data)
    (home / name).write_text(text, encoding="ascii")


def last_ports(home: Path) -> Ports | None:
    """Read back the ports of the last start, if there was one."""
    try:
        text = (home / SETTINGS).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(r"^listeners=PLAINTEXT://[^:]+:(\d+),CONTROLLER://[^:]+:(\d+)$", text, re.MULTILINE)
    return Ports(int(found.group(1)), int(found.group(2))) if found else None


def format_storage(java: str, jars: Path, home: Path, ports: Ports) -> None:
    """Make the storage once; it appears under its name only when it is whole."""
    data, partial, settings = home / DATA, home / f"{DATA}.partial", "format.properties"
    if cluster_id(home):
        return
    shutil.rmtree(partial, ignore_errors=True)
    write_settings(home, ports, partial.name, settings)
    tool = [java, *TOOL_JVM, "-cp", f"{jars}/*", "kafka.tools.StorageTool"]
    command = [*tool, "format", "--standalone", "-t", _new_cluster_id(), "-c", settings]
    done = subprocess.run(
        command,
        cwd=home,
        env=os.environ | LOCALE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        raise InfraError(
            f"Kafka could not format its storage in {home}:\n{done.stdout.decode(errors='replace')[-2000:]}\n"
            "The home must be a folder of this broker alone, on a disk with some space left: see to that, or choose "
            "another --home"
        )
    partial.rename(data)
    (home / settings).unlink()


def cluster_id(home: Path) -> str | None:
    """Return the id in the storage, or None where there is none yet."""
    try:
        text = (home / DATA / "meta.properties").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^cluster\.id=(\S+)$", text, re.MULTILINE)
    return found.group(1) if found else None


def broker_command(java: str, jars: Path, mark: str) -> list[str]:
    """Return the command that runs the broker, from its home, with `mark` among its arguments."""
    return [java, *BROKER_JVM, mark, "-cp", f"{jars}/*", "kafka.Kafka", SETTINGS]


def answers(home: Path, ports: Ports) -> bool:
    """Ask the broker for its cluster: true when this home's answers and is ready to serve."""
    if not listens(ports.client):
        return False
    try:
        admin = KafkaAdminClient(bootstrap_servers=ports.bootstrap, bootstrap_timeout_ms=5000, request_timeout_ms=5000)
        try:
            cluster = admin.describe_cluster()
        finally:
            admin.close()
    except (KafkaError, OSError):
        return False
    return cluster["cluster_id"] == cluster_id(home) and not any(node["is_fenced"] for node in cluster["brokers"])


def _new_cluster_id() -> str:
    """Return what Kafka's own tool would: a random UUID in URL-safe base64, not looking like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text
