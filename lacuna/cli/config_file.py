"""The configuration file: reading `lacuna.toml`, and warning about strategies that may lose publications."""

from __future__ import annotations

import sys
from pathlib import Path

from state.config import Config, parse, read_toml
from state.errors import ConfigError, LacunaError
from state.strategies import Spec


def read_config(path: str, *, routing: bool = True) -> Config:
    """Read the configuration in a file. With `routing=False` its section `[routing]` is ignored."""
    try:
        return parse(read_text(path), routing=routing)
    except ConfigError as error:
        raise LacunaError(f"{path}: {error}") from None


def read_text(path: str) -> str:
    """Read the text of a configuration."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")  # some editors put a byte order mark first
    except FileNotFoundError:
        raise LacunaError(f"{path}: there is no such file. Remedy: name a configuration with --config") from None
    except UnicodeDecodeError:
        raise LacunaError(f"{path}: it is not UTF-8 text. Remedy: save the configuration as UTF-8") from None


def warn(config: Config) -> None:
    """Warn on standard error if a strategy of the configuration may lose publications."""
    links = config.unproved
    if links:
        names = ", ".join(f"{a}>{b}" for a, b in links[:3]) + (" ..." if len(links) > 3 else "")
        print(
            f"lacuna: strategy {config.setup(*links[0]).spec} MAY LOSE PUBLICATIONS on {len(links)} of "
            f"{len(list(config.overlay.directions()))} directions ({names}): it withholds what is probably covered; "
            "the column `bound` of decisions says how probably it is wrong",
            file=sys.stderr,
        )


def parse_strategy(text: str) -> Spec:
    """Parse a strategy given on the command line: a name, or a TOML table with parameters."""
    if not text.lstrip().startswith("{"):
        return Spec.of(text.strip().strip("'\""), "--strategy")
    try:
        return Spec.of(read_toml(f"strategy = {text}")["strategy"], "--strategy")
    except ValueError as error:
        remedy = "write it as '{name = \"union\", budget = 500}'"
        raise ConfigError("--strategy", text, f"it is not a TOML table: {error}", remedy) from None
