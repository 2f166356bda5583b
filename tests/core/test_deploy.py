"""The files to deploy it with: every metric that they name is exposed, every alert is explained, every option exists.

hadolint and kubernetes-validate look at the same files, and promtool does where the machine has it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from lacuna.__main__ import main
from state.config import Endpoint, parse
from streaming.exposition import PREFIX
from tests.core.test_watch import World, row

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "infra" / "deploy"
ALERTS = (DEPLOY / "alerts.yml").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


@pytest.fixture
def exposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every metric of a job that has done something of everything."""
    world = World(tmp_path, monkeypatch)
    world.batch(0, publish=1)
    world.end("publish", 1)
    world.sample()
    hub, other = world.settings.parts[0].brokers[:2]
    world.watch.tally.add(row(hub, other, forwarded=1))
    world.watch.tally.add(row(hub, "local", heard=1))
    world.watch.tally.rejects["json"] += 1
    world.watch.expiries["ca.pem"] = 0.0
    (tmp_path / "lake").mkdir()
    names = {f"{PREFIX}{metric.name}" for metric in world.watch.metrics() if metric.samples}
    return names | {f"{PREFIX}query_batch_duration_seconds_bucket"}


def named(text: str) -> set[str]:
    return set(re.findall(rf"\b{PREFIX}\w+", text))


def test_every_metric_that_is_named_is_exposed(exposed: set[str]) -> None:
    dashboard = json.loads((DEPLOY / "dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(asked) == 20
    gateway = re.findall(r'Metric\("(gateway_\w+)"', (ROOT / "lacuna" / "serve" / "app.py").read_text())
    exposed |= {f"{PREFIX}{name}" for name in gateway}
    expressions = re.findall(r"expr: (.*)", ALERTS)
    assert len(expressions) == 10
    assert named("\n".join((*asked, *expressions))) - exposed == set()
    assert named((DEPLOY / "alerts_test.yml").read_text()) - exposed == set()


def test_every_alert_has_a_paragraph_in_the_runbook() -> None:
    alerts = re.findall(r"alert: (\w+)", ALERTS)
    assert re.findall(r"^\*\*(Lacuna\w+)\.\*\*", OPERATIONS, re.M) == alerts
    tested = (DEPLOY / "alerts_test.yml").read_text()
    fired = re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", tested)
    quiet = re.findall(r"alertname: (\w+)\n\s+exp_alerts: \[\]", tested)
    assert set(fired) == set(quiet) == set(alerts)
    assert ALERTS.count("severity:") == ALERTS.count("summary:") == len(alerts)


def test_the_configuration_is_accepted_and_answers_to_other_machines() -> None:
    config = parse((DEPLOY / "lacuna.toml").read_text())
    assert config.serve.hosts and not config.serve.is_local
    assert config.endpoint == Endpoint("0.0.0.0", 9464) and config.limits.subscriptions_per_client == 10_000


STARTS = {
    "Dockerfile": "run",
    "lacuna.service": "run",
    "kubernetes/lacuna.yaml": "run",
    "compose.yml": "serve",
    "lacuna-gateway.service": "serve",
    "kubernetes/gateway.yaml": "serve",
}


@pytest.mark.parametrize("name", STARTS)
def test_the_options_exist(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb = STARTS[name]
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    lines = (DEPLOY / name).read_text().splitlines()
    started = next(line for line in lines if re.search(rf"(lacuna {verb} |\"{verb}\",)", line))
    given = set(re.findall(r"--[a-z-]+", started))
    assert "--config" in given and given <= known


def test_the_image_runs_as_nobody_in_particular() -> None:
    last = (DEPLOY / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert "USER 10001:10001" in last and "pip install" not in last
    assert all(f"COPY {package} {package}" in (DEPLOY / "Dockerfile").read_text() for package in ("state", "access"))
    rules = ("runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false", "drop: [ALL]")
    for name in ("lacuna.yaml", "gateway.yaml"):
        pod = (DEPLOY / "kubernetes" / name).read_text()
        assert all(rule in pod for rule in rules)


INSTALLED = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
"""Where programs are looked for: those of this environment first."""
PACKAGES = ("access", "infra", "lacuna", "producers", "state", "streaming")
CHECKS = {
    "promtool check": ["promtool", "check", "rules", "alerts.yml"],
    "promtool test": ["promtool", "test", "rules", "alerts_test.yml"],
    "hadolint": ["hadolint", "Dockerfile"],
    "kubernetes": [
        "kubernetes-validate",
        "--strict",
        *(str(path) for path in sorted(DEPLOY.glob("kubernetes/*.yaml"))),
    ],
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_tools_find_nothing_wrong(name: str) -> None:
    tool, *words = CHECKS[name]
    program = shutil.which(tool, path=INSTALLED)
    if program is None and tool == "promtool":
        pytest.skip("promtool is not installed: it comes with Debian's package prometheus, and with none of Python's")
    assert program is not None, f"{tool} is not installed. Remedy: make setup"
    done = subprocess.run([program, *words], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["lacuna.service", "lacuna-gateway.service"])
def test_systemd_understands_the_units(name: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    here = str(Path(sys.executable).parent / "lacuna")
    (tmp_path / name).write_text((DEPLOY / name).read_text().replace("/opt/lacuna/.venv/bin/lacuna", here))
    done = subprocess.run([program, "verify", str(tmp_path / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_each_finding_of_bandit_is_explained() -> None:
    command = [sys.executable, "-m", "bandit", "-q", "-ll", "-f", "json", "-r", *PACKAGES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    results = json.loads(done.stdout)["results"]
    assert {each["issue_severity"] for each in results} <= {"MEDIUM"}
    found = {(each["test_id"], each["filename"].removeprefix("./").removesuffix(".py")) for each in results}
    lines = re.findall(r"^\| (B\d+), .*? \| (.*?) \|", (ROOT / "SECURITY.md").read_text(), re.M)
    assert found == {(rule, module) for rule, places in lines for module in re.findall(r"`([\w/]+)`", places)}


def needed(texts: Iterable[str]) -> set[str]:
    """The packages that these requirements bring, as they are installed."""
    found: set[tuple[str, ...]] = set()
    waiting = list(map(Requirement, texts))
    while waiting:
        one = waiting.pop()
        key = (plain(one.name), *sorted(one.extras))
        if key not in found and plain(one.name) != "lacuna":
            found.add(key)
            inner = map(Requirement, distribution(one.name).requires or ())
            asked = ("", *one.extras)
            waiting += [r for r in inner if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in asked)]
    return {name for name, *_ in found}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_is_pinned_and_the_image_gets_what_it_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    product = needed([*project["dependencies"], *extras["spark"], *extras["draw"], *extras["serve"], "hatchling"])
    assert pins("requirements.lock") == product
    assert pins("requirements-dev.lock") == needed(extras["dev"]) - product


def pins(name: str) -> set[str]:
    """The packages of a lock file, each of which has hashes."""
    blocks = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / name).read_text().rstrip("\n"))[1:]
    found = [re.fullmatch(r"([\w.-]+)==\S+( \\\n    --hash=sha256:\w{64})+", block) for block in blocks]
    names = [plain(each[1]) for each in found if each is not None]
    assert len(names) == len(set(names)) == len(blocks)
    return set(names)
