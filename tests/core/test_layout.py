"""The map of the overlay: positions, and what is folded."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from lacuna.serve.layout import Place, lay_out, middle

LINKS = [("paris", "oslo"), ("paris", "rome"), ("paris", "wien"), ("wien", "praha"), ("oslo", "bergen")]


def tree(links: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for a, b in links:
        found[a].append(b)
        found[b].append(a)
    return dict(found) or {"hub": []}


def star(brokers: int) -> dict[str, list[str]]:
    return tree([("hub", f"b{k}") for k in range(1, brokers)])


def path(brokers: int) -> dict[str, list[str]]:
    return tree([(f"b{k}", f"b{k + 1}") for k in range(brokers - 1)])


def drawn(root: Place) -> list[tuple[str, int, float]]:
    return [(place.label, place.depth, place.row) for place in root.walk()]


def test_root_is_in_the_middle_and_parents_between_their_children() -> None:
    found = lay_out(tree(LINKS), {})
    assert drawn(found.root) == [
        ("paris", 0, 1),
        ("oslo", 1, 0),
        ("rome", 1, 1),
        ("wien", 1, 2),
        ("bergen", 2, 0),
        ("praha", 2, 2),
    ]
    assert (found.rows, found.columns) == (3, 3)


def test_one_broker_and_two() -> None:
    assert drawn(lay_out({"hub": []}, {}).root) == [("hub", 0, 0)]
    assert drawn(lay_out(tree([("a", "b")]), {}).root) == [("a", 0, 0), ("b", 1, 0)]


def test_coolest_of_a_star_are_folded_and_the_hottest_stay() -> None:
    loads = {("hub", f"b{k}"): k for k in range(1, 100)}
    found = lay_out(star(100), loads, rows=40)
    labels = [place.label for place in found.places]
    assert found.rows == 40
    assert "b60 + 60" not in labels and "b60 + 59" in labels
    assert {f"b{k}" for k in range(61, 100)} < set(labels)
    rest = next(place for place in found.places if place.folded)
    assert sorted(link[1] for link in rest.links) == sorted(rest.brokers)


def test_a_deep_overlay_is_folded_at_its_last_column() -> None:
    found = lay_out(path(1001), {}, columns=5)
    assert [place.label for place in found.places if place.folded] == ["b496 + 496", "b504 + 496"]
    assert found.columns == 5


def test_a_hot_link_far_inside_stays_visible() -> None:
    links = [("top", f"h{k}") for k in range(10)] + [(f"h{k}", f"h{k}x{n}") for k in range(10) for n in range(9)]
    found = lay_out(tree(links), {("h7x3", "h7"): 5}, rows=12)
    labels = [place.label for place in found.places]
    assert found.rows == 12
    assert "h7x3" in labels


def test_a_broker_that_is_wanted_is_not_folded() -> None:
    found = lay_out(star(200), {("hub", f"b{k}"): 1 for k in range(1, 200) if k != 7}, wanted="b7", rows=40)
    assert found.root.broker == "b7"
    assert lay_out(tree(LINKS), {}, wanted="bergen").root.broker == "paris"  # it is visible as it is
    assert lay_out(tree(LINKS), {}, wanted="nowhere").root.broker == "paris"


@given(st.lists(st.integers(0, 10**6), max_size=60), st.integers(1, 12), st.integers(2, 6), st.randoms())
@settings(max_examples=300)
def test_every_broker_is_in_one_place(parents: list[int], rows: int, columns: int, chance) -> None:  # type: ignore[no-untyped-def]
    links = [(f"b{parent % (k + 1)}", f"b{k + 1}") for k, parent in enumerate(parents)]
    overlay = tree(links) if links else {"b0": []}
    loads = {(a, b): chance.randint(0, 9) for a in overlay for b in overlay[a]}
    found = lay_out(overlay, loads, rows=rows, columns=columns)
    brokers = [broker for place in found.places for broker in place.brokers]
    assert sorted(brokers) == sorted(overlay)
    assert found.rows <= rows and found.columns <= columns
    leaves = sorted(place.row for place in found.places if not place.children)
    assert leaves == list(range(found.rows))
    for place in found.places:
        inside = set(place.brokers)
        assert all(place.parent and a == place.parent.broker and b in inside for a, b in place.links)
        ends = {frozenset(link) for p in found.places for link in p.links}
        assert all(frozenset(link) in {frozenset(x) for x in links} for link in ends)


def test_middle_of_a_path() -> None:
    assert middle(path(5)) == "b2"
