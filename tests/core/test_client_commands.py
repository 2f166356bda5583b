"""The commands for clients as far as they go without Kafka: options, messages, files, pace."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lacuna.__main__ import main
from lacuna.cli.options import read_filter
from lacuna.cli.publish import read_payload
from producers.auctions import SPACE
from producers.produce import Pace
from producers.workloads import WORKLOADS, Workload
from state.config import parse
from state.errors import ConfigError
from state.filters.where import asked

CONFIG = """
[space]
price = {{kind = "float", low = 0.0, high = 1000.0}}
volume = {{kind = "int", low = 0, high = 100000}}
[overlay]
{overlay}
[kafka]
bootstrap = "127.0.0.1:{port}"
"""
TREE = 'links = [["oslo", "paris"]]'
POINT = '{"price": 1, "volume": 2}'


@pytest.fixture
def closed() -> Iterator[int]:
    """A port at which nothing listens, and nothing can begin to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: int) -> Path:
    (tmp_path / "lacuna.toml").write_text(CONFIG.format(overlay=TREE, port=closed))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def message(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a command fails with, before it turns to Kafka."""
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lacuna: ")
    assert err.count("\n") == 1, err
    return err


PUBLISH = ("publish", "--broker", "oslo", "--id", "p1", "--at")
SUBSCRIBE = ("subscribe", "--broker", "oslo", "--client", "ann", "--id", "s1", "--where")
SENDING = [
    (*SUBSCRIBE, "{}"),
    ("unsubscribe", "--broker", "oslo", "--client", "ann", "--id", "s1"),
    (*PUBLISH, POINT),
    ("listen", "--client", "ann"),
    ("produce", "zipf"),
    ("prune", "network", "--prunings", "5", "--link", "oslo>paris"),
]


@pytest.mark.parametrize("words", SENDING, ids=lambda words: words[0])
def test_unreachable_kafka_is_one_message(
    here: Path, closed: int, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    told = message(capsys, *words, "--deadline", "0.3")
    assert f"kafka.bootstrap = '127.0.0.1:{closed}': no Kafka answered there within 0.3 s. Remedy: start Kafka" in told


@pytest.mark.parametrize("words", SENDING, ids=lambda words: words[0])
def test_a_missing_configuration_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert "there is no such file" in message(capsys, *words, "--config", str(tmp_path / "nowhere.toml"))


def test_a_bootstrap_that_is_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "lacuna.toml").write_text(CONFIG.format(overlay=TREE, port="kafka"))
    told = message(capsys, *PUBLISH, POINT)
    assert "kafka.bootstrap = '127.0.0.1:kafka': it is not a list of HOST:PORT" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*SUBSCRIBE, '{"price": [10, 20'), """--where = '{"price": [10, 20': it is not JSON"""),
        ((*SUBSCRIBE, '{"price": [1, 2], "price": [3, 4]}'), "a name stands twice in one object"),
        ((*PUBLISH, "[1, 2]"), "--at = '[1, 2]': it is not a JSON object. Remedy: write it as"),
        (("publish", "--at", POINT), "--broker: there are 2 brokers. Remedy: name one of oslo, paris."),
        (("publish", "--broker", "rome", "--at", POINT), "broker = 'rome': the overlay has no such broker"),
        (
            ("produce", "zipf", "--out", "f", "--rate", "5"),
            "--rate = 5.0: a file has no rate. Remedy: leave out --rate",
        ),
        (
            ("prune", "off", "--link", "oslo>paris", "--link", "oslo>rome"),
            "--link = 'oslo>rome': the overlay has no such link. Remedy: name some of oslo>paris, paris>oslo.",
        ),
        (
            ("prune", "off", "--prunings", "5"),
            "--prunings = 5: with off there is nothing to stop. Remedy: leave it out",
        ),
        (("prune", "configured", "--worst", "0"), "--worst = 0.0: with configured there is nothing to stop"),
        (("prune", "memory", "--prunings", str(1 << 63)), "a whole number of at least 0, below 2^63. Remedy: choose a"),
    ],
)
def test_what_a_person_may_get_wrong(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert told in message(capsys, *words)


@pytest.mark.parametrize(
    "words",
    [
        ("produce", "zipf", "--rate", "0"),
        ("produce", "zipf", "--rate", "fast"),
        ("listen", "--client", "ann", "--timeout", "nan"),
        ("listen", "--client", "ann", "--count", "-1"),
        (*SUBSCRIBE, "{}", "--ttl", "-5"),
        ("listen",),
        ("publish", "--id", "p1"),
        ("prune",),
        ("prune", "speed"),
        ("prune", "network", "--prunings", "-1"),
        ("prune", "network", "--worst", "inf"),
    ],
)
def test_options_that_make_no_sense(here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    assert "usage: lacuna" in capsys.readouterr().err


def test_ranges_are_not_pruned(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (here / "lacuna.toml").open("a") as file:
        file.write('[routing]\nstrategy = "mics"\n')
    assert "routing.strategy = 'mics': links under mics speak in ranges" in message(capsys, "prune", "network")


def test_payload_is_json_or_text() -> None:
    assert read_payload(None) is None
    assert read_payload("hello") == "hello"
    assert read_payload('{"a": [1]}') == {"a": [1]}
    assert read_payload("12") == 12
    assert read_payload('"12"') == "12"
    assert read_payload("NaN") == "NaN"


def test_produce_into_a_file_needs_no_kafka(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "churn", "--subscriptions", "20", "--publications", "30", "--out", "f", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    lines = Path("f").read_text().splitlines()
    assert len(lines) == summary["subscribe"] + summary["unsubscribe"] + summary["publish"]
    assert main(["produce", "churn", "--subscriptions", "20", "--publications", "30", "--out", "-"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("cancelled", [None, 0.0, 0.33])
def test_a_workload_knows_its_size(name: str, cancelled: float | None) -> None:
    workload = Workload(name, 101, 17, cancelled)
    text = CONFIG.format(overlay=TREE, port=1)
    if name == "auctions":
        text = SPACE + text[text.index("[overlay]") :]
    assert workload.total == sum(1 for _ in workload.events(parse(text)))


class Clock:
    """Time that passes only by sleeping, and by what an event takes."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("rate", "takes", "seconds"), [(100, 0, 9.99), (100, 0.004, 9.99), (100, 0.02, 19.98)])
def test_the_pace_is_kept_on_average(rate: float, takes: float, seconds: float) -> None:
    clock = Clock()
    pace = Pace(rate, clock, clock.sleep)
    for _ in range(1000):
        pace.wait()
        last = clock.now
        clock.now += takes
    assert last - 100 == pytest.approx(seconds, abs=0.01)


def test_a_pause_is_made_up_for() -> None:
    clock = Clock()
    pace = Pace(100, clock, clock.sleep)
    clock.now += 5
    for _ in range(1001):
        pace.wait()
    assert clock.now == pytest.approx(110)


def test_without_a_rate_nothing_waits() -> None:
    clock = Clock()
    pace = Pace(None, clock, clock.sleep)
    for _ in range(10):
        pace.wait()
    assert clock.now == 100


def test_a_filter_on_the_command_line_is_text_or_json() -> None:
    assert read_filter("price < 5 OR volume > 3") == "price < 5 OR volume > 3"
    assert read_filter(' {"price": [1, 2]}') == {"price": [1, 2]}
    assert read_filter('[{"price": [1, 2]}, {}]') == [{"price": [1, 2]}, {}]
    with pytest.raises(ConfigError, match=r"--where.*not JSON"):
        read_filter("[1, 2")


def test_the_advice_for_a_bad_filter_is_good_filters() -> None:
    space = parse(CONFIG.format(overlay=TREE, port=9092)).space
    for text in ('{"price": [10, 20', '[{"price": 5}'):
        with pytest.raises(ConfigError) as error:
            read_filter(text)
        advised = re.findall(r"'([^']*)'", error.value.remedy)
        assert len(advised) == 2
        for one in advised:
            assert asked(space, read_filter(one)).boxes
