"""Values become keys in order and without loss; ranges and sets become boxes and back."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.space import (
    LARGEST_INT,
    Attribute,
    Space,
    ValueRefused,
    float_key,
    float_value,
    timestamp_key,
    timestamp_text,
)
from tests.core.naive import few

LARGEST = sys.float_info.max
TINIEST = 5e-324
WORDS = tuple("abcdefgh")

INT = Attribute("n", "int", -LARGEST_INT, LARGEST_INT)
FLOAT = Attribute("x", "float", float_key(-LARGEST), float_key(LARGEST))
CATEGORY = Attribute("c", "category", 0, len(WORDS) - 1, WORDS)
TIME = Attribute("t", "timestamp", timestamp_key("0001-01-01T00:00:00Z"), timestamp_key("9999-12-31T23:59:59.999999Z"))
SPACE = Space((INT, FLOAT, CATEGORY, TIME))

finite = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-LARGEST_INT, LARGEST_INT)
offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=offsets)
VALUES: dict[Attribute, st.SearchStrategy[Any]] = {
    INT: whole,
    FLOAT: finite,
    CATEGORY: st.sampled_from(WORDS),
    TIME: moments.map(lambda moment: moment.isoformat()),
}


def order(attribute: Attribute, value: Any) -> Any:
    """What the order of values means, apart from keys."""
    return datetime.fromisoformat(value) if attribute.kind == "timestamp" else value


def wheres() -> st.SearchStrategy[dict[str, list[Any]]]:
    def ranged(attribute: Attribute) -> st.SearchStrategy[list[Any]]:
        if attribute.kind == "category":
            return st.lists(VALUES[attribute], min_size=1)
        pair = st.tuples(VALUES[attribute], VALUES[attribute])
        return pair.map(lambda ends: sorted(ends, key=lambda value: order(attribute, value)))

    return st.fixed_dictionaries({}, optional={a.name: ranged(a) for a in SPACE.attributes})


def refused(rule: str, *call: Any) -> None:
    function, *arguments = call
    with pytest.raises(ValueRefused) as caught:
        function(*arguments)
    assert caught.value.rule == rule
    assert str(caught.value)


# Keys


@pytest.mark.parametrize("attribute", VALUES, ids=lambda a: a.kind)
@few
@given(st.data())
def test_keys_keep_the_order_of_values(attribute: Attribute, data: st.DataObject) -> None:
    a, b = data.draw(VALUES[attribute]), data.draw(VALUES[attribute])
    before = order(attribute, a), order(attribute, b)
    after = attribute.key(a), attribute.key(b)
    assert (before[0] < before[1]) == (after[0] < after[1])
    assert (before[0] == before[1]) == (after[0] == after[1])


@pytest.mark.parametrize("attribute", VALUES, ids=lambda a: a.kind)
@few
@given(st.data())
def test_a_key_gives_back_its_value(attribute: Attribute, data: st.DataObject) -> None:
    value = data.draw(VALUES[attribute])
    back = attribute.value(attribute.key(value))
    assert order(attribute, back) == order(attribute, value)
    assert attribute.key(back) == attribute.key(value)


@given(finite.filter(lambda x: x < LARGEST))
@example(-LARGEST)
@example(-1.0)
@example(-sys.float_info.min)
@example(-2 * TINIEST)
@example(-TINIEST)
@example(-0.0)
@example(0.0)
@example(TINIEST)
@example(math.nextafter(sys.float_info.min, 0))
@example(math.nextafter(LARGEST, 0))
def test_neighbouring_doubles_have_neighbouring_keys(x: float) -> None:
    assert float_key(math.nextafter(x, math.inf)) == float_key(x) + 1


@given(st.integers(float_key(-LARGEST), float_key(LARGEST)))
@example(-1)
@example(0)
@example(1)
def test_every_key_between_the_extreme_doubles_is_the_key_of_its_double(key: int) -> None:
    assert float_key(float_value(key)) == key


def test_minus_zero_is_zero() -> None:
    assert FLOAT.key(-0.0) == FLOAT.key(0.0) == FLOAT.key(0)
    assert math.copysign(1.0, float_value(float_key(-0.0))) == 1.0


def test_keys_of_extremes_leave_room_for_an_open_end() -> None:
    int64 = range(-(2**63), 2**63)
    for attribute in SPACE.attributes:
        assert attribute.low in int64
        assert attribute.high + 1 in int64


@given(whole)
@example(LARGEST_INT)
@example(-LARGEST_INT)
@example(2**53 + 1)
def test_an_int_is_its_own_key(value: int) -> None:
    assert INT.key(value) == value


def test_an_int_beyond_the_largest_is_refused() -> None:
    for value in (LARGEST_INT + 1, -LARGEST_INT - 1, 2**63, 10**400, 1e300, 2.0**64):
        refused("domain", INT.key, value)


def test_a_whole_number_written_as_double_is_an_int() -> None:
    assert INT.key(3.0) == 3
    assert INT.key(-0.0) == 0
    assert INT.key(2.0**53 - 1) == 2**53 - 1


@given(st.integers(2**53, LARGEST_INT), st.sampled_from([1, -1]))
@example(LARGEST_INT, 1)
@example(LARGEST_INT, -1)
def test_a_double_that_stands_for_several_ints_is_none_of_them(value: int, sign: int) -> None:
    refused("fraction", INT.key, float(sign * value))
    refused("fraction", INT.intervals, [None, float(sign * value)])
    few_ints = Attribute("n", "int", -100, 100)
    refused("domain", few_ints.key, float(sign * value))


@pytest.mark.parametrize("attribute", [INT, FLOAT], ids=lambda a: a.kind)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused(attribute: Attribute, value: float) -> None:
    refused("finite", attribute.key, value)
    refused("finite", attribute.intervals, [value, None])
    refused("finite", attribute.intervals, [None, value])


def test_an_int_beyond_the_largest_double_is_refused_as_float() -> None:
    refused("domain", FLOAT.key, 10**400)


@pytest.mark.parametrize(
    ("attribute", "value", "rule"),
    [
        (INT, 1.5, "fraction"),
        (INT, True, "type"),
        (INT, "1", "type"),
        (INT, None, "type"),
        (INT, [1], "type"),
        (FLOAT, False, "type"),
        (FLOAT, "1.0", "type"),
        (FLOAT, None, "type"),
        (FLOAT, {}, "type"),
        (CATEGORY, 1, "type"),
        (CATEGORY, None, "type"),
        (CATEGORY, "z", "category"),
        (CATEGORY, "", "category"),
        (CATEGORY, "A", "category"),
        (TIME, 0, "type"),
        (TIME, None, "type"),
        (TIME, "yesterday", "timestamp"),
        (TIME, "", "timestamp"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_rule(attribute: Attribute, value: object, rule: str) -> None:
    refused(rule, attribute.key, value)


@pytest.mark.parametrize(
    ("attribute", "inside", "outside"),
    [
        (Attribute("n", "int", 3, 7), [3, 7], [2, 8]),
        (
            Attribute("x", "float", float_key(0.5), float_key(1.5)),
            [0.5, 1.5, 1],
            [math.nextafter(0.5, 0), math.nextafter(1.5, 2), 0, 2],
        ),
        (
            Attribute("t", "timestamp", timestamp_key("2026-01-01"), timestamp_key("2026-01-02")),
            ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-02T01:00:00+01:00"],
            ["2025-12-31T23:59:59.999999Z", "2026-01-02T00:00:00.000001Z", "2026-01-01T00:00:00+01:00"],
        ),
    ],
    ids=lambda a: getattr(a, "kind", None),
)
def test_the_ends_of_a_domain_belong_to_it(attribute: Attribute, inside: list[Any], outside: list[Any]) -> None:
    for value in inside:
        assert attribute.low <= attribute.key(value) <= attribute.high
    for value in outside:
        refused("domain", attribute.key, value)
        refused("domain", attribute.intervals, [value, None])


# Timestamps


def test_timestamps_count_microseconds_since_1970() -> None:
    assert timestamp_key("1970-01-01T00:00:00Z") == 0
    assert timestamp_key("1970-01-01T00:00:00.000001Z") == 1
    assert timestamp_key("1969-12-31T23:59:59.999999Z") == -1


def test_the_same_moment_in_any_offset_is_one_key() -> None:
    moment = timestamp_key("2026-05-01T12:00:00Z")
    for text in ("2026-05-01T14:00:00+02:00", "2026-05-01T06:30:00-05:30", "2026-05-01T12:00:00+00:00"):
        assert timestamp_key(text) == moment


def test_a_timestamp_without_offset_is_utc() -> None:
    assert timestamp_key("2026-05-01T12:00:00") == timestamp_key("2026-05-01T12:00:00Z")
    assert timestamp_key("2026-05-01") == timestamp_key("2026-05-01T00:00:00Z")


@given(moments)
def test_timestamps_keep_every_microsecond(moment: datetime) -> None:
    text = timestamp_text(timestamp_key(moment.isoformat()))
    assert text.endswith("Z")
    assert datetime.fromisoformat(text) == moment.astimezone(UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:00.1234567Z",
        "2026-01-01T00:00:00.00000001Z",
        "2026-01-01T00:00:00.123456789",
        "2026-01-01T00:00:00.1234567+01:00",
        "2026-01-01T00:00:00,1234567Z",
        "2026-01-01T00:00:00.1+00:00:00.1234567",
    ],
)
def test_what_is_finer_than_a_microsecond_is_refused(text: str) -> None:
    refused("timestamp", timestamp_key, text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:00.1000000Z",
        "2026-01-01T00:00:00.100000000Z",
        "2026-01-01T01:00:00.1000000+01:00",
        "2026-01-01t00:00:00,1000000z",
        "2026-01-01 00:00:00.1",
        "20260101T000000.1Z",
        "2026-W01-4T00:00:00.1Z",
    ],
)
def test_the_ways_to_write_one_moment(text: str) -> None:
    assert timestamp_key(text) == timestamp_key("2026-01-01T00:00:00.100000Z")


@pytest.mark.parametrize(
    "text",
    [
        "10000-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-01-01T25:00:00Z",
        "2026-01-01T00:00:00+24:00",
        "12:00:00",
        "1767225600",
        "2026-05-01x00:00",
        "2026-05-01_00:00",
        "2026-05-01-00:00",
        "20260501-00",
        "2026-05-01500:00",
        "2026-05-01\u00a000:00",
        "2026-05-01T",
        "2026-05-01 ",
        "2026-05-01\n00:00",
        "\ud800",
    ],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    refused("timestamp", timestamp_key, text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_a_moment_that_no_utc_text_can_name_is_refused(text: str) -> None:
    refused("timestamp", timestamp_key, text)


# Ranges and sets


@pytest.mark.parametrize("attribute", [INT, FLOAT, TIME], ids=lambda a: a.kind)
@few
@given(st.data())
def test_a_closed_range_holds_exactly_the_values_between_its_ends(attribute: Attribute, data: st.DataObject) -> None:
    drawn = [data.draw(VALUES[attribute]) for _ in range(3)]
    low, high = sorted(drawn[:2], key=lambda value: order(attribute, value))
    ((lo, hi),) = attribute.intervals([low, high])
    for value in drawn:
        between = order(attribute, low) <= order(attribute, value) <= order(attribute, high)
        assert (lo <= attribute.key(value) < hi) == between


@pytest.mark.parametrize("attribute", [INT, FLOAT, TIME], ids=lambda a: a.kind)
@few
@given(st.data())
def test_null_is_the_end_of_the_domain(attribute: Attribute, data: st.DataObject) -> None:
    value = data.draw(VALUES[attribute])
    key = attribute.key(value)
    assert attribute.intervals([None, value]) == [(attribute.low, key + 1)]
    assert attribute.intervals([value, None]) == [(key, attribute.high + 1)]
    assert attribute.intervals([None, None]) == [(attribute.low, attribute.high + 1)]


@pytest.mark.parametrize("attribute", [INT, FLOAT, TIME], ids=lambda a: a.kind)
@few
@given(st.data())
def test_a_range_of_one_value_is_one_key(attribute: Attribute, data: st.DataObject) -> None:
    value = data.draw(VALUES[attribute])
    assert attribute.intervals([value, value]) == [(attribute.key(value), attribute.key(value) + 1)]


@pytest.mark.parametrize(
    ("attribute", "ends"),
    [
        (INT, [2, 1]),
        (FLOAT, [math.nextafter(1.0, 2.0), 1.0]),
        (FLOAT, [0.0, -TINIEST]),
        (TIME, ["2026-01-02T00:00:00Z", "2026-01-02T00:00:00+00:01"]),
    ],
)
def test_an_inverted_range_is_refused(attribute: Attribute, ends: list[Any]) -> None:
    refused("inverted", attribute.intervals, ends)


@pytest.mark.parametrize("wanted", [3, "a", None, {"low": 1}, (1, 2), [], [1], [1, 2, 3]])
def test_what_is_no_list_of_two_ends_is_refused(wanted: object) -> None:
    refused("range", INT.intervals, wanted)


@given(st.lists(st.sampled_from(WORDS), min_size=1))
def test_a_set_of_categories_is_sorted_runs_of_exactly_its_members(wanted: list[str]) -> None:
    runs = CATEGORY.intervals(wanted)
    assert {WORDS[key] for lo, hi in runs for key in range(lo, hi)} == set(wanted)
    assert sum(hi - lo for lo, hi in runs) == len(set(wanted))
    assert all(before[1] < after[0] for before, after in pairwise(runs))


@given(st.lists(st.sampled_from(WORDS), min_size=1), st.randoms())
def test_order_and_repetition_of_categories_mean_nothing(wanted: list[str], random: Any) -> None:
    shuffled = [*wanted, *wanted]
    random.shuffle(shuffled)
    assert CATEGORY.intervals(shuffled) == CATEGORY.intervals(wanted)


def test_neighbouring_categories_are_one_interval() -> None:
    assert CATEGORY.intervals(["c", "a", "b", "f"]) == [(0, 3), (5, 6)]
    assert CATEGORY.intervals(list(WORDS)) == [(0, len(WORDS))]


def test_bad_sets_of_categories_are_refused() -> None:
    refused("empty", CATEGORY.intervals, [])
    refused("category", CATEGORY.intervals, ["a", "z"])
    refused("type", CATEGORY.intervals, ["a", None])
    refused("range", CATEGORY.intervals, "a")


# Space


def test_what_is_not_named_is_unconstrained() -> None:
    assert SPACE.corners({}) == [SPACE.domain]


def test_names_must_be_those_of_the_space() -> None:
    at = {"n": 1, "x": 1.0, "c": "a", "t": "2026-01-01"}
    assert SPACE.point(at) == (1, float_key(1.0), 0, timestamp_key("2026-01-01"))
    refused("attribute", SPACE.point, {**at, "y": 1})
    refused("attribute", SPACE.point, {name: value for name, value in at.items() if name != "c"})
    refused("attribute", SPACE.corners, {"y": [1, 2]})


@given(wheres())
def test_describe_is_a_valid_where_that_gives_back_the_same_boxes(where: dict[str, list[Any]]) -> None:
    corners = SPACE.corners(where)
    assert [box for lo, hi in corners for box in SPACE.corners(SPACE.describe(lo, hi))] == corners


@given(wheres())
def test_the_boxes_of_one_where_share_no_category(where: dict[str, list[Any]]) -> None:
    seen = [key for lo, hi in SPACE.corners(where) for key in range(lo[2], hi[2])]
    assert len(seen) == len(set(seen))


@given(st.tuples(*(st.integers(a.low, a.high) for a in SPACE.attributes)))
def test_describe_point_gives_back_the_same_point(point: tuple[int, ...]) -> None:
    assert SPACE.point(SPACE.describe_point(point)) == point


@given(wheres())
def test_the_share_of_a_box_is_a_share(where: dict[str, list[Any]]) -> None:
    for lo, hi in SPACE.corners(where):
        assert 0.0 <= SPACE.share(lo, hi) <= 1.0


def test_the_share_of_the_whole_space_is_one() -> None:
    assert SPACE.share(*SPACE.domain) == 1.0
    point = Space((Attribute("x", "float", 0, 0), Attribute("n", "int", 5, 5)))
    assert point.share(*point.domain) == 1.0


@pytest.mark.parametrize("attribute", [*SPACE.attributes, Attribute("tiny", "float", -3, 4)], ids=lambda a: a.name)
@given(st.data())
def test_lengths_add_up(attribute: Attribute, data: st.DataObject) -> None:
    """However a domain is cut, its parts are as long as the whole."""
    near = st.one_of(
        st.integers(attribute.low, attribute.high + 1), st.integers(attribute.high - 3, attribute.high + 1)
    )
    cuts = sorted({attribute.low, attribute.high + 1, *data.draw(st.lists(near))})
    cuts = [cut for cut in cuts if cut >= attribute.low]
    lengths = [attribute.length(lo, hi) for lo, hi in pairwise(cuts)]
    assert math.fsum(length / attribute.whole for length in lengths) == pytest.approx(1)
    many = np.array(cuts)
    assert attribute.lengths(many[:-1], many[1:]).tolist() == lengths
    assert np.diff(attribute.positions(many)).tolist() == pytest.approx(lengths, abs=1e-12 * attribute.whole)


def test_every_value_of_a_small_domain_of_floats_has_its_length() -> None:
    few = Attribute("x", "float", float_key(1.0), float_key(1.0) + 3)
    assert [few.length(key, key + 1) / few.whole for key in range(few.low, few.high + 1)] == [0.25] * 4


@given(st.data())
def test_shares_of_many_boxes_are_the_shares_of_each(data: st.DataObject) -> None:
    space = Space(
        (
            Attribute("a", "int", -LARGEST_INT, LARGEST_INT),
            Attribute("b", "float", float_key(-3.5), float_key(8.25)),
            Attribute("c", "category", 0, 2, ("x", "y", "z")),
            Attribute("d", "float", float_key(1.0), float_key(1.0)),
        )
    )
    boxes = []
    for _ in range(data.draw(st.integers(0, 4))):
        ends = [sorted(data.draw(st.tuples(*[st.integers(a.low, a.high)] * 2))) for a in space.attributes]
        boxes.append((tuple(lo for lo, _ in ends), tuple(hi + 1 for _, hi in ends)))
    shares = space.shares(np.array(boxes, np.int64).reshape(len(boxes), 2, 4))
    assert shares.tolist() == [space.share(lo, hi) for lo, hi in boxes]
