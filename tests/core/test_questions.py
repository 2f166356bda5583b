"""The notebook of twenty questions: every cell runs, and no answer is empty, on the tables of the demo's workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from lacuna.analysis.duck import Duck
from lacuna.cli.demo import REFUSED, config_text
from producers.workloads import Workload
from state.config import parse
from tests.core.lakes import write_lake
from tests.core.shell import Shell

NOTEBOOK = Path(__file__).parents[2] / "docs" / "questions.ipynb"


NAME = "home, client, subscription"
LATEST = f"row_number() OVER (PARTITION BY broker, link, {NAME} ORDER BY epoch DESC, batch DESC, seq DESC)"
MORE = (
    "SELECT client, count(*) AS got FROM deliveries GROUP BY client ORDER BY got DESC LIMIT 3",
    "SELECT publication_key, count(*) AS reached FROM deliveries GROUP BY 1 ORDER BY reached DESC LIMIT 3",
    "SELECT p.publication, p.point FROM publications p LEFT JOIN deliveries d ON d.publication_key = p.publication_key "
    "WHERE d.client IS NULL",
    "SELECT home, client, subscription, action, reason FROM decisions WHERE broker = 'paris' AND link = 'rome' "
    "ORDER BY epoch DESC, batch DESC, seq DESC LIMIT 3",
    f"SELECT broker, link, count(*) AS told FROM (SELECT broker, link, action, {LATEST} AS place FROM decisions) AS t "
    "WHERE place = 1 AND action IN ('forward', 'promote') GROUP BY broker, link",
    "SELECT broker, link, action, avg(nodes) AS work, max(nodes) AS most FROM decisions GROUP BY 1, 2, 3 ORDER BY work",
    "SELECT reason, count(*) AS times FROM decisions WHERE strategy LIKE 'negative-approx%' GROUP BY reason",
    "SELECT date_trunc('minute', arrived) AS minute, count(*) AS n FROM publications GROUP BY 1 ORDER BY 1",
    "SELECT point.symbol, count(*) AS n FROM publications GROUP BY 1 ORDER BY n DESC",
    "SELECT entry, broker, count(*) AS n FROM deliveries GROUP BY entry, broker ORDER BY n DESC",
    "SELECT sum(payload_bytes) AS bytes, max(payload_bytes) AS largest FROM publications",
    "SELECT client, count(*) AS n FROM standing GROUP BY client ORDER BY n DESC",
    "SELECT broker, sum(millis) AS busy, sum(batches) AS batches FROM metrics WHERE link = '*' GROUP BY broker",
    "SELECT day, sum(saved) AS saved, sum(flooded) AS flooded FROM savings GROUP BY day",
    "SELECT broker, link, reason, coverer_client, coverer_subscription FROM why WHERE action = 'withhold' LIMIT 5",
    "SELECT broker, link, max_by(negative_rectangles, written) AS kept FROM metrics WHERE negative_rectangles > 0 "
    "GROUP BY broker, link",
    "SELECT client, subscription, count(*) AS times FROM decisions WHERE action = 'promote' GROUP BY 1, 2 ORDER BY 3",
    "SELECT broker, link, hop, action, written - arrived AS taken FROM routes WHERE publication = 'p7' ORDER BY hop",
    "SELECT max(written) AS up_to FROM metrics",
    "SELECT d.client, s.filter, p.point FROM deliveries d JOIN publications p ON p.publication_key = d.publication_key "
    "JOIN standing s ON s.broker = d.broker AND s.client = d.client AND s.subscription = d.subscription",
)
"""Twenty more questions, each a query that DuckDB answers."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("demo")
    text = config_text(home)
    shell = Shell(parse(text), regions=2)
    events = list(Workload("zipf", 300, 60, cancelled=0.3).events(shell.settings.config))
    for publishing in (False, True):  # as in the demo: what stands is in force everywhere first
        for event in events:
            if (event["kind"] == "publish") == publishing:
                shell.send(event)
        shell.settle(most=150)
    for kind, broker, value in REFUSED:
        shell.put(kind, broker.encode(), value.encode())
    shell.settle(most=150)
    write_lake(shell, home)
    (home / "lacuna.toml").write_text(text)
    return home


def ask_all(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the notebook on the tables of a configuration. No answer may be empty, and none without a value."""
    matplotlib.use("Agg")
    monkeypatch.setenv("LACUNA_CONFIG", str(config))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    programs = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    questions = [text for cell in cells if (text := "".join(cell["source"])).startswith("## ")]
    assert len(questions) == 20 and len(programs) == 21
    names: dict[str, Any] = {}
    exec(programs[0], names)
    for question, program in zip(questions, programs[1:], strict=True):
        exec(program, names)
        assert names["answer"].notna().to_numpy().any(), question


def test_twenty_questions_are_answered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_all(home / "lacuna.toml", monkeypatch)


def test_twenty_more_questions_are_answered(home: Path) -> None:
    duck = Duck(parse((home / "lacuna.toml").read_text()))
    assert len(MORE) == 20
    for question in MORE:
        assert duck.query(question).read_all().num_rows > 0, question


def test_what_the_tables_tell_apart_adds_up(home: Path) -> None:
    """Whoever matches by `why_not` got a delivery, exactly; nobody got one twice; savings count each message."""
    duck = Duck(parse((home / "lacuna.toml").read_text()))

    def one(question: str) -> object:
        return duck.query(question).read_all().to_pylist()[0]["n"]

    pairs = "SELECT DISTINCT publication_key, broker, client, subscription FROM"
    assert one(f"SELECT count(*) AS n FROM ({pairs} why_not WHERE matches) AS t") == one(
        "SELECT count(*) AS n FROM deliveries"
    )
    assert one(f"SELECT count(*) AS n FROM ({pairs} deliveries) AS t") == one("SELECT count(*) AS n FROM deliveries")
    told = "action IN ('forward', 'promote', 'cancel')"
    assert one("SELECT sum(messages) AS n FROM savings") == one(f"SELECT count(*) AS n FROM decisions WHERE {told}")
