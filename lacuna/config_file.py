"""Reading `lacuna.toml` from disk."""

from __future__ import annotations

from pathlib import Path

from state.config import Config, parse
from state.errors import ConfigError, LacunaError


def read_config(path: str) -> Config:
    """The configuration in a file."""
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LacunaError(f"{path}: there is no such file. Remedy: name a configuration with --config") from None
    except UnicodeDecodeError:
        raise LacunaError(f"{path}: it is not UTF-8 text. Remedy: save the configuration as UTF-8") from None
    except ConfigError as error:
        raise LacunaError(f"{path}: {error}") from None
