"""The benchmark beside peers: its judges agree with the core, and what cannot be had is skipped by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.peers.covering import by_z3, compare_unions, make_union
from bench.peers.matching import compare_boxes
from bench.peers.programs import SkippedError, jvm, rust
from bench.report import Report


def test_z3_agrees_about_unions() -> None:
    """`compare_unions` raises where the answers or a witness differ; half of the unions cover."""
    report = Report("peers")
    compare_unions(report, print, 6)
    assert report.details["union_vs_z3"]["covered"] == 3
    assert report.details["union_vs_z3"]["z3_gave_up"] == 0


def test_z3_is_no_yes_man() -> None:
    """A box less than needed, and it says so."""
    q, boxes = make_union(0)
    assert by_z3(q, boxes)
    needed = [k for k in range(len(boxes)) if not by_z3(q, np.delete(boxes, k, axis=0))]
    assert needed


def test_what_cannot_be_had_is_skipped_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    report = Report("peers")
    compare_boxes(report, lambda _: None, tmp_path, None, [1_000])
    assert report.skipped.keys() == {"rstar, 1,000 boxes", "event-ruler, 1,000 boxes"}
    assert report.skipped["rstar, 1,000 boxes"] == "cargo is not installed"
    assert [row["boxes"] for row in report.details["match_vs_rtree"]] == [1_000]
    assert report.details["match_vs_rstar"] == [] and not report.figures
    report.show()
    assert "skipped: rstar, 1,000 boxes: cargo is not installed" in capsys.readouterr().out


def test_a_peer_that_does_not_build_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("cargo", "mvn"):
        (tmp_path / program).write_text("#!/bin/sh\necho 'no such registry' >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("bench.peers.programs.BUILT", tmp_path / "built")
    with pytest.raises(SkippedError, match="cargo cannot build it: no such registry"):
        rust()
    with pytest.raises(SkippedError, match=r"mvn cannot build it: no such registry|java"):
        jvm("Ruler")
