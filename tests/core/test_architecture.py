"""The maps are true: what docs/architecture.md and state/README.md name is there, and no module of the core is missing.

Names in backticks are looked up if they look like one of these:

    streaming.step.Step.close       a module, or something in it
    routing/told.Told.subscribe     the same, as a path below state/ or the root
    tests/core, pyproject.toml      a folder or a file
    test_region, scenarios/replace  a test, a transcript
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from state.protocol.arrivals import RANKS

ROOT = Path(__file__).parents[2]
CORE = ROOT / "state"
PAGES = ("docs/architecture.md", "state/README.md")
PACKAGES = ("access", "bench", "infra", "lacuna", "producers", "state", "streaming")
FILES_OF_USERS = ("lacuna.toml",)
FOLDERS = (ROOT, CORE, ROOT / "tests" / "core")


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def names_on(page: str) -> set[str]:
    """Return what is named as a module or a file: in backticks, and as folders anywhere on the page."""
    text = text_of(page)
    quoted = {name for name in re.findall(r"`([^`\n]+)`", text) if looks_like_a_module_or_file(name)}
    return quoted | set(re.findall(rf"(?<![\w./])(?:{'|'.join(PACKAGES)}|docs|tests)/[\w./]*", text))


def looks_like_a_module_or_file(name: str) -> bool:
    if name in FILES_OF_USERS or not re.fullmatch(r"[\w./-]+", name):
        return False
    return "/" in name or "." in name or name.startswith("test_") or name in PACKAGES


def is_there(name: str) -> bool:
    """Return whether a module, something in one, a file or a folder has this name."""
    if name.startswith("test_"):
        return (ROOT / "tests" / "core" / f"{name}.py").is_file()
    endings = ("", ".py", ".txt")
    if any((folder / f"{name.rstrip('/')}{ending}").exists() for folder in FOLDERS for ending in endings):
        return True
    dotted = name.replace("/", ".")
    return can_be_imported(dotted) or ("/" in name and can_be_imported(f"state.{dotted}"))


def can_be_imported(dotted: str) -> bool:
    """Return whether the longest module in a dotted name has the rest of it as attributes."""
    parts = dotted.split(".")
    if parts[0] not in PACKAGES:
        return False
    for end in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_names_is_there(page: str) -> None:
    names = names_on(page)
    assert len(names) > 30, "the pages name modules in another form than is looked for here"
    assert sorted(name for name in names if not is_there(name)) == []


def test_a_name_that_is_nowhere_is_noticed() -> None:
    wrong = ("state/overlay.py", "streaming.advance", "streaming.step.Step.decide", "routing/group", "test_overlay")
    assert [name for name in wrong if is_there(name) or not looks_like_a_module_or_file(name)] == []


def test_every_module_of_the_core_is_on_its_map() -> None:
    files = [path.relative_to(CORE).with_suffix("") for path in CORE.rglob("*.py")]
    modules = {str(path.parent if path.name == "__init__" else path) for path in files} - {"."}
    named = set(re.findall(r"(?:`|\*\*)([\w/]+)(?:`|\*\*)", text_of("state/README.md")))
    assert modules - named == set()


def test_the_drawing_has_every_layer_of_the_core() -> None:
    contract = (ROOT / "pyproject.toml").read_text().split('name = "inside the core"')[1].split("exhaustive")[0]
    layers = re.findall(r'"([a-z |]+)",\n', contract)
    drawn = [line for line in text_of("docs/architecture.md").splitlines() if re.match(r"    [├└]─ ", line)]
    assert len(layers) == len(drawn) == 10
    for layer, line in zip(layers, drawn, strict=True):
        assert re.findall(r"\w+", layer) == re.findall(r"\w+", line.split("  ")[2])[: len(layer.split("|"))], line


def test_the_order_of_ties_is_the_one_in_force() -> None:
    assert f"ties: {', '.join(RANKS)}." in text_of("docs/architecture.md")
    assert list(RANKS.values()) == sorted(RANKS.values())
