"""The console in a real browser: every page opened, clicked, read by axe, and used by keyboard."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from starlette.applications import Starlette

from lacuna.serve.app import build
from lacuna.serve.pages import page_of
from state.config import Config
from state.protocol.events import MOST_NAME
from tests.core.consoles import EVIL, HEALTHY, HOSTILE, TOUR, app, publish, subscribe, write
from tests.system.gateway import token_entry

pytestmark = pytest.mark.system

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WIDTHS = {"laptop": (1280, 900), "phone": (390, 844)}
PAGES = {
    "overlay": "/?broker=paris",
    "subscriptions": "/subscriptions?broker=oslo&where=" + quote("price BETWEEN 12 AND 14"),
    "wrong": "/subscriptions?where=x",
    "subscription": "/subscriptions/oslo/cat/s3",
    "events": "/events?at.price=40&at.volume=1&at.symbol=IBM&broker=rome&home=oslo&client=cat&id=s3",
    "event": "/events?key=0:2&subscription=s3",
    "rejects": "/rejects",
    "health": "/health",
    "missing": "/nowhere",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium; install it with apt to run the console's tests in a browser")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield running
        running.close()


def served(config: Config, status: dict[str, Any]) -> AbstractContextManager[str]:
    """Serve pages, with a job that says this of itself."""
    return served_app(app(config, status))


@contextmanager
def served_app(application: Starlette) -> Iterator[str]:
    """Serve an application at a free port, until the end of the block."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return write(TOUR, tmp_path_factory.mktemp("tour"))


@pytest.fixture(scope="module")
def at(tour: Config) -> Iterator[str]:
    with served(tour, dict(HEALTHY)) as url:
        yield url


@contextmanager
def opened(browser: Browser, width: str = "laptop", scheme: Any = "light") -> Iterator[Page]:
    """Open a window. Nothing may be asked of another host, and nothing may be wrong in it."""
    size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
    context: BrowserContext = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    page, wrong = context.new_page(), list[str]()
    page.on("request", lambda r: r.url.startswith("http://127.0.0.1:") or wrong.append(r.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.on("console", lambda m: m.type == "error" and "status of 40" not in m.text and wrong.append(m.text))
    yield page
    context.close()
    assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_can_be_read_by_everybody(browser: Browser, at: str, width: str, scheme: str) -> None:
    axe = Axe()
    with opened(browser, width, scheme) as page:
        for name, path in PAGES.items():
            page.goto(at + path)
            if folder := os.environ.get("LACUNA_SCREENSHOTS"):
                page.screenshot(path=Path(folder) / f"{name}-{width}-{scheme}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
            found = axe.run(page)
            assert found.violations_count == 0, f"{name}: {found.generate_report()}"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_longest_names_fit(browser: Browser, tmp_path: Path, width: str) -> None:
    long = "x" * MOST_NAME
    config = write((subscribe("oslo", long, long, {"price": [10, 20]}), publish("rome", long, 50)), tmp_path)
    with served(config, dict(HEALTHY)) as url, opened(browser, width) as page:
        for path in ("/subscriptions", page_of("oslo", long, long), "/events", f"/events?key=0:0&subscription={long}"):
            page.goto(url + path)
            expect(page.locator("main")).to_contain_text(long)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is too wide"


def test_from_the_overlay_to_a_subscription_to_a_tried_event(browser: Browser, at: str) -> None:
    with opened(browser) as page:
        page.goto(at)
        page.locator(".map svg a", has_text="oslo").click()
        expect(page.locator("tr.found").first).to_contain_text("oslo")
        page.get_by_role("link", name="Subscriptions", exact=True).click()
        page.get_by_label("Id or client").fill("cat")
        page.get_by_role("button", name="Find").click()
        page.get_by_role("link", name="s3", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("s3 asks for price 15 to 25, symbol IBM")
        page.get_by_role("textbox", name="price").fill("40")
        page.get_by_role("button", name="Try").click()
        expect(page.get_by_role("heading", name="price 40 is 15 above 15 to 25")).to_be_visible()
        page.get_by_role("link", name="Events", exact=True).click()
        page.get_by_role("link", name="p1", exact=True).click()
        page.get_by_label("Why not this subscription?").fill("s1")
        page.get_by_role("button", name="Explain").click()
        expect(page.get_by_role("heading", name="It did not reach s1 of ann at oslo")).to_be_visible()


def test_a_phone_has_the_map_as_a_nested_list(browser: Browser, at: str) -> None:
    with opened(browser, "phone") as page:
        page.goto(at)
        expect(page.locator(".drawn svg")).to_be_hidden()
        expect(page.locator(".list .list li").first).to_be_visible()
    with opened(browser) as page:
        page.goto(at)
        expect(page.locator(".drawn svg")).to_be_visible()


def test_the_keyboard_is_enough(browser: Browser, at: str) -> None:
    with opened(browser) as page:
        page.goto(at)
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="2", exact=True)).to_be_focused()  # the rejects
        page.keyboard.press("Tab")
        expect(page.locator("select[name=time]")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.type("wien")
        page.keyboard.press("Enter")
        page.wait_for_url("**broker=wien")
        for _ in range(
            12
        ):  # skip link, brand, five pages, rejects, time, broker, button; then the list of brokers appears
            page.keyboard.press("Tab")
        expect(page.locator(".readers a:focus")).to_be_visible()


def test_a_refresh_announces_changes_only_and_leaves_the_focus(browser: Browser, tour: Config) -> None:
    status = dict(HEALTHY)
    with served(tour, status) as url, opened(browser) as page:
        page.goto(url)
        page.get_by_label("Find a broker").fill("wi")
        page.evaluate("new MutationObserver(() => window.said = true).observe(state, {childList: true, subtree: true})")
        page.evaluate("refresh()")
        assert page.evaluate("window.said") is None
        status |= {"state": "degraded", "reasons": ["the archive is 400 s behind"]}
        expect(page.get_by_role("status")).to_have_text("▲ degraded", timeout=20_000)  # by itself
        expect(page.locator("#trouble")).to_contain_text("the archive is 400 s behind")
        expect(page.get_by_label("Find a broker")).to_be_focused()
        expect(page.get_by_label("Find a broker")).to_have_value("wi")


def test_a_person_signs_in_and_out(browser: Browser, tour: Config, tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text(
        token_entry("a" * 40, "ann", "observe") + token_entry("b" * 40, "bob", "listen")
    )
    config = replace(tour, serve=replace(tour.serve, tokens_file=str(tmp_path / "tokens.toml")))
    with served_app(build(config)) as url, opened(browser) as page:
        page.goto(url + "/rejects")
        assert Axe().run(page).violations_count == 0
        for token, said in (("c" * 40, "The token is not known."), ("b" * 40, "The token of bob lacks the right")):
            page.get_by_label("Token").fill(token)
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_contain_text(said)
        page.get_by_label("Token").fill("a" * 40)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overlay")
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Sign out").click()
        page.goto(url)
        expect(page.get_by_label("Token")).to_be_focused()


def test_a_gateway_that_is_gone_is_said(browser: Browser, tour: Config) -> None:
    context = browser.new_context()
    with served(tour, dict(HEALTHY)) as url:
        page = context.new_page()
        page.goto(url)
    page.evaluate("refresh()")
    expect(page.get_by_role("status")).to_contain_text("Gateway not reachable since")
    expect(page.get_by_role("heading", name="Overlay")).to_be_visible()
    context.close()


def test_markup_in_values_does_nothing(browser: Browser, tmp_path: Path) -> None:
    evil = quote(EVIL)
    with served(write(HOSTILE, tmp_path), dict(HEALTHY)) as url, opened(browser) as page:
        for path in (
            page_of("oslo", EVIL, EVIL),
            "/subscriptions?q=" + evil,
            "/events",
            "/rejects",
            f"/?broker={evil}",
        ):
            page.goto(url + path)
            expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
            assert page.locator("script").count() == 1
