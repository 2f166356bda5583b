"""Subsumption on the live router: approximate rectangles, a rebuild by command, explanations from the real tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from access.topics import ensure_topics
from lacuna.__main__ import main
from producers.sender import Sender
from producers.workloads import Workload
from state.config import parse
from state.protocol.topics import Topic
from tests.system.live import Job, infra

pytestmark = pytest.mark.system

ROUTING = '[routing]\nstrategy = {name = "negative-approx", k = 2, drift = 0}\n'


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    kafka = str(tmp_path / "kafka")
    bootstrap = infra("infra.kafka", "start", "--home", kafka, "--port", "0")["bootstrap"]
    made = Job(tmp_path / "job", bootstrap, "t")
    made.file.write_text(made.file.read_text() + ROUTING)
    made.config = parse(made.file.read_text())
    ensure_topics(bootstrap, made.config.kafka.prefix, {"deliveries": Topic(partitions=1)})
    try:
        yield made
    finally:
        made.kill()
        infra("infra.kafka", "stop", "--home", kafka)


def tick(job: Job) -> None:
    producer = KafkaProducer(bootstrap_servers=job.config.kafka.bootstrap)
    producer.send(job.topic("control"), b"", key=b"tick").get(timeout=30)
    producer.close()
    job.settle()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) in (0, 1)
    return dict(json.loads(capsys.readouterr().out))


def test_a_rebuild_by_command_and_what_the_tables_tell(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    events = [e for e in Workload("churn", 120, 0).events(job.config) if e["kind"] != "publish"]
    job.start()
    with Sender(job.config) as sender:
        for event in events:
            fields = {key: value for key, value in event.items() if key not in ("kind", "broker", "rev")}
            sender.send(event["kind"], event["broker"], fields)
    job.settle()
    config = ("--config", str(job.file))
    assert said(capsys, "rebuild", *config)["asked"]
    job.settle()
    tick(job)
    job.archive_settled()
    finished = [row for row in job.rows("metrics") if row["rebuilds"]]
    links = [f"{a}>{b}" for a, b in job.config.overlay.directions()]
    assert sorted(f"{row['broker']}>{row['link']}" for row in finished) == sorted(links)
    replayed = [row for row in job.replay().tables()["metrics"] if row["rebuilds"]]
    columns = ("broker", "link", "batch", "rebuilds", "negative_rectangles", "negative_share", "active", "passive")
    assert sorted([str(row[c]) for c in columns] for row in finished) == sorted(
        [str(row[c]) for c in columns] for row in replayed
    )
    check_explanations(job, config, capsys)


def check_explanations(job: Job, config: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    withheld = next(row for row in reversed(job.rows("decisions")) if row["action"] == "withhold")
    whose = ("--client", withheld["client"], "--broker", withheld["home"])
    picture = str(job.home / "why.svg")
    drawn = ("--draw", picture, "--link", f"{withheld['broker']}>{withheld['link']}")
    told = said(capsys, "explain", withheld["subscription"], *whose, *config, *drawn)
    (step,) = [s for s in told["links"] if (s["broker"], s["link"]) == (withheld["broker"], withheld["link"])]
    assert any(row["coverers"] == withheld["coverers"] for row in step["history"])
    assert Path(picture).stat().st_size > 1000
    again = {"client": "zoe", "id": "again", "where": told["shape"][0], "broker": withheld["home"]}
    (job.home / "new.jsonl").write_text(json.dumps(again) + "\n")
    linted = said(capsys, "lint", str(job.home / "new.jsonl"), *config, "--against")
    standing = step["state"] in ("told", "withheld")
    assert not standing or linted["findings"][0]["finding"] in ("duplicate", "covered by one", "covered by several")
