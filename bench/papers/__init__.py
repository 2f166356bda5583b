"""Measurements of what the five papers report, one module each; `bench.claims` compares them with what is published.

Each module has a function `measure`, and `SOURCES`: the files that decide its numbers. The report notes a fingerprint
of each of them, so a kept result that is older than the code it measures is found out (`outdated`). The fingerprint
leaves out comments and docstrings: to explain something better makes no result old.
"""

from __future__ import annotations

import ast
import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.report import Report, Step

PAPERS = ("negative-space", "pruning", "zcurve", "probabilistic", "mics")
ROOT = Path(__file__).parents[2]


def measured(name: str, step: Step, *, quick: bool) -> Report:
    """Measure everything that one paper reports."""
    module = _module(name)
    report = Report(f"papers/{name}", quick=quick, sources=fingerprints(module.SOURCES))
    module.measure(report, step, quick=quick)
    return report


def _module(name: str) -> Any:
    return import_module(f"bench.papers.{name.replace('-', '_')}")


def fingerprints(paths: tuple[str, ...]) -> dict[str, str]:
    """The fingerprint of each file."""
    return {path: fingerprint((ROOT / path).read_text(encoding="utf-8")) for path in paths}


def fingerprint(source: str) -> str:
    """A short hash of a program, the same whatever its comments, docstrings and layout are.

    >>> fingerprint("def f(x):\\n    'One.'\\n    return x") == fingerprint("def f(x):  # two\\n    return (x)")
    True
    >>> fingerprint("x = 1") == fingerprint("x = 2")
    False
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return hashlib.sha256(repr(_structure(tree)).encode()).hexdigest()[:16]


def _structure(node: object) -> object:
    """A tree as nested lists, without what is empty: what a newer Python adds to its trees changes nothing."""
    if isinstance(node, ast.AST):
        parts = [(name, _structure(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
        return [type(node).__name__, *parts]
    return [_structure(one) for one in node] if isinstance(node, list) else repr(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def outdated(name: str, kept: dict[str, Any]) -> list[str]:
    """The files that are not what a kept result was measured with."""
    now = fingerprints(_module(name).SOURCES)
    before: dict[str, str] = kept["sources"]
    return sorted(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))
