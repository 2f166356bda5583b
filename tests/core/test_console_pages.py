"""The pages of the console, over lakes that are written without Spark."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from lacuna.analysis.duck import Duck
from lacuna.serve.guard import POLICY
from lacuna.serve.overview import WINDOWS, Overview
from lacuna.serve.pages import ASSETS, again, page_of
from state.config import Config
from tests.core.consoles import EVIL, HEALTHY, HOSTILE, TEXT, TOUR, console, publish, subscribe, write

VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """What a browser would make of a page: text, elements and attributes. Tags must fit."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words)).replace("\u00a0", " ")


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return write(TOUR, tmp_path_factory.mktemp("tour"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return write(HOSTILE, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def seen(tour: Config) -> TestClient:
    return console(tour)


def page(client: TestClient, path: str, status: int = 200) -> Page:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return Page(answer.text)


def test_overlay_shows_what_flowed_and_what_was_saved(seen: TestClient) -> None:
    text = page(seen, "/").text
    assert "4 brokers, 3 links, 4 regions · strategy auto · since the tables begin" in text
    assert "Deliveries 3 " in text  # p1 to s2 and s3, p2 to s3
    assert "15 instead of 15 by flooding" in text
    assert "Standing subscriptions 3" in text
    assert "paris → oslo ▲ hot" in text
    assert "● healthy · tables up to date" in text


def test_overlay_finds_a_broker_or_says_what_there_is(seen: TestClient) -> None:
    found = page(seen, "/?broker=wien")
    assert ("tr", {"class": "found"}) in found.elements
    assert "There is no broker wein (did you mean 'wien'?)." in page(seen, "/?broker=wein").text


def test_overlay_of_another_time(seen: TestClient) -> None:
    assert "Nothing was published in this time." in page(seen, "/?time=10m").text  # the shell's clock is in 1970
    assert "since the tables begin" in page(seen, "/?time=nonsense").text


def test_subscriptions_are_listed_and_found(seen: TestClient) -> None:
    text = page(seen, "/subscriptions").text
    assert "3 stand." in text
    assert "s3 cat oslo price 15 to 25, symbol IBM" in text
    assert "s2 bob" not in text
    assert "1 found." in page(seen, "/subscriptions?q=S3").text
    assert "1 found." in page(seen, "/subscriptions?q=s3+of+cat+at+oslo").text
    assert "None of the 3 fits." in page(seen, "/subscriptions?q=s3+of+ann").text


def test_a_subscription_tells_its_way(seen: TestClient) -> None:
    found = page(seen, "/subscriptions/oslo/cat/s3")
    assert "s3 asks for price 15 to 25, symbol IBM" in found.text
    assert "oslo → paris ● told s2 of bob was cancelled." in found.text
    assert "Nobody covers price above 20 and up to 25, volume up to 90,000 and symbol IBM." in found.text
    assert "How it came to this on oslo → paris" in found.text
    assert "s1 of ann and s2 of bob together covered it." in found.text
    assert "matches 2 of the last 3 publications" in found.text
    assert any(e == "svg" and a.get("class") == "slice" for e, a in found.elements)
    assert "Hatched: the gap" in found.text


def test_a_subscription_that_ended_and_one_that_is_a_tree(seen: TestClient) -> None:
    assert "s2 asked for price 20 to 30" in page(seen, "/subscriptions/oslo/bob/s2").text
    assert "✗ ended" in page(seen, "/subscriptions/oslo/bob/s2").text
    assert "price BETWEEN 12 AND 18 OR volume > 90000" in page(seen, "/subscriptions/oslo/dan/s4").text


def test_trying_a_filter_changes_nothing_and_tells_its_way(seen: TestClient) -> None:
    asked = "/subscriptions?broker=oslo&where=" + quote("price BETWEEN 12 AND 14")
    for _ in range(2):
        text = page(seen, asked).text
        assert "oslo → paris ○ would withhold paris would not be told: s1 of ann" in text
        assert "0 % of the last 3 publications" in text
    wider = page(seen, "/subscriptions?broker=oslo&where=" + quote('{"price": [0, 1000]}')).text
    assert "oslo → paris ● would tell" in wider
    assert "it would make 2 redundant: s1 of ann , s3 of cat" in wider or "it would make" in wider


@pytest.mark.parametrize("where", ["price >", "{", '{"prise": [1, 2]}', "price > 2000", EVIL])
def test_a_wrong_filter_is_told_beside_the_form(seen: TestClient, where: str) -> None:
    found = page(seen, "/subscriptions?where=" + quote(where))
    assert ("p", {"class": "bad", "role": "alert"}) in found.elements
    assert where in found.text  # it is still in the form


def test_events_are_listed_shown_and_explained(seen: TestClient) -> None:
    assert "p3 price 500, volume 150, symbol IBM rome" in page(seen, "/events").text
    assert "p1" in page(seen, "/events?q=p1").text
    text = page(seen, "/events?key=0:1&subscription=s3").text
    assert "p2: price 21.5, volume 150, symbol IBM, published at wien" in text
    assert "wien → paris ● carried" in text and "paris → rome ○ stopped" in text
    assert "It reached s3 of cat at oslo" in text
    missed = page(seen, "/events?key=0:2&subscription=s3").text
    assert "It did not reach s3 of cat at oslo: price 500 is 475 above 15 to 25; volume and symbol match." in missed
    assert "price 500 15 to 25 ✗ 475 too high" in missed
    assert "did not stand then" in page(seen, "/events?key=0:1&subscription=s2").text
    assert "No subscription s9 is recorded." in page(seen, "/events?key=0:1&subscription=s9").text


def test_trying_an_event(seen: TestClient) -> None:
    asked = "/events?at.price=16&at.volume=1,500&at.symbol=IBM&broker=rome"
    text = page(seen, asked).text
    assert "price 16, volume 1,500, symbol IBM, published at rome" in text
    assert "Would reach 3 subscriptions" in text
    assert "rome → paris ● would carry" in text
    beside = page(seen, f"{asked.replace('=16', '=40')}&home=oslo&client=cat&id=s3").text
    assert "price 40 15 to 25 ✗ 15 too high" in beside
    for wrong in ("at.price=x&at.volume=1&at.symbol=IBM", "at=%7B", "at=3", "at.price=1", "at.price=1e999"):
        assert ("p", {"class": "bad", "role": "alert"}) in page(seen, f"/events?{wrong}").elements


def test_rejects_have_a_remedy_and_a_command(seen: TestClient) -> None:
    text = page(seen, "/rejects").text
    assert "2 refused" in text
    assert "inverted : price: the range [20, 10] is inverted" in text
    assert "Remedy: The low end of a range is not above its high end." in text
    assert "curl -X PUT \"$GATEWAY/v1/brokers/oslo/subscriptions/s5\" -H 'Lacuna-Client: eve'" in text
    assert "domain" not in page(seen, "/rejects?rule=inverted").text.split("Show")[1]
    assert "None of the rejects shown here fits." in page(seen, "/rejects?client=nobody").text


def test_health_says_how_the_job_is(seen: TestClient, tour: Config) -> None:
    text = page(seen, "/health").text
    assert "● healthy · version 0.1.0 · epoch 7 · up for 1 min" in text
    assert "router 4 0 0.0 s 0.4 s ago 0.25 s 0" in text
    assert "Nothing happened in this time" in text
    degraded = HEALTHY | {"state": "degraded", "reasons": ["the archive is 400 s behind"]}
    assert "▲ degraded" in page(console(tour, degraded), "/health").text
    gone = console(tour, {"state": "down", "reasons": ["no job answers"], "prefix": "tour"})
    assert "Remedy: start the job with lacuna run" in page(gone, "/health").text
    down = page(gone, "/").text
    assert "✗ down" in down and "Job not reachable since" in down and "; tables as of 1970-01-01" in down


def test_the_state_is_that_of_all_links_and_lasts_until_it_changes(tour: Config) -> None:
    latest = "SELECT link, max_by(state_bytes, batch) AS bytes FROM metrics GROUP BY broker, link"
    sizes = Duck(tour).query(latest).read_all().to_pylist()
    whole, regions = sum(row["bytes"] for row in sizes), sum(row["bytes"] for row in sizes if row["link"] == "*")
    now, much_later = Overview(tour, lambda: 3600.0).history("1h"), Overview(tour, lambda: 9e5).history("1h")
    assert now[-1].state_bytes == whole > regions > 0
    assert {moment.state_bytes for moment in much_later} == {whole}


def test_unknown_things_are_told_what_to_do(seen: TestClient) -> None:
    for path in ("/nowhere", "/subscriptions/oslo/cat/s99", "/subscriptions/x", "/events?key=9:9", "/events?key=%00"):
        assert "Remedy:" in page(seen, path, 404).text


def test_empty_tables_name_the_command_that_fills_them(tmp_path: Path) -> None:
    empty = console(write((), tmp_path))
    assert "lacuna subscribe --broker oslo" in page(empty, "/").text
    assert "lacuna subscribe --broker oslo" in page(empty, "/subscriptions").text
    assert "lacuna publish --broker oslo" in page(empty, "/events").text
    assert "Nothing was refused." in page(empty, "/rejects").text
    assert "Nothing happened" in page(empty, "/health").text


def test_no_tables_are_told_with_the_remedy(tour: Config, tmp_path: Path) -> None:
    none = console(replace(tour, lake=replace(tour.lake, path=str(tmp_path / "nowhere"))))
    for path in ("/", "/subscriptions", "/subscriptions/a/b/c", "/events", "/events?key=0:0", "/rejects", "/health"):
        text = page(none, path, 503).text
        assert "there is no table" in text and "Remedy: run the job first" in text


def test_markup_in_values_is_shown_as_text(hostile: Config) -> None:
    seen = console(hostile)
    mine = page_of("oslo", EVIL, EVIL)
    paths = [
        *("/", "/?broker=" + quote(EVIL), "/subscriptions", "/subscriptions?q=" + quote(EVIL), mine),
        *("/events", "/events?q=" + quote(EVIL), "/events?key=0:0&subscription=" + quote(EVIL)),
        *("/rejects", "/rejects?client=" + quote(EVIL), "/health?time=" + quote(EVIL), page_of("oslo", "..", "..")),
        "/subscriptions?broker=oslo&where=" + quote('{"price": [10, 20]}'),
        f"/events?at.price=15&at.volume=1&at.symbol=IBM&broker=rome&home=oslo&client={quote(EVIL)}&id={quote(EVIL)}",
    ]
    for path in paths:
        found = page(seen, path)
        assert [a for e, a in found.elements if e == "script"] == [{"src": "/static/console.js", "defer": ""}], path
        assert not any(name.startswith("on") or name == "style" for _, a in found.elements for name in a), path
        assert "&49" not in found.text, path  # a template inside a value is not carried out
    assert EVIL in page(seen, mine).text
    assert f"{EVIL} of {EVIL}" in page(seen, page_of("oslo", "..", "..")).text  # it covers the smaller one


def test_a_page_of_any_name_leads_to_it(hostile: Config) -> None:
    seen = console(hostile)
    links = [a["href"] for e, a in page(seen, "/subscriptions").elements if e == "a"]
    ours = [href for href in links if href.startswith(("/subscriptions/", "/subscriptions?home="))]
    assert len(ours) == 3
    for href in ours:
        assert "asks for" in page(seen, href).text


def test_everything_comes_from_the_package(seen: TestClient) -> None:
    policy = seen.get("/").headers["content-security-policy"]
    assert policy == POLICY and policy.startswith("default-src 'none'") and "unsafe" not in policy
    for path in ("/", "/subscriptions/oslo/cat/s3", "/events", "/rejects", "/health"):
        for element, attributes in page(seen, path).elements:
            for name in ("src", "href", "action", "formaction", "xlink:href", "srcset"):
                if name in attributes and element != "a":
                    assert attributes[name].startswith("/"), (path, element, attributes)
    for name, kind in ASSETS.items():
        answer = seen.get(f"/static/{name}")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", answer.content)


def test_the_script_is_small() -> None:
    text = files("lacuna.serve").joinpath("static", "console.js").read_text()
    assert len(text.splitlines()) <= 45


def test_a_refused_unsubscribe_is_sent_again_without_a_body() -> None:
    row = {"topic": "tour.unsubscribe", "key": "oslo", "client": None, "id": "a/b'c", "value": "{}"}
    url = "$GATEWAY/v1/brokers/oslo/subscriptions/a%2Fb%27c"
    assert again(row) == f"curl -X DELETE \"{url}\" -H 'Lacuna-Client: CLIENT'"
    assert again(row | {"topic": "tour.links"}) is None


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("scheme", "least"), [(0, 5.5), (1, 7.5)])
def test_text_stands_out(scheme: int, least: float) -> None:
    style = files("lacuna.serve").joinpath("static", "console.css").read_text()
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", style.split(":root {")[1 + scheme].split("}")[0]))
    for text in ("text", "soft", "blue", "hot", "good", "bad"):
        for ground in ("ground", "tile"):
            assert contrast(colours[text], colours[ground]) >= least, (text, ground)
    assert contrast(colours["on-blue"], colours["blue"]) >= least
    assert contrast(colours["text"], colours["mark"]) >= least
    assert contrast(colours["text"], colours["told"]) >= 5.5


LONG = {
    "names": "/events?key=0:1&subscription=" + quote("a of " * 3_000 + " at " * 3_000),
    "deep event": "/events?at=" + "[" * 30_000,
    "deep filter": "/subscriptions?where=" + "[" * 30_000,
    "deep object": "/subscriptions?where=" + quote('{"price":' * 3_000),
    "long filter": "/subscriptions?where=" + quote(" OR ".join(["price > 1"] * 2_000)),
    "long search": "/subscriptions?q=" + "a" * 60_000,
    "many digits": "/events?at.price=" + "1" * 6_000 + "&at.volume=1&at.symbol=IBM",
}


@pytest.mark.parametrize("path", LONG.values(), ids=LONG)
def test_long_and_deep_questions_are_answered(seen: TestClient, path: str) -> None:
    assert page(seen, path).text  # within the time limit of the tests, and without an error


def test_a_long_filter_is_cut_off_in_lists_and_shown_whole_on_its_page(tmp_path: Path) -> None:
    where = " OR ".join(f"price BETWEEN {k} AND {k}.5" for k in range(60))
    seen = console(write([subscribe("oslo", "ann", "s1", where)], tmp_path))
    assert where not in page(seen, "/subscriptions").text and where[:300] + "…" in page(seen, "/subscriptions").text
    assert where in page(seen, "/subscriptions/oslo/ann/s1").text


def test_what_is_remembered_is_bounded(tour: Config) -> None:
    now = [1_000_000.0]
    overview = Overview(tour, lambda: now[0])
    for _ in range(50):
        now[0] += 100
        for window in WINDOWS:
            overview.figures(window)
        overview.history("1h")
    assert len(overview._kept) <= 20


def test_tables_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    config = write(TOUR, tmp_path)
    (log,) = (tmp_path / "lake" / "metrics" / "_delta_log").glob("*1.json")
    log.write_text("{broken")
    answer = console(config).get("/")
    assert answer.status_code == 503 and "cannot be read" in Page(answer.text).text


@pytest.mark.parametrize("brokers", [1, 100])
def test_overlays_of_other_sizes(tmp_path: Path, brokers: int) -> None:
    links = ", ".join(f'["hub{k % 7 if k > 7 else 0}", "hub{k}"]' for k in range(1, brokers))
    text = TEXT.split("[overlay]")[0] + f'[overlay]\nbrokers = ["hub0"]\nlinks = [{links}]\n'
    events = (subscribe("hub0", "ann", "s1", {}), publish(f"hub{brokers - 1}", "p1", 5))
    seen = console(write(events, tmp_path, text, 1))
    found = page(seen, "/")
    boxes = [a for e, a in found.elements if e == "rect" and a.get("class") == "box"]
    assert len(boxes) == brokers if brokers == 1 else 40 <= len(boxes) <= 60
    assert ("with three more brokers" in found.text) == (brokers > 1)
    assert "s1 asks for everything" in page(seen, "/subscriptions/hub0/ann/s1").text
    assert "Would reach 1 subscription" in page(seen, "/events?at.price=1&at.volume=1&at.symbol=IBM").text
    assert page(seen, "/subscriptions?where=" + quote("price > 3")).text
