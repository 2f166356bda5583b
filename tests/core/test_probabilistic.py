"""`probabilistic`: a NO is certain, its witness is real; a YES is wrong no more often than its bound says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lacuna.__main__ import main
from lacuna.analysis.chain import pinwheel
from lacuna.simulate import simulate
from state.config import parse
from state.geometry.boxes import Box, stack, unstack
from state.matching.boxlist import BoxList
from state.protocol.messages import Name
from state.protocol.reasons import Reason
from state.space import Attribute, Keys, Space, float_key
from state.storage.codec import decode, encode
from state.strategies import Spec, Strategy, Verdict, probabilistic
from state.strategies.probabilistic import rspc
from state.strategies.probabilistic.conflict import ConflictTable
from state.strategies.probabilistic.rspc import around, bound, guess, guesses, least_share, lengths, shares
from tests.core import naive
from tests.core.histories import config_text, configs, events
from tests.core.naive import name
from tests.core.overlay import Overlay
from tests.core.shell import Shell

SQUARE, FOUR = pinwheel(20, side=100)
"""A hole of 4 %, which the four leave and which no rule finds without guessing."""


def strategy_on(boxes: list[Box], domain: Box = SQUARE, **parameters: Any) -> Strategy:
    active = BoxList(len(domain.lo))
    for k, box in enumerate(boxes):
        active.add(name(k), (box,))
    spec = Spec.of({"name": "probabilistic", **parameters}, "test")
    return spec.build(naive.space_of(domain), active)


# Conflict table and MCS


def meeting(q: Keys, boxes: Keys) -> Keys:
    return np.array([box for box in boxes if naive.meets(q, box)], np.int64).reshape(-1, *q.shape)


@pytest.mark.parametrize("dims", [1, 2, 3])
@settings(max_examples=150)
@given(st.data())
def test_what_is_left_covers_exactly_when_all_do(dims: int, data: st.DataObject) -> None:
    size = {1: 6, 2: 5, 3: 3}[dims]
    q = data.draw(naive.box(dims, size))
    boxes = meeting(q, data.draw(naive.boxes(dims, 8, size)))
    table = ConflictTable(q, boxes)
    truth = naive.covered(q, boxes)
    one = table.container()
    assert (one is not None) == any(naive.contains(box, q) for box in boxes)
    if one is not None:
        return
    rows, left = table.minimized()
    assert sorted(rows.tolist()) == list(range(len(boxes)))
    assert naive.covered(q, boxes[rows[:left]]) == truth
    if table.open():
        assert not truth
        check_witness(q, boxes, table.witness(table.few_first()))
    if left == 0:
        assert not truth
        check_witness(q, boxes, table.witness(rows))


def check_witness(q: Keys, boxes: Keys, witness: Box) -> None:
    assert naive.contains(q, witness.keys())
    assert not any(naive.meets(witness.keys(), box) for box in boxes)


def test_boxes_that_do_not_meet_it_are_redundant_too() -> None:
    """The table is made of those that meet s; with the others in it MCS would take them out."""
    q = naive.keys((2, 2), (4, 4))
    boxes = stack([Box((2, 2), (4, 3)), Box((0, 0), (2, 6)), Box((2, 3), (4, 4)), Box((5, 0), (6, 6))], 2)
    rows, left = ConflictTable(q, boxes).minimized()
    assert rows[:left].tolist() == [0, 2]


# rho


@pytest.mark.parametrize("dims", [1, 2, 3])
@settings(max_examples=200)
@given(st.data())
def test_if_anything_is_uncovered_it_is_at_least_the_least_share(dims: int, data: st.DataObject) -> None:
    size = {1: 6, 2: 6, 3: 4}[dims]
    q = data.draw(naive.box(dims, size))
    boxes = meeting(q, data.draw(naive.boxes(dims, 6, size)))
    taken = shares(naive.space_of(Box.of(naive.domain(dims, size))), q, boxes)
    cells = naive.cells(q)
    uncovered = len(cells - naive.union(boxes)) / len(cells)
    assert uncovered == 0 or least_share(q, boxes, taken, True) <= uncovered + 1e-12


FLOATS = Space((Attribute("f", "float", float_key(-1e308), float_key(1e308)), Attribute("i", "int", -9, 9)))


def test_the_least_share_sorts_once_and_copies_nothing_again() -> None:
    """Quadratic otherwise: 1 s at 40,000 boxes."""

    class Counted(np.ndarray[Any, Any]):
        taken = 0

        def __getitem__(self, key: Any) -> Any:
            Counted.taken += isinstance(key, np.ndarray)
            return super().__getitem__(key)

    low = np.arange(100) * 10
    high = (low + 5).view(Counted)
    q = np.array([0, 1000])
    plain = rspc._thinnest(low, low + 5, low / 1000, (low + 5) / 1000, q, True)
    assert rspc._thinnest.py_func(low, high, low / 1000, (low + 5) / 1000, q, True) == plain  # type: ignore[attr-defined]
    assert Counted.taken == 1


@settings(max_examples=200)
@given(st.data())
def test_shares_grow_with_the_key_from_0_to_1(data: st.DataObject) -> None:
    keys = st.one_of(
        st.integers(float_key(-1e308), float_key(1e308)),
        st.sampled_from([float_key(x) for x in (-1e308, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.5, 2.0, 1e308)]),
    )
    low, *ends, high = sorted(data.draw(st.lists(keys, min_size=4, max_size=8, unique=True)))
    q = np.array([[low, 0], [high, 5]])
    boxes = np.array([[[a, 0], [b, 5]] for a, b in zip([low, *ends], [*ends, high], strict=True)])
    taken = shares(FLOATS, q, boxes)
    assert (taken[0, 0] == 0).all()
    assert (taken[-1, 1] == 1).all()
    assert (np.diff(taken[:, :, 0].reshape(-1)) >= 0).all()


def test_floats_count_by_their_value_not_by_how_many_doubles_there_are() -> None:
    q = np.array([[float_key(0.0), 0], [float_key(1000.0), 5]])
    box = np.array([[[float_key(0.0), 0], [float_key(250.0), 5]]])
    assert shares(FLOATS, q, box)[0, 1, 0] == pytest.approx(0.25)
    assert lengths(FLOATS, np.array([float_key(-3.0), 7])).tolist() == [-1.5, 3.5]


def test_a_range_too_short_to_have_a_length_is_measured_in_keys() -> None:
    q = np.array([[0, 0], [1, 5]])
    box = np.array([[[0, 0], [1, 3]]])
    assert shares(FLOATS, q, box).tolist() == [[[0.0, 0.0], [1.0, 0.6]]]


# Guessing


def test_the_guesses_are_the_same_everywhere() -> None:
    """SplitMix64 from its published start: the first number for seed 0 is e220a8397b1dcdaf."""
    point = np.empty(1)
    assert guess(np.zeros((0, 2, 1)), 0, 1, point) == -1
    assert point[0] == (0xE220A8397B1DCDAF >> 11) * 2.0**-53
    two = np.empty(2)
    guess(np.zeros((0, 2, 2)), 5, 1, two)
    later = np.empty(2)
    guess(np.zeros((0, 2, 2)), 5, 1, later)
    assert two.tolist() == later.tolist()
    assert two[0] != two[1]


def test_guesses_are_spread_evenly() -> None:
    points = []
    for seed in range(2000):
        point = np.empty(2)
        guess(np.zeros((0, 2, 2)), seed * 7919, 1, point)
        points.append(point.copy())
    counts = np.histogram2d(*np.array(points).T, bins=4, range=[[0, 1], [0, 1]])[0]
    assert (abs(counts - 125) < 5 * np.sqrt(125)).all()


def test_a_point_that_nothing_holds_is_found_with_the_probability_of_its_share() -> None:
    taken = shares(naive.space_of(SQUARE), SQUARE.keys(), stack(FOUR, 2))
    point = np.empty(2)
    made = [guess(taken, seed, 10**6, point) for seed in range(3000)]
    assert all(count < 0 for count in made)
    assert -np.mean(made) == pytest.approx(1 / 0.04, rel=0.08)


def test_around_a_witness_is_a_box_that_nothing_meets() -> None:
    q, boxes = SQUARE.keys(), stack(FOUR, 2)
    taken = shares(naive.space_of(SQUARE), q, boxes)
    point = np.empty(2)
    for seed in range(50):
        guess(taken, seed, 10**6, point)
        assert Box.of(around(point, q, boxes, taken)) == Box((40, 40), (60, 60))


# The strategy


def shifted(k: int) -> tuple[Box, list[Box]]:
    """The pinwheel elsewhere: another question, with other guesses."""
    return pinwheel(20, k, 100)


WIDE = Box((0, 0), (10**6, 10**6))


@pytest.mark.parametrize("trials", [5, 30, 80])
def test_it_is_wrong_as_often_as_its_bound_says(trials: int) -> None:
    """The hole is found by guessing alone, and the bound is exact: the share of wrong answers must be near it."""
    runs, wrong, promised = 1500, 0, 0.0
    for k in range(runs):
        s, four = shifted(k)
        verdict = strategy_on(four, WIDE, delta=1e-9, trials=trials).decide((s,))
        if verdict.covered:
            wrong += 1
            promised = verdict.bound
            assert len(verdict.coverers) == 4
        else:
            assert verdict.witness == Box((40 + k, 40 + k), (60 + k, 60 + k))
    assert promised == pytest.approx(0.96**trials)
    assert abs(wrong / runs - promised) <= 4 * np.sqrt(promised / runs)


def test_delta_sets_the_number_of_guesses_and_is_kept() -> None:
    wrong = 0
    for k in range(1500):
        s, four = shifted(k)
        verdict = strategy_on(four, WIDE, delta=0.05).decide((s,))
        wrong += verdict.covered
        assert verdict.bound <= 0.05
    assert 0 < wrong <= 1500 * 0.05 + 4 * np.sqrt(1500 * 0.05)


def test_the_cap_is_what_the_bound_says() -> None:
    halves = [Box((0, 0), (51, 100)), Box((49, 0), (100, 100))]
    taken = shares(naive.space_of(SQUARE), SQUARE.keys(), stack(halves, 2))
    rho = least_share(SQUARE.keys(), stack(halves, 2), taken, True)
    capped = strategy_on(halves, delta=1e-12, trials=3).decide((SQUARE,))
    assert capped.bound == bound(rho, 3) > 1e-12
    forwarded = strategy_on(halves, delta=1e-12, trials=3, capped="forward").decide((SQUARE,))
    assert forwarded == Verdict(False, "budget", nodes=2 + 3)
    assert strategy_on(halves, capped="forward").decide((SQUARE,)).covered
    enough = strategy_on(halves, delta=1e-12).decide((SQUARE,))
    assert enough.bound <= 1e-12
    assert enough.nodes == 2 + guesses(1e-12, rho)


def test_a_guess_is_never_taken_for_a_proof() -> None:
    assert 0 < bound(0.5, 10**6) < 1e-300
    assert bound(1.0, 1) > 0
    halves = [Box((0, 0), (51, 100)), Box((49, 0), (100, 100))]
    verdict = strategy_on(halves, delta=1e-300, trials=10**6).decide((SQUARE,))
    assert (verdict.covered, verdict.reason) == (True, "probably covered")
    assert 0 < verdict.bound <= 1e-300


def test_several_boxes_share_delta_and_their_bounds_add_up() -> None:
    halves = [Box((0, 0), (51, 100)), Box((49, 0), (100, 100))]
    lower, upper = Box((0, 0), (100, 50)), Box((0, 50), (100, 100))
    single = strategy_on(halves, delta=0.001).decide((lower,)).bound
    both = strategy_on(halves, delta=0.002).decide((lower, upper))
    assert both.covered
    assert both.bound == pytest.approx(2 * single)
    assert both.bound <= 0.002
    mixed = strategy_on([*halves, upper], delta=0.002).decide((lower, upper))
    assert mixed.bound == pytest.approx(single)
    assert mixed.coverers == (name(0), name(1), name(2))


def test_deciding_depends_on_nothing_but_the_question_and_the_parameters() -> None:
    s, four = shifted(3)
    one = strategy_on(four, WIDE, trials=20).decide((s,))
    many = strategy_on(four, WIDE, trials=20)
    for k in range(5):
        many.decide((shifted(k)[0],))
    assert many.decide((s,)) == one


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_no_is_certain_and_its_witness_is_real(dims: int) -> None:
    rng = np.random.default_rng(dims)
    seen = set()
    for _ in range(150):
        domain = Box.of(naive.domain(dims, 5))
        boxes = [naive.random_box(rng, dims, 5) for _ in range(int(rng.integers(1, 10)))]
        shape = naive.random_shape(rng, dims, 5)
        strategy = strategy_on([Box.of(box) for box in boxes], domain, delta=0.5, trials=2)
        verdict = strategy.decide(unstack(shape))
        seen.add(verdict.covered)
        if not verdict.covered:
            assert verdict.witness is not None
            assert any(naive.contains(part, verdict.witness.keys()) for part in shape)
            assert not any(naive.meets(verdict.witness.keys(), box) for box in boxes)
        elif verdict.bound == 0:
            assert naive.union(shape) <= naive.union(boxes)
    assert seen == {True, False}


# Audit


def test_an_audit_finds_wrong_answers_and_puts_them_right() -> None:
    verdicts = []
    for k in range(400):
        s, four = shifted(k)
        verdicts.append(strategy_on(four, WIDE, trials=10, audit=True).decide((s,)))
    plain = [v for v in verdicts if v.reason == "probably covered"]
    wrong = [v for v in verdicts if v.reason == "audited: gap"]
    assert len(plain) > len(wrong) > 10
    assert len(wrong) / (len(plain) + len(wrong)) == pytest.approx(1 / probabilistic.SAMPLE, abs=0.06)
    for verdict in wrong:
        assert not verdict.covered
        assert verdict.bound == pytest.approx(0.96**10)
        assert verdict.witness is not None


def test_an_audit_leaves_right_answers_alone() -> None:
    reasons = set()
    for k in range(60):
        s, four = shifted(k)
        plug = Box((s.lo[0] + 39, s.lo[1] + 39), (s.lo[0] + 61, s.lo[1] + 61))
        audited = strategy_on([*four, plug], WIDE, audit=True).decide((s,))
        plain = strategy_on([*four, plug], WIDE).decide((s,))
        reasons.add(audited.reason)
        assert (audited.covered, audited.coverers, audited.bound) == (True, plain.coverers, plain.bound)
    assert reasons == {"probably covered", "probably covered, audited"}


# In an overlay


PROBABILISTIC = [
    '"probabilistic"',
    '{name = "probabilistic", delta = 0.4, trials = 3, audit = true}',
    '{name = "probabilistic", delta = 0.4, trials = 3, covering = "active"}',
    '{name = "probabilistic", delta = 0.4, trials = 3, capped = "forward"}',
]


@settings(max_examples=30)
@given(st.data())
def test_histories_keep_the_rules_and_storing_changes_nothing(data: st.DataObject) -> None:
    config = data.draw(configs(PROBABILISTIC))
    setups = config.setups()
    kept, reloaded = Overlay(config), Overlay(config)
    for event in data.draw(events(config.overlay.brokers, most=25)):
        brokers = reloaded.region.brokers
        for broker in brokers.values():
            version = broker.version
            brokers[broker.name] = decode(encode(broker), broker.name, setups[broker.name])
            brokers[broker.name].version = version  # kept in the head of a region
        for overlay in (kept, reloaded):
            overlay.take(event)
            overlay.region.check()
    assert kept.decisions == reloaded.decisions
    assert kept.deliveries == reloaded.deliveries


def test_a_coverer_that_goes_brings_the_question_up_again() -> None:
    overlay = Overlay(parse(config_text([("b0", "b1")], '"probabilistic"')))
    wheres = {"left": {"x": [0, 4]}, "right": {"x": [3, 7]}, "both": {"x": [1, 6]}}
    for id, where in wheres.items():
        overlay.take({"kind": "subscribe", "broker": "b0", "client": "ann", "id": id, "where": where})
    withheld = overlay.decisions[-1][2]
    assert (withheld.action, withheld.reason) == ("withhold", "probably covered")
    assert withheld.bound is not None
    assert 0 < withheld.bound <= 1e-6
    overlay.take({"kind": "unsubscribe", "broker": "b0", "client": "ann", "id": "left"})
    assert [(d.action, d.name.id) for _, _, d in overlay.decisions[-2:]] == [("promote", "both"), ("cancel", "left")]
    assert Name("b0", "ann", "both") in overlay.region.brokers["b0"].links["b1"].told.active


CHAIN = """
[space]
x = {kind = "int", low = 0, high = 1000999}
y = {kind = "int", low = 0, high = 1000999}
[overlay]
links = [["a", "b"]]
[routing]
strategy = {name = "probabilistic", trials = 10, audit = true}
"""


def test_metrics_show_the_measured_error_beside_the_promised_one(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    for k in range(0, 40_000, 200):
        s, four = shifted(k)
        for n, box in enumerate([*four, s]):
            where = {"x": [box.lo[0], box.hi[0] - 1], "y": [box.lo[1], box.hi[1] - 1]}
            lines.append({"kind": "subscribe", "broker": "a", "client": "c", "id": f"{k}.{n}", "where": where})
    simulate(parse(CHAIN), (json.dumps(line).encode() for line in lines), out=tmp_path)
    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    audited, wrong = sum(m["audited"] for m in metrics), sum(m["wrong"] for m in metrics)
    promised = sum(m["promised"] for m in metrics)
    assert audited == wrong > 0
    assert promised == pytest.approx(audited * 0.96**10)
    decisions = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    withheld = [d for d in decisions if d["action"] == "withhold"]
    assert withheld
    assert all(d["bound"] == pytest.approx(0.96**10) for d in withheld)
    assert all(d["bound"] is None for d in decisions if d["reason"] == "gap")


def test_the_streaming_shell_writes_the_same_rows(tmp_path: Path) -> None:
    """Bounds and audits through state at rest, parcels and Arrow tables."""
    config = parse(CHAIN)
    shell, lines = Shell(config, regions=1), []
    for k in range(0, 4_000, 200):
        s, four = shifted(k)
        for n, box in enumerate([*four, s]):
            where = {"x": [box.lo[0], box.hi[0] - 1], "y": [box.lo[1], box.hi[1] - 1]}
            lines.append({"kind": "subscribe", "broker": "a", "client": "c", "id": f"{k}.{n}", "where": where})
    for line in lines:
        shell.send(line)
    shell.settle(most=7)
    simulate(config, (json.dumps(line).encode() for line in lines), out=tmp_path)
    written = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    key = ("broker", "link", "subscription", "action", "reason", "bound", "nodes")
    decided = shell.tables()["decisions"]
    assert [[row[k] for k in key] for row in decided] == [[row[k] for k in key] for row in written]
    assert {row["reason"] for row in decided} >= {"gap", "probably covered", "audited: gap"}
    metrics = [row for row in shell.tables()["metrics"] if row["link"] != "*"]
    assert sum(row["wrong"] for row in metrics) > 0
    assert sum(row["promised"] for row in metrics) == pytest.approx(0.96**10 * sum(row["audited"] for row in metrics))


def test_minimizing_within_few_looks_leaves_rows_that_cover_as_well() -> None:
    rng = np.random.default_rng(3)
    q = naive.domain(2)
    for looks in (0, 3, 20):
        low = rng.integers(0, 6, (30, 2))
        boxes = np.stack((low, low + rng.integers(1, 4, (30, 2))), axis=1)
        rows, left, spared = ConflictTable(q, meeting(q, boxes)).minimized_within(looks)
        assert spared <= looks
        assert sorted(rows.tolist()) == list(range(len(meeting(q, boxes))))
        assert naive.covered(q, meeting(q, boxes)[rows[:left]]) == naive.covered(q, boxes)


def test_work_beyond_the_limit_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With enough looks it is found probably covered, with one fewer of each kind it is not decided."""
    halves = (Box((0, 0), (100, 60)), Box((0, 40), (100, 100)))
    q = (Box((0, 10), (100, 90)),)
    assert strategy_on([*halves]).decide(q).reason is Reason.PROBABLY_COVERED
    for limit in (probabilistic.PER_BOX - 1, probabilistic.PER_BOX + 2, probabilistic.PER_BOX + 2 + 8 * 16 + 10):
        monkeypatch.setattr(probabilistic, "WORK", limit)
        assert strategy_on([*halves]).decide(q).reason is Reason.BUDGET


def test_a_certificate_of_too_many_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = (Box((0, 0), (100, 60)), Box((0, 40), (100, 100)))
    monkeypatch.setattr(probabilistic, "MOST_COVERERS", 1)
    assert strategy_on([*halves]).decide((Box((0, 10), (100, 90)),)).reason is Reason.BUDGET


def test_proofs_have_the_bound_0() -> None:
    verdict = strategy_on([SQUARE]).decide((Box((1, 1), (5, 5)),))
    assert verdict == Verdict(True, Reason.COVERED_BY_ONE, (name(0),), nodes=1)


def test_the_command_line_says_that_publications_may_be_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, lines = tmp_path / "lacuna.toml", tmp_path / "events.jsonl"
    lines.write_text('{"kind": "publish", "broker": "a", "id": "p", "at": {"x": 1, "y": 2}}\n')
    config.write_text(CHAIN)
    assert main(["simulate", "--config", str(config), str(lines), "--json"]) == 0
    warned = capsys.readouterr()
    assert "MAY LOSE PUBLICATIONS on 2 of 2 directions (a>b, b>a)" in warned.err
    assert "probabilistic audit=True trials=10" in warned.err
    assert json.loads(warned.out)["deliveries"] == 0
    assert main(["simulate", "--config", str(config), str(lines), "--strategy", "auto"]) == 0
    assert "LOSE" not in capsys.readouterr().err
    config.write_text(CHAIN.split("[routing]")[0] + '[routing.links."b>a"]\nstrategy = "probabilistic"\n')
    assert main(["simulate", "--config", str(config), str(lines)]) == 0
    assert "on 1 of 2 directions (b>a)" in capsys.readouterr().err
