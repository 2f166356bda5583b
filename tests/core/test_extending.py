"""docs/extending.md is true: the strategy on that page is written, registered and run as the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from state import strategies
from state.config import parse
from tests.core import test_agreement, test_strategies
from tests.core.test_architecture import is_there, looks_like_a_module_or_file

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
BLOCKS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.S))
MODULE, REGISTRY = "state/strategies/recent.py", "state/strategies/__init__.py"


@pytest.fixture
def recent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The strategy of the page, registered while a test runs."""
    path = tmp_path / "recent.py"
    path.write_text(BLOCKS[MODULE])
    name = MODULE.removesuffix(".py").replace("/", ".")
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    for registry in ("STRATEGIES", "PARAMETERS"):
        monkeypatch.setattr(strategies, registry, dict(getattr(strategies, registry)))
    exec(BLOCKS[REGISTRY], vars(strategies) | {"Recent": module.Recent})
    yield module.Recent.name
    test_agreement.delivered.cache_clear()


def test_the_strategy_of_the_page_agrees_with_flooding(recent: str) -> None:
    """As every other: the same test, on one workload."""
    test_agreement.test_what_is_delivered_does_not_depend_on_the_strategy("zipf", recent)


@pytest.mark.parametrize("last", [1, 3, 64])
def test_its_answers_are_proved(recent: str, last: int) -> None:
    spec = strategies.Spec(recent, (("last", last),))
    test_strategies.test_a_yes_is_true_and_its_coverers_prove_it(2, spec)


def test_a_configuration_may_name_it(recent: str) -> None:
    text = '[space]\nx = {kind = "int", low = 0, high = 9}\n[overlay]\nbrokers = ["hub"]\nlinks = []\n'
    config = parse(f'{text}[routing]\nstrategy = {{name = "{recent}", last = 3}}')
    assert str(config.spec_of("hub", "hub")) == "recent last=3"
    with pytest.raises(strategies.ConfigError, match="it must be a whole number of at least 1"):
        parse(f'{text}[routing]\nstrategy = {{name = "{recent}", last = 0}}')


def test_everything_that_the_page_names_is_there() -> None:
    names = {name for name in re.findall(r"`([^`\n]+)`", PAGE) if looks_like_a_module_or_file(name)} - {MODULE}
    assert len(names) > 15
    assert sorted(name for name in names if not is_there(name)) == []
