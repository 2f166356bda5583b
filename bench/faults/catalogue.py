"""The faults, as data: what is done, how it is seen to have hit, and what may come of it.

A fault is a function of a cycle. It waits for its condition, does the damage, and returns what proves that it hit; it
raises `Failed` if it did not. What stops the job is found afterwards, and its remedy followed (`campaign`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafka import KafkaProducer
from kafka.admin import NewPartitions

from access.connection import connect_admin
from access.topics import partition_counts
from bench.faults.gateway import CLIENT, Gateway
from bench.faults.system import BALLAST, LACUNA, Failed, state_of, wait_until

if TYPE_CHECKING:
    from bench.faults.campaign import Cycle

STRATEGIES = ("flood", "cover", "union", "auto", "negative")
TOPICS = ("subscribe", "unsubscribe", "publish", "links", "deliveries", "notices", "control", "records")


class Fault(NamedTuple):
    """A fault. With `again`, what the cycle published may come again in another life, as `lives.md` allows and says.

    With `last`, nothing else is tried on this system: what Kafka has lost is missing for the remedies of other faults.
    """

    name: str
    do: Callable[[Cycle], str]
    again: bool = False
    last: bool = False
    own_disk: bool = False


# processes


def kill_driver(cycle: Cycle) -> str:
    """Kill the job with all that it has started, in the middle of a batch."""
    batch = cycle.await_batch()
    assert cycle.system.process is not None
    pid = cycle.system.process.pid
    cycle.system.kill()
    return f"process {pid} is gone; {batch}"


def kill_worker(cycle: Cycle) -> str:
    """Kill Spark's Python workers in the middle of a batch."""
    batch = cycle.await_batch()
    killed = cycle.system.signal_all(signal.SIGKILL, workers=True)
    wait_until(lambda: all(state_of(pid) in ("", "Z") for pid in killed), "the workers are dead", 30)
    return _some(killed, f"workers are gone; {batch}")


def kill_at_start(cycle: Cycle) -> str:
    """Kill the job while it starts, at any moment of that."""
    cycle.system.stop()
    cycle.system.start(wait=False)
    assert cycle.system.process is not None
    sign = cycle.chance.choice(["", "how it is", "waiting for the first batch"])
    wait_until(lambda: sign in cycle.system.log.read_text() or not cycle.system.runs, "it is starting")
    time.sleep(cycle.chance.random() * 3)
    if not cycle.system.runs:
        raise Failed(f"the job ended by itself: {cycle.system.last_words()[:300]}")
    cycle.system.kill()
    return f"killed at its start, after {sign or 'any word'!r}"


def pause_driver(cycle: Cycle) -> str:
    """SIGSTOP for the job and all that it has started; events come meanwhile."""
    return _pause_job(cycle, workers=False)


def pause_worker(cycle: Cycle) -> str:
    """SIGSTOP for Spark's Python workers."""
    return _pause_job(cycle, workers=True)


def _pause_job(cycle: Cycle, *, workers: bool) -> str:
    batch = cycle.await_batch()
    paused = cycle.system.signal_all(signal.SIGSTOP, workers=workers)
    stood = [pid for pid in paused if state_of(pid) == "T"]
    cycle.publish(5)
    time.sleep(cycle.chance.uniform(1, 8))
    cycle.system.signal_all(signal.SIGCONT, workers=workers)
    return _some(stood, f"processes stood still; {batch}")


def kill_kafka(cycle: Cycle) -> str:
    """Kill Kafka in the middle of a batch, and start it again."""
    batch, pid = cycle.await_batch(), cycle.system.kafka.pid
    cycle.system.kafka.kill()
    time.sleep(cycle.chance.uniform(0, 3))
    cycle.system.kafka.start()
    return f"Kafka's process {pid} was killed, {cycle.system.kafka.pid} follows; {batch}"


def pause_kafka(cycle: Cycle) -> str:
    """SIGSTOP for Kafka."""
    batch, pid = cycle.await_batch(), cycle.system.kafka.pid
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T", "Kafka stands still", 10)
    time.sleep(cycle.chance.uniform(1, 8))
    os.kill(pid, signal.SIGCONT)
    return f"Kafka (process {pid}) stood still; {batch}"


def kill_gateway(cycle: Cycle) -> str:
    """Kill a gateway whose listener takes a stream, and start it again."""
    return _break_gateway(cycle, kills=True)


def pause_gateway(cycle: Cycle) -> str:
    """SIGSTOP for a gateway whose listener takes a stream."""
    return _break_gateway(cycle, kills=False)


def _break_gateway(cycle: Cycle, *, kills: bool) -> str:
    with Gateway(cycle.system) as gateway:
        ids = cycle.publish(8)
        wait_until(lambda: gateway.heard.total() > 0 or not cycle.owed_to(CLIENT, ids), "the listener hears", 60)
        pid = gateway.process.pid
        if kills:
            gateway.kill()
            ids += cycle.publish(8)
            gateway.start()
        else:
            gateway.pause()
            ids += cycle.publish(8)
            time.sleep(cycle.chance.uniform(1, 5))
            gateway.go_on()
        ids += cycle.publish(4)
        owed = Counter(cycle.owed_to(CLIENT, ids))
        with suppress(Failed):
            wait_until(lambda: not owed - gateway.heard, "the listener has heard all", 60)
    if owed != gateway.heard:
        raise Failed(f"the listener took {gateway.heard - owed} too much, {owed - gateway.heard} too little")
    return f"the gateway (process {pid}) {'was killed' if kills else 'stood still'}; the listener took {owed.total()}"


# the way to Kafka


def cut_the_way(cycle: Cycle) -> str:
    """Cut all connections to Kafka, and let none be made."""
    batch, proxy = cycle.await_batch(), cycle.system.kafka.proxy
    proxy.cut = True
    proxy.drop()
    time.sleep(0.5)
    before = proxy.relayed
    time.sleep(cycle.chance.uniform(1, 12))
    passed = proxy.relayed - before
    proxy.cut = False
    if passed:
        raise Failed(f"{passed} bytes passed the cut")
    return f"no byte passed; {batch}"


def slow_the_way(cycle: Cycle) -> str:
    """Let every piece of data wait on its way to Kafka and back."""
    proxy = cycle.system.kafka.proxy
    proxy.delay = cycle.chance.uniform(0.05, 0.4)
    before, batch = proxy.relayed, cycle.await_batch()
    cycle.publish(5)
    slow, proxy.delay = proxy.delay, 0.0
    return f"{proxy.relayed - before} bytes waited {slow:.2f} s at each turn; {batch}"


# disks and files


def fill_the_disk(cycle: Cycle) -> str:
    """Take all the room on the disk of the lake and the checkpoint, until the job stops."""
    ballast = cycle.system.disk / BALLAST
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    cycle.publish(5)
    said = cycle.system.ended()
    if "a disk is full" not in said:
        raise Failed(f"unclear stop: {said[:500]}")
    return "the job said that the disk is full"


def truncate_checkpoint(cycle: Cycle) -> str:
    """Cut a file of the router's checkpoint in half."""
    file = _stopped_file(cycle)
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(size // 2)
    return f"{_short(cycle, file)}: {size // 2} bytes of {size}"


def delete_checkpoint(cycle: Cycle) -> str:
    """Delete a file of the router's checkpoint."""
    file = _stopped_file(cycle)
    file.unlink()
    return f"{_short(cycle, file)} is gone"


def _stopped_file(cycle: Cycle) -> Path:
    """Stop the job, by word or by kill, and choose one of the newest files of each folder of its checkpoint."""
    cycle.chance.choice([cycle.system.stop, cycle.system.kill])()
    life = cycle.system.router_folder().parent
    folders = [life, *sorted(path for path in life.rglob("*") if path.is_dir())]
    files = [
        max(found, key=lambda p: p.stat().st_mtime_ns)
        for folder in folders
        if (found := sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] != "." and p.stat().st_size))
    ]
    return cycle.chance.choice(files)


def _short(cycle: Cycle, file: Path) -> str:
    return str(file.relative_to(cycle.system.disk))


def damage_table(cycle: Cycle) -> str:
    """Delete the last commit of a table's log, or cut it in half."""
    cycle.system.stop()
    table = cycle.chance.choice(["deliveries", "routes", "publications"])
    file = max((cycle.system.disk / "lake" / table / "_delta_log").glob("*.json"))
    if cycle.chance.random() < 0.5:
        file.unlink()
        return f"{_short(cycle, file)} is gone"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return f"{_short(cycle, file)} is cut in half"


def lose_the_folder(cycle: Cycle) -> str:
    """Lose the router's checkpoint, or everything that was on the machine."""
    cycle.system.kill()
    lost = cycle.chance.choice([["checkpoint/lives"], ["checkpoint", "lake"]])
    for name in lost:
        shutil.rmtree(cycle.system.disk / name)
    return f"{' and '.join(lost)} are gone"


def restore_checkpoint(cycle: Cycle) -> str:
    """Restore lake and checkpoint from a copy that is older."""
    names, copy = ("checkpoint", "lake"), cycle.system.home / "copy"
    cycle.system.stop()
    shutil.rmtree(copy, ignore_errors=True)
    for name in names:
        shutil.copytree(cycle.system.disk / name, copy / name)
    cycle.start()
    copied = cycle.system.batches()
    cycle.publish(5)
    cycle.await_done()
    cycle.system.kill()
    further = cycle.system.batches()
    if further <= copied:
        raise Failed(f"the router did not go on after the copy: batch {copied}, then {further}")
    for name in names:
        shutil.rmtree(cycle.system.disk / name)
        shutil.copytree(copy / name, cycle.system.disk / name)
    return f"batch {copied} again, after batch {further}"


def restore_kafka(cycle: Cycle) -> str:
    """Restore Kafka's data from a copy that is older, while the job keeps its folder."""
    kafka, copy = cycle.system.kafka, cycle.system.home / "kafka-copy"
    kafka.stop()
    shutil.copytree(kafka.home, copy)
    kafka.start()
    cycle.lost += cycle.publish(5)
    cycle.await_done()
    cycle.system.stop()
    kafka.stop()
    shutil.rmtree(kafka.home)
    shutil.copytree(copy, kafka.home)
    shutil.rmtree(copy)
    kafka.start()
    return f"Kafka has forgotten {', '.join(cycle.lost)}"


# others on the same prefix


def second_job(cycle: Cycle) -> str:
    """Start a second job, on the same checkpoint and on another."""
    system = cycle.system
    elsewhere = system.home / "elsewhere"
    text = system.file.read_text().replace(str(system.disk), str(elsewhere))
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "lacuna.toml").write_text(text)
    cycle.publish(5)
    for file, sign in ((system.file, "runs on this checkpoint already"), (elsewhere / "lacuna.toml", "holds it since")):
        done = subprocess.run(
            [*LACUNA, "run", "--config", str(file)], capture_output=True, text=True, check=False, timeout=240
        )
        said = (done.stderr.strip().splitlines() or [""])[-1]
        cycle.note_stop(said, "the second job stays away")
        if done.returncode != 2 or sign not in said or "Remedy" not in said:
            raise Failed(f"unclear stop: the second job said {said[:300]}")
    if (elsewhere / "lake").exists():
        raise Failed("the second job has made tables")
    return "both were refused"


def foreign_records(cycle: Cycle) -> str:
    """Write what is not Lacuna's, and what looks as if it were, into every topic."""
    values = [b"", b"not Lacuna's", b"{}", b'{"epoch": 1, "seq": 99999, "channel": "n1"}', cycle.chance.randbytes(200)]
    with closing(KafkaProducer(bootstrap_servers=cycle.system.kafka.bootstrap)) as producer:
        for topic in TOPICS:
            for key in (b"n1", b"n1>n2", b"gossip"):
                value = cycle.chance.choice(values)
                producer.send(cycle.system.topic(topic), value, key=key).get(timeout=60)
    return f"{3 * len(TOPICS)} records in {len(TOPICS)} topics"


def move_the_clock(cycle: Cycle) -> str:
    """Let producers' clocks be years ahead and years behind: they say so in their events."""
    for moment in ("1999-12-31T23:59:59Z", "2041-05-05T05:05:05Z"):
        cycle.publish(3, time=moment)
    return "events are dated 1999 and 2041"


# topics and configuration


def make_topic_again(cycle: Cycle) -> str:
    """Delete a topic whose records were read, while the job runs or stands; another with its name follows."""
    cycle.await_done()
    cycle.system.await_tick()
    topic = cycle.chance.choice(["publish", "links"])
    running = cycle.chance.random() < 0.5
    if not running:
        cycle.system.stop()
    with closing(connect_admin(cycle.system.kafka.bootstrap)) as admin:
        admin.delete_topics([cycle.system.topic(topic)])
    if running:
        cycle.system.ended()
    return f"{topic} was deleted while the job {'ran' if running else 'stood'}"


def add_partitions(cycle: Cycle) -> str:
    """Add a partition to topics while the job runs."""
    names = cycle.chance.sample(["publish", "subscribe", "unsubscribe", "deliveries", "records", "links"], 3)
    there = partition_counts(cycle.system.kafka.bootstrap, cycle.system.prefix)
    counts = {cycle.system.topic(name): there[name] + 1 for name in names}
    with closing(connect_admin(cycle.system.kafka.bootstrap)) as admin:
        admin.create_partitions({topic: NewPartitions(total_count=count) for topic, count in counts.items()})
    return ", ".join(f"{topic} has {count} partitions" for topic, count in counts.items())


def change_configuration(cycle: Cycle) -> str:
    """Change the strategy of all links while the job runs and clients publish; perhaps it is killed meanwhile."""
    system = cycle.system
    text = system.file.read_text()
    now = next(name for name in STRATEGIES if f'strategy = "{name}"' in text)
    new = cycle.chance.choice([name for name in STRATEGIES if name != now])
    system.configure(text.replace(f'strategy = "{now}"', f'strategy = "{new}"'))
    kills = cycle.chance.random() < 0.5
    with subprocess.Popen(
        [*LACUNA, "apply", "--config", str(system.file), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as asking:
        if kills:
            sign = cycle.chance.choice(["subscriptions again", "stopping between", ""])
            wait_until(lambda: sign in system.log.read_text() or asking.poll() is not None, "the change is under way")
            system.kill()
            asking.kill()
        else:
            cycle.publish(5)
        _, said = asking.communicate()
    if kills:
        return f"killed while it changed from {now} to {new}"
    if asking.returncode:
        raise Failed(f"unclear stop: lacuna apply said {said.strip().splitlines()[-1][:300]}")
    return f"changed from {now} to {new} while it ran"


def _some(pids: list[int], what: str) -> str:
    if not pids:
        raise Failed("there was no process to be hit")
    return f"{len(pids)} {what}"


FAULTS = (
    Fault("kill -9 of the driver", kill_driver),
    Fault("kill -9 of workers", kill_worker),
    Fault("kill -9 at the start", kill_at_start),
    Fault("SIGSTOP of the driver", pause_driver),
    Fault("SIGSTOP of workers", pause_worker),
    Fault("kill -9 of Kafka", kill_kafka),
    Fault("SIGSTOP of Kafka", pause_kafka),
    Fault("kill -9 of the gateway", kill_gateway),
    Fault("SIGSTOP of the gateway", pause_gateway),
    Fault("the way to Kafka is cut", cut_the_way),
    Fault("the way to Kafka is slow", slow_the_way),
    Fault("disk full", fill_the_disk, own_disk=True),
    Fault("a file of the checkpoint is truncated", truncate_checkpoint, again=True),
    Fault("a file of the checkpoint is deleted", delete_checkpoint, again=True),
    Fault("a table's log is damaged", damage_table),
    Fault("the checkpoint is lost", lose_the_folder, again=True),
    Fault("the checkpoint is an older copy", restore_checkpoint, again=True),
    Fault("a second job", second_job),
    Fault("foreign records", foreign_records),
    Fault("producers' clocks are wrong", move_the_clock),
    Fault("partitions are added", add_partitions),
    Fault("the configuration changes", change_configuration),
    Fault("a topic is made again", make_topic_again, last=True),
    Fault("Kafka's data is an older copy", restore_kafka, last=True),
)
SKIPPED = ("the machine's own clock moved: there is no libfaketime here, and Kafka's clock is the machine's",)


def fault_of(seed: int) -> Fault:
    """Return the fault of a cycle: as many cycles as there are faults have each once, in an order by chance."""
    turn, place = divmod(seed, len(FAULTS))
    order = random.Random(f"faults {turn}").sample(FAULTS, len(FAULTS))
    return order[place]
