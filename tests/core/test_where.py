"""Every form of `where`: every construct, every error, and what they mean, value by value."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from state.config import parse as parse_config
from state.filters import pruning, trees
from state.filters import where as reading
from state.filters.trees import EVERYTHING, Filter, Leaf, holds, of_boxes, to_text
from state.filters.where import MOST_OF_RANGES, asked, parse
from state.geometry.boxes import Boxes, boxes_where
from state.space import LARGEST_INT, Attribute, Space, ValueRefused, float_key, timestamp_key
from tests.core.histories import json_filters, points, space_text, text_filters
from tests.core.oracle import matches

SPACE = Space(
    (
        Attribute("price", "float", float_key(0.0), float_key(1000.0)),
        Attribute("volume", "int", 0, 100_000),
        Attribute("symbol", "category", 0, 2, ("AAPL", "IBM", "MSFT")),
        Attribute("seen", "timestamp", timestamp_key("2026-01-01"), timestamp_key("2027-01-01")),
        Attribute("in", "int", 0, 9),
    )
)

SAME = [
    ("price = 5", "price BETWEEN 5 AND 5"),
    ("price <> 5", "NOT price = 5"),
    ("price != 5", "NOT price = 5"),
    ("price < 5", "NOT price >= 5"),
    ("price <= 5", "NOT price > 5"),
    ("5 > price", "price < 5"),
    ("5 >= price", "price <= 5"),
    ("5 < price", "price > 5"),
    ("5 <= price", "price >= 5"),
    ("5 = price", "price = 5"),
    ("5 <> price", "price <> 5"),
    ("volume > 5", "volume >= 6"),
    ("volume < 5", "volume <= 4"),
    ("volume IN (3, 1, 2, 2)", "volume BETWEEN 1 AND 3"),
    ("volume NOT IN (3, 4)", "volume < 3 OR volume > 4"),
    ("volume NOT IN (0, 5, 100000)", "volume BETWEEN 1 AND 4 OR volume BETWEEN 6 AND 99999"),
    ("NOT volume NOT IN (0, 5)", "volume IN (5, 0)"),
    ("volume NOT BETWEEN 3 AND 4", "volume < 3 OR volume > 4"),
    ("symbol IN ('AAPL', 'MSFT')", "symbol <> 'IBM'"),
    ("symbol NOT IN ('AAPL', 'MSFT')", "symbol = 'IBM'"),
    ("price < 5 and volume > 3 OR symbol = 'IBM'", "(price < 5 AND volume > 3) or (symbol = 'IBM')"),
    ("price < 5 AND (volume > 3 OR symbol = 'IBM')", "(volume > 3 OR symbol = 'IBM') AND price < 5"),
    ("NOT (price < 5 AND volume > 3)", "price >= 5 OR volume <= 3"),
    ("NOT (price < 5 OR volume > 3)", "price >= 5 AND volume <= 3"),
    ("NOT NOT price < 5", "price < 5"),
    ("NOT price < 5 AND volume = 3", "(NOT price < 5) AND volume = 3"),
    ('"price" < 5', "price < 5"),
    ('"in" = 5', '"in" BETWEEN 5 AND 5'),
    ('"in" = 5 AND "in" IN (5, 6)', '"in" = 5'),
    ("seen >= '2026-05-01'", "seen >= TIMESTAMP '2026-05-01T00:00:00Z'"),
    ("seen < timestamp'2026-05-01 12:00:00+02:00'", "seen < '2026-05-01T10:00:00Z'"),
    ("price = 1e2", "price = 100"),
    ("price = +.5", "price = 0.5"),
    ("price >= -0.0", "price >= 0"),
    ("volume = 5.0", "volume = 5"),
    ("volume = 5." + "0" * 5000, "volume = 5"),
    ("volume = 1e3", "volume = 1000"),
    ("volume = .5E+0001", "volume = 5"),
    ("volume = 0e99999999999999999999", "volume = 0"),
    ("volume >= - 0", "volume >= 0"),
    ("price = +\t5", "price = 5"),
    ("  price\n=\t5  ", "price=5"),
    ("price >= 0", "volume >= 0"),
    ("price < 10 AND price >= 5 AND price > 7", "price > 7 AND price < 10"),
    ("price < 5 OR price < 7", "price < 7"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_ways_to_say_the_same(one: str, other: str) -> None:
    assert set_of(parse(SPACE, one)) == set_of(parse(SPACE, other))


def set_of(tree: Filter) -> str:
    """A tree in a form that does not depend on the order of children."""
    parts = getattr(tree, "children", None)
    return repr(tree) if parts is None else f"{type(tree).__name__}{sorted(map(set_of, parts))}"


END = "AND, OR, the end"
BEGIN = "(, NOT, TIMESTAMP, a number, a string, an attribute"
VALUE = "TIMESTAMP, a number, a string"
AFTER_NAME = "BETWEEN, IN, NOT, a comparison"
OPEN = 'at character {}: "{}" is not allowed here; allowed are a string'
REFUSED = [
    ("", "syntax", f"at character 1: the end is not allowed here; allowed are {BEGIN}"),
    ("price", "syntax", f"at character 6: the end is not allowed here; allowed are {AFTER_NAME}"),
    ("price =", "syntax", f"at character 8: the end is not allowed here; allowed are {VALUE}"),
    ("price = 5 AND", "syntax", f"at character 14: the end is not allowed here; allowed are {BEGIN}"),
    ("price = 5 price", "syntax", f"at character 11: 'price' is not allowed here; allowed are {END}"),
    ("price = 5)", "syntax", f"at character 10: ')' is not allowed here; allowed are {END}"),
    ("(price = 5", "syntax", "at character 11: the end is not allowed here; allowed are ), AND, OR"),
    ("price # 5", "syntax", f"at character 7: '#' is not allowed here; allowed are {AFTER_NAME}"),
    ("price = 5x", "syntax", f"at character 9: '5x' is not allowed here; allowed are {VALUE}"),
    ("price = 'abc", "syntax", f'at character 9: "\'abc" is not allowed here; allowed are {VALUE}'),
    ("price = 'abc''", "syntax", f"at character 9: \"'abc''\" is not allowed here; allowed are {VALUE}"),
    ("seen > TIMESTAMP '2026-05-01", "syntax", OPEN.format(18, "'2026-05-01")),
    ("seen IN (TIMESTAMP 'a", "syntax", OPEN.format(20, "'a")),
    ("seen IN ('a', timestamp'", "syntax", OPEN.format(24, "'")),
    ("seen BETWEEN '2026-01-01' AND TIMESTAMP 'x", "syntax", OPEN.format(41, "'x")),
    ("foo< TIMESTAMP'", "syntax", OPEN.format(15, "'")),
    ("TIMESTAMP 'abc", "syntax", OPEN.format(11, "'abc")),
    ('timestamp "x', "syntax", f"at character 11: '\"x' is not allowed here; allowed are {AFTER_NAME}"),
    ("price = volume", "syntax", f"at character 9: 'volume' is not allowed here; allowed are {VALUE}"),
    ("price LIKE 'x'", "syntax", f"at character 7: 'LIKE' is not allowed here; allowed are {AFTER_NAME}"),
    ("price IS NULL", "syntax", f"at character 7: 'IS' is not allowed here; allowed are {AFTER_NAME}"),
    ("price IN ()", "syntax", f"at character 11: ')' is not allowed here; allowed are {VALUE}"),
    ("price IN (1 2)", "syntax", "at character 13: '2' is not allowed here; allowed are ), ,"),
    ("price NOT 5", "syntax", "at character 11: '5' is not allowed here; allowed are BETWEEN, IN"),
    ("price BETWEEN 5", "syntax", "at character 16: the end is not allowed here; allowed are AND"),
    ("5", "syntax", "at character 2: the end is not allowed here; allowed are a comparison"),
    ("5 = 5", "syntax", "at character 5: '5' is not allowed here; allowed are an attribute"),
    ("AND price > 5", "syntax", f"at character 1: 'AND' is not allowed here; allowed are {BEGIN}"),
    ("price > 5 AND OR volume < 3", "syntax", f"at character 15: 'OR' is not allowed here; allowed are {BEGIN}"),
    ("price BETWEEN 5 AND 6 AND 7", "syntax", "at character 28: the end is not allowed here; allowed are a comparison"),
    ("price BETWEEN 5 OR 6", "syntax", "at character 17: 'OR' is not allowed here; allowed are AND"),
    ("in = 5", "syntax", f"at character 1: 'in' is not allowed here; allowed are {BEGIN}"),
    ("price = 5 or In IN (5)", "syntax", f"at character 14: 'In' is not allowed here; allowed are {BEGIN}"),
    ("5 = and", "syntax", "at character 5: 'and' is not allowed here; allowed are an attribute"),
    ("price = 5 AND volume = 1.5", "fraction", "at character 24: volume = 1.5 has a fraction, but its kind is int"),
    ("colour = 5", "attribute", "at character 1: 'colour' is not an attribute of the space"),
    ("Price = 5", "attribute", "at character 1: 'Price' is not an attribute of the space"),
    ("timestamp = 5", "attribute", "at character 1: 'timestamp' is not an attribute of the space"),
    ("symbol = 'SAP'", "category", "at character 10: symbol = 'SAP' is not one of AAPL, IBM, MSFT"),
    ("symbol < 'IBM'", "order", "at character 8: symbol is a category, which has no order"),
    ("symbol BETWEEN 'AAPL' AND 'IBM'", "order", "at character 1: symbol is a category, which has no order"),
    ("symbol = 5", "type", "at character 10: symbol = 5 is not a string"),
    ("price = 'x'", "type", "at character 9: price = 'x' is not a number"),
    ("price > 1001", "domain", "at character 9: price = 1001 is outside its domain [0.0, 1000.0]"),
    ("price = 1e400", "finite", "at character 9: price = 1e400 is not a finite number"),
    ("price > - 1e400", "finite", "at character 9: price = -1e400 is not a finite number"),
    ("volume = 1e400", "domain", "at character 10: volume = 1e400 is outside its domain [0, 100000]"),
    ("volume = 1e999999999999999999999", "domain", "at character 10: volume = 1e999999999999999999999 is outside its"),
    (
        "volume = 1e-99999999999999999999",
        "fraction",
        "at character 10: volume = 1e-99999999999999999999 has a fraction",
    ),
    ("volume = - 5", "domain", "at character 10: volume = -5 is outside its domain [0, 100000]"),
    ("volume = " + "9" * 5000, "domain", f"at character 10: volume = {'9' * 40}... is outside its domain"),
    ("volume = 5.00000000000000000001", "fraction", "at character 10: volume = 5.00000000000000000001 has a fraction"),
    ("volume < 4.99999999999999999999", "fraction", "at character 10: volume = 4.99999999999999999999 has a fraction"),
    ("price BETWEEN 5 AND 3", "inverted", "at character 15: the range 5 AND 3 is inverted"),
    ("seen = 'yesterday'", "timestamp", "at character 8: 'yesterday' is not an ISO 8601 timestamp"),
    ("seen = 5", "type", "at character 8: seen = 5 is not an ISO 8601 string"),
    ("price < 5 AND price > 6", "nothing", "the filter holds for no point of the space"),
    ("price > 1000", "nothing", "the filter holds for no point of the space"),
    ("price = " + " " * 70_000 + "5", "syntax", "the filter has 70009 characters, more than 65536"),
]


@pytest.mark.parametrize(("text", "rule", "message"), REFUSED, ids=[case[0][:24] for case in REFUSED])
def test_errors_name_the_place_the_token_and_what_is_allowed(text: str, rule: str, message: str) -> None:
    with pytest.raises(ValueRefused) as refused:
        asked(SPACE, text)
    assert refused.value.rule == rule
    assert str(refused.value).startswith(message)


TOKENS = [
    *("AND", "OR", "NOT", "IN", "BETWEEN", "and", "In", "TIMESTAMP", "timestamp", "TIMESTAMP 'x'", "timestamp'"),
    *("price", "volume", "symbol", "seen", '"in"', "colour", "_", '"', '""', '"x', "'", "''", "'IBM'", "'2026-05-01'"),
    *("0", "-5", "+", "-", "1.5", "5x", "1e", "1e400", ".", ".5", "5.", "=", "<>", "!=", "<", "<=", ">", "!", "#"),
    *("(", ")", ",", "\n", "\0", "\u2028", "é", "٣"),
]
SAMPLES = {
    "an attribute": "price",
    "a number": "5",
    "a string": "'x'",
    "TIMESTAMP": "TIMESTAMP 'x'",
    "a comparison": "=",
    "the end": "",
    "COMMA": ",",
    **{word: word for word in ("AND", "OR", "NOT", "IN", "BETWEEN", "(", ")")},
}
"""For each word of a message something that it means."""
SYNTAX = re.compile(r"at character (\d+): (.+) is not allowed here; allowed are (.+)", re.DOTALL)


def soups() -> st.SearchStrategy[str]:
    """Texts that are almost filters: tokens in any order, and good filters cut short, with tokens after the cut."""
    soup = st.lists(st.sampled_from(TOKENS), max_size=12)
    mixed = st.builds(str.join, st.sampled_from(["", " "]), soup)
    good = st.one_of(text_filters(), st.sampled_from([text for pair in SAME for text in pair]))
    return st.one_of(mixed, st.builds(lambda a, cut, b: a[: cut % (len(a) + 1)] + b, good, st.integers(0, 200), mixed))


def refusal(text: str) -> ValueRefused | None:
    """Why a text is not a filter; anything else that is raised is a fault."""
    try:
        parse(SPACE, text)
    except ValueRefused as refused:
        return refused
    return None


def broken_at(text: str) -> tuple[int, list[str]] | None:
    """Where the grammar is broken, counted from 0, and what is allowed there."""
    refused = refusal(text)
    if refused is None or refused.rule != "syntax":
        return None
    found = SYNTAX.fullmatch(str(refused))
    assert found is not None, refused
    return int(found[1]) - 1, found[3].replace(", ,", ", COMMA").split(", ")


@settings(max_examples=400)
@given(soups())
@example("seen > TIMESTAMP '2026-05-01")
@example("price IN (1 2)")
def test_what_is_no_filter_is_refused_and_what_is_said_to_be_allowed_is(text: str) -> None:
    broken = broken_at(text)
    if broken is None:
        return
    place, allowed = broken
    assert 0 <= place <= len(text)
    assert allowed and set(allowed) <= set(SAMPLES)
    for word in allowed:
        again = broken_at(f"{text[:place]} {SAMPLES[word]}")
        assert again is None or again[0] > place, word


VALUES = ("a number", "a string", "TIMESTAMP")
GOES_ON = {
    "factor": {"NOT": "factor", "(": "factor", "an attribute": "name", **dict.fromkeys(VALUES, "value")},
    "name": {"a comparison": "compared", "NOT": "not", "BETWEEN": "between", "IN": "in"},
    "not": {"BETWEEN": "between", "IN": "in"},
    "value": {"a comparison": "compared back"},
    "compared": dict.fromkeys(VALUES, "whole"),
    "compared back": {"an attribute": "whole"},
    "between": dict.fromkeys(VALUES, "from"),
    "from": {"AND": "compared"},
    "in": {"(": "listed"},
    "listed": dict.fromkeys(VALUES, "list"),
    "list": {"COMMA": "listed", ")": "whole"},
    "whole": {"AND": "factor", "OR": "factor", ")": "whole", "the end": "whole"},
}
"""The grammar as a machine: after what, which words lead where. Parentheses are counted beside it."""


def first_broken(words: list[str]) -> tuple[int, set[str]] | None:
    """The number of the first word that the machine does not allow, and what it allows there."""
    state, opened = "factor", 0
    for k, word in enumerate([*words, "the end"]):
        allowed = set(GOES_ON[state]) - ({"the end" if opened else ")"} if state == "whole" else set())
        if word not in allowed:
            return k, allowed
        opened += {("factor", "("): 1, ("whole", ")"): -1}.get((state, word), 0)
        state = GOES_ON[state][word]
    return None


PLAIN = [word for word in SAMPLES if word not in ("a string", "TIMESTAMP", "the end")]
STARTS = [[], ["an attribute"], ["an attribute", "a comparison", "a number"], ["an attribute", "IN", "("]]


@settings(max_examples=300)
@given(st.sampled_from(STARTS), st.lists(st.sampled_from(PLAIN), max_size=10))
def test_the_first_token_that_is_not_allowed_is_named_with_all_that_is(start: list[str], more: list[str]) -> None:
    """Against a machine that shares nothing with the parser."""
    words = start + more
    text = "".join(f"{SAMPLES[word]} " for word in words)
    expected = first_broken(words)
    if expected is None:
        assert refusal(text) is None
    else:
        k, allowed = expected
        found = broken_at(text)
        assert found is not None and set(found[1]) == allowed
        assert found[0] == sum(len(SAMPLES[word]) + 1 for word in words[:k])


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ([{"price": [10, 20]}, {"volume": [500, None]}], "price BETWEEN 10 AND 20 OR volume >= 500"),
        ({"price": [[10, 20], [30, None]]}, "price BETWEEN 10 AND 20 OR price >= 30"),
        ({"price": [10, 20], "not": {"symbol": ["IBM"]}}, "price BETWEEN 10 AND 20 AND symbol <> 'IBM'"),
        ({"not": [{"price": [0, 20]}, {"symbol": ["IBM"]}]}, "price > 20 AND symbol <> 'IBM'"),
        ({"not": {"not": {"price": [0, 20]}}}, "price <= 20"),
        ([[{"price": [0, 20]}], {"symbol": [["IBM"], ["MSFT"]]}], "price <= 20 OR symbol IN ('IBM', 'MSFT')"),
        ([{}], "price >= 0"),
    ],
)
def test_json_and_text_say_the_same(where: Any, text: str) -> None:
    assert asked(SPACE, where) == asked(SPACE, text)


def test_an_object_of_ranges_is_what_it_was() -> None:
    where = {"price": [10, 20], "symbol": ["AAPL", "MSFT"]}
    got = asked(SPACE, where)
    assert (got.boxes, got.tree, got.exact) == (boxes_where(SPACE, where), None, None)


def test_a_conjunction_of_ranges_needs_no_tree() -> None:
    got = asked(SPACE, "price < 20 AND volume > 5")
    assert len(got.boxes) == 1 and got.tree is None and got.exact is None
    assert parse(SPACE, "price >= 0 OR volume = 3") == EVERYTHING
    assert asked(SPACE, "price >= 0").boxes == boxes_where(SPACE, {})


def test_an_attribute_called_not_is_an_attribute() -> None:
    space = Space((Attribute("not", "int", 0, 9),))
    assert asked(space, {"not": [1, 2]}).boxes == boxes_where(space, {"not": [1, 2]})
    assert asked(space, '"not" <= 4').boxes == boxes_where(space, {"not": [0, 4]})


WHOLE = Space((Attribute("n", "int", -LARGEST_INT, LARGEST_INT),))
"""More whole numbers than doubles tell apart."""


def decimals() -> st.SearchStrategy[str]:
    """Numbers as a person may write them, many of them whole."""
    digits = st.text("0123456789", min_size=1, max_size=22)
    zeros = st.integers(0, 30).map("0".__mul__)
    mantissa = st.one_of(digits, st.builds("{}.{}".format, digits, st.one_of(digits, zeros)), digits.map(".{}".format))
    exponent = st.one_of(st.just(""), st.integers(-30, 30).map("e{}".format))
    return st.builds("{}{}{}".format, st.sampled_from(["", "-", "+", "- "]), mantissa, exponent)


@settings(max_examples=300)
@given(decimals())
@example("9007199254740992.5")
@example("9007199254740993.0")
@example("9223372036854775806.0")
@example("9223372036854775807")
@example("9223372036854775805.9999999999")
def test_a_number_for_an_int_is_exact(written: str) -> None:
    exact = Fraction(written.replace(" ", ""))
    try:
        got = parse(WHOLE, f"n = {written}")
    except ValueRefused as refused:
        assert refused.rule == ("fraction" if exact.denominator > 1 else "domain")
        assert refused.rule == "fraction" or abs(exact) > LARGEST_INT
    else:
        assert got == Leaf(0, int(exact), int(exact) + 1) and exact.denominator == 1


@given(decimals())
def test_a_number_for_a_float_is_the_nearest_double(written: str) -> None:
    everywhere = Space((Attribute("x", "float", float_key(-1e60), float_key(1e60)),))
    key = float_key(float(written.replace(" ", "")))
    assert parse(everywhere, f"x = {written}") == Leaf(0, key, key + 1)


KEYWORDS_AS_NAMES = Space(tuple(Attribute(name, "int", 0, 9) for name in ("and", "Or", "BETWEEN", "timestamp")))


def test_attributes_that_are_keywords_are_quoted() -> None:
    for name in ("and", "Or", "BETWEEN"):
        with pytest.raises(ValueRefused, match=f"at character 1: '{name}' is not allowed here"):
            parse(KEYWORDS_AS_NAMES, f"{name} = 5")
        assert to_text(parse(KEYWORDS_AS_NAMES, f'"{name}" = 5'), KEYWORDS_AS_NAMES) == f'"{name}" = 5'


@pytest.mark.parametrize("text", ["timestamp = 5", "5 = timestamp", "timestamp IN (5)", "timestamp BETWEEN 5 AND 5"])
def test_timestamp_is_a_keyword_before_a_string_only(text: str) -> None:
    assert parse(KEYWORDS_AS_NAMES, text) == parse(KEYWORDS_AS_NAMES, '"timestamp" = 5')


def test_beyond_the_limit_the_exact_filter_stays() -> None:
    text = " OR ".join(f"price = {10 * k}" for k in range(70))
    got = asked(SPACE, text)
    assert got.exact == parse(SPACE, text)
    assert got.tree is not None and len(got.boxes) <= 64
    assert of_boxes(got.boxes, SPACE) == got.tree


MANY = tuple(f"v{k}" for k in range(66))
CATEGORIES = Space(tuple(Attribute(name, "category", 0, 65, MANY) for name in "abc"))


def in_all(values: Sequence[str], names: str = "abc") -> dict[str, list[str]]:
    return {name: list(values) for name in names}


def test_an_object_of_ranges_is_as_many_boxes_as_its_sets_multiply_to_up_to_a_limit() -> None:
    where = in_all(MANY[: 2 * 32 : 2], "ab")
    got = asked(CATEGORIES, where)
    assert (got.boxes, got.tree, got.exact) == (boxes_where(CATEGORIES, where), None, None)
    assert len(got.boxes) == MOST_OF_RANGES


@pytest.mark.parametrize("where", [in_all(MANY[::2], "ab"), in_all(MANY[:40:2]), in_all(MANY[1::2])])
def test_an_object_of_ranges_beyond_the_limit_is_fitted_as_in_any_other_form(where: dict[str, list[str]]) -> None:
    got = asked(CATEGORIES, where)
    text = " AND ".join(f"{name} IN ({', '.join(map(repr, values))})" for name, values in where.items())
    assert got == asked(CATEGORIES, [where]) == asked(CATEGORIES, text)
    assert got.tree is not None and len(got.boxes) <= 64


@given(
    st.fixed_dictionaries(
        {name: st.sets(st.sampled_from(MANY), min_size=20, max_size=40).map(sorted) for name in "abc"}
    ),
    st.lists(st.fixed_dictionaries({name: st.sampled_from(MANY) for name in "abc"}), min_size=1, max_size=20),
)
def test_beyond_the_limit_more_travels_and_what_is_asked_for_stays(
    where: dict[str, list[str]], shots: list[dict[str, str]]
) -> None:
    got = asked(CATEGORIES, where)
    travels = of_boxes(got.boxes, CATEGORIES)
    for at in shots + [{name: values[k] for name, values in where.items()} for k in (0, -1)]:
        point = CATEGORIES.point(at)
        assert holds(got.exact or travels, point) == matches(where, at, set("abc"))
        assert holds(travels, point) or not matches(where, at, set("abc"))


def test_too_many_predicates_are_refused_in_every_form() -> None:
    values = tuple(f"v{k}" for k in range(2050))
    space = Space((Attribute("a", "category", 0, 2049, values),))
    for where in (in_all(values[::2], "a"), [in_all(values[::2], "a")]):
        with pytest.raises(ValueRefused, match="1025 predicates") as refused:
            asked(space, where)
        assert refused.value.rule == "deep"


def test_filters_up_to_the_limits_are_read() -> None:
    """512 predicates in the longest plain form, an IN with thousands of values, and as many alternatives in JSON."""
    line = Space((Attribute("n", "int", 0, 100_000),))
    between = " OR ".join(f"n BETWEEN {10 * k} AND {10 * k + 5}" for k in range(512))
    among = f"n IN ({', '.join(map(str, range(3_000)))})"
    alternatives = [{"n": [10 * k, 10 * k + 5]} for k in range(512)]
    for where, exact in ((between, True), (among, False), (alternatives, True)):
        got = asked(line, where)
        assert (got.exact is not None) == exact and 1 <= len(got.boxes) <= 64


def test_a_mistake_is_explained_without_building_filters_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line, counted = Space((Attribute("n", "int", 0, 9),)), []
    among = reading._among

    def counting(*given: Any) -> Any:
        counted.append(given)
        return among(*given)

    monkeypatch.setattr(reading, "_among", counting)
    with pytest.raises(ValueRefused, match=r"at character 16: '\(' is not allowed here; allowed are AND, OR, the end"):
        asked(line, "n = 1 OR n = 2 (")
    assert len(counted) <= 2


def test_fitting_takes_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alternatives that each can be made a little lighter are not made so one by one."""
    counted = []

    def boxes_of(tree: Filter, space: Space, most: int) -> Boxes | None:
        counted.append(tree)
        return trees.boxes_of(tree, space, most)

    monkeypatch.setattr(pruning, "boxes_of", boxes_of)
    plane = Space(tuple(Attribute(name, "int", 0, 10_000) for name in "ab"))
    got = asked(plane, " OR ".join(f"(a = {k} AND b <> {k})" for k in range(170)))
    assert len(counted) < 20 and len(got.boxes) <= 64


HOSTILE = [
    "(" * 30_000 + "price = 1" + ")" * 30_000,
    "NOT " * 15_000 + "price = 1",
    "(price = 1 OR (volume = 1 AND " * 2_000 + "price = 1" + "))" * 2_000,
    " AND ".join(f"(price = {k} OR volume = {k})" for k in range(250)),
    " OR ".join(f"(price = {k} AND volume = {k} AND seen = '2026-05-01T00:{k % 60:02}:00Z')" for k in range(300)),
    " AND ".join(f"(price <> {k} OR volume <> {k})" for k in range(250)),
    " AND ".join(f"volume <> {2 * k}" for k in range(3000)),
    " AND ".join(f"volume <> {2 * k}" for k in range(1000)),
    "volume NOT IN (" + ", ".join(str(2 * k) for k in range(8000)) + ")",
    " AND ".join(f"((price > {k} OR volume > {k}) AND (\"in\" <> {k % 10} OR symbol <> 'IBM'))" for k in range(120)),
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:16] for text in HOSTILE])
def test_hostile_filters_are_fitted_or_refused(text: str) -> None:
    try:
        got = asked(SPACE, text)
    except ValueRefused as refused:
        assert refused.rule in ("deep", "nothing", "work")
    else:
        assert 1 <= len(got.boxes) <= 64


SMALL = parse_config(space_text() + '[overlay]\nbrokers = ["b"]\n').space


@settings(max_examples=150)
@given(st.one_of(text_filters(), json_filters()), st.lists(points(), min_size=1, max_size=10), st.integers(1, 6))
def test_a_filter_means_what_its_values_say(where: Any, shots: list[dict[str, Any]], most: int) -> None:
    """Against an evaluator that shares no code; what travels is a superset, what is exact is exact."""
    try:
        got = asked(SMALL, json.loads(json.dumps(where)), most)
    except ValueRefused as refused:
        assert refused.rule == "nothing"
        assert not any(matches(where, at, {"colour"}) for at in shots)
        return
    travels = of_boxes(got.boxes, SMALL)
    exact = got.exact or travels
    assert len(got.boxes) <= most or got.tree is None
    assert got.tree is None or (set_of(travels) and holds_same(travels, got.tree, shots))
    for at in shots:
        point = SMALL.point(at)
        assert holds(exact, point) == matches(where, at, {"colour"})
        assert holds(travels, point) or not holds(exact, point)
    if got.tree is not None:
        assert parse(SMALL, to_text(got.tree, SMALL)) == got.tree


def holds_same(one: Filter, other: Filter, shots: list[dict[str, Any]]) -> bool:
    return all(holds(one, SMALL.point(at)) == holds(other, SMALL.point(at)) for at in shots)
