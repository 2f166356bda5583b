"""The filter of a client, `where`, in all its forms, as boxes and trees.

As text, in the SQL that people know (keywords in any case; attributes as they are declared, in double quotes if they
are keywords or hold other signs than letters, digits and '_'):

    price BETWEEN 10 AND 20 AND (symbol IN ('IBM', 'SAP') OR volume > 500)
    NOT (seen < TIMESTAMP '2026-05-01T00:00:00Z') AND symbol <> 'IBM'

    filter      = term { OR term }            term  = factor { AND factor }
    factor      = NOT factor | ( filter ) | comparison
    comparison  = name op value | value op name | name [NOT] BETWEEN value AND value | name [NOT] IN ( value {, value} )
    op          = one of =  <>  !=  <  <=  >  >=
    value       = a number | a string in single quotes ('' is a quote) | TIMESTAMP string

Values obey their attribute's rules, as in JSON. Categories have no order: they are compared by =, <>, != and IN.

As JSON:

    {"price": [10, 20], "symbol": ["IBM", "SAP"]}        all of these: ranges, and sets of categories
    {"price": [[10, 20], [30, null]]}                    alternatives for one attribute
    [{"price": [10, 20]}, {"volume": [500, null]}]       alternatives: any of these
    {"price": [10, 20], "not": {"symbol": ["IBM"]}}      but not this: an object, or a list of alternatives

If the space has an attribute called `not`, the name means the attribute.

What comes out, `Asked`, is disjoint boxes; for a filter that is more than one conjunction of ranges also the tree that
they are. Where the tree would be too many boxes, the boxes and the tree are those of a more general filter
(`pruning.fitted`), fit to travel between brokers, and `exact` is the filter itself, by which the clients' broker
delivers. Limits on depth, on size and on the work of reading make hostile input a reject.

The text is parsed by lark (LALR), which builds no tree of its own: each rule turns directly into two filters, one that
holds where the text does and one that holds where it does not, so NOT is an exchange and nothing recurses. A keyword is
one wherever it stands: a lexer that looked at what the grammar expects would read a misplaced one as an attribute, and
the error would name what follows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeVar, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, UnexpectedToken

from state.errors import nearest
from state.filters.pruning import fitted
from state.filters.trees import (
    EVERYTHING,
    MOST_BOXES,
    MOST_DEPTH,
    MOST_PREDICATES,
    Filter,
    Leaf,
    Or,
    conjunction,
    disjunction,
    leaves,
)
from state.geometry.boxes import Boxes, boxes_between
from state.space import Attribute, Space, ValueRefused, Written

MOST_TEXT = 1 << 16
MOST_WORK = 6 * 1024 * 8
"""Steps that reading a filter may take, a microsecond each. They are counted beforehand, by what is written: a word, a
value or a sign of a text; an object, a list or a value in JSON. 512 predicates as text fit, even as BETWEEN."""
TOKEN_STEPS, OBJECT_STEPS, LIST_STEPS, VALUE_STEPS = 8, 16, 8, 1
TOKENS = re.compile(r"""'[^']*'|"[^"]*"|[\w.+-]+|[<>!]=|<>|\S""")
MOST_OF_RANGES = 1024
"""An object of ranges is taken as it is up to this many boxes (sets of categories multiply), as a tree beyond."""
NEGATION = "not"

GRAMMAR = r"""
start: any
any: all (_OR all)*
all: one (_AND one)*
?one: _NOT one                                      -> opposite
    | "(" any ")"                                   -> inner
    | NAME OP value                                 -> compared
    | value OP NAME                                 -> compared_back
    | NAME _BETWEEN value _AND value                -> between
    | NAME _NOT _BETWEEN value _AND value           -> not_between
    | NAME _IN "(" value ("," value)* ")"           -> among
    | NAME _NOT _IN "(" value ("," value)* ")"      -> not_among
value: NUMBER | STRING | _TIMESTAMP STRING

OP: "<>" | "!=" | "<=" | ">=" | "<" | ">" | "="
NUMBER: /([+-]\s*)?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?(?![A-Za-z0-9_.])/
STRING: /'([^']|'')*'(?!')/
NAME: /[A-Za-z_][A-Za-z0-9_]*|"([^"]|"")+"(?!")/
_AND.2: /AND(?![A-Za-z0-9_])/i
_OR.2: /OR(?![A-Za-z0-9_])/i
_NOT.2: /NOT(?![A-Za-z0-9_])/i
_IN.2: /IN(?![A-Za-z0-9_])/i
_BETWEEN.2: /BETWEEN(?![A-Za-z0-9_])/i
_TIMESTAMP.2: /TIMESTAMP(?=\s*')/i
%ignore /\s+/
"""
WORDS = {
    "NAME": "an attribute",
    "NUMBER": "a number",
    "STRING": "a string",
    "_TIMESTAMP": "TIMESTAMP",
    "OP": "a comparison",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "$END": "the end",
    **{f"_{word}": word for word in ("AND", "OR", "NOT", "IN", "BETWEEN")},
}
"""The tokens of the grammar as a person calls them."""
Found = TypeVar("Found")
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Asked:
    """A filter fit to travel (`boxes`; `tree` if one conjunction does not say it), and the exact one if it differs."""

    boxes: Boxes
    tree: Filter | None = None
    exact: Filter | None = None


def asked(space: Space, where: object, most: int = MOST_BOXES) -> Asked:
    """Read a `where` into at most `most` boxes. Raises `ValueRefused` with the rule that it breaks."""
    _refuse_work(where)
    if isinstance(where, dict) and not any(_is_boolean(space, name, given) for name, given in where.items()):
        sides = space.sides(where)
        if prod(map(len, sides)) <= MOST_OF_RANGES:
            return Asked(boxes_between(sides))
    tree = parse(space, where) if isinstance(where, str) else _of_json(space, where, MOST_DEPTH).yes
    _refuse_more(_predicates(tree))
    general, boxes = fitted(tree, space, most)
    if not boxes:
        raise ValueRefused("nothing", "the filter holds for no point of the space")
    return Asked(boxes, general if len(boxes) > 1 else None, None if general == tree else tree)


def _refuse_work(where: object) -> None:
    """Refuse a filter that would take too long to read. O(what is allowed), however long the filter is."""
    steps, waiting = 0, [where]
    while waiting and steps <= MOST_WORK:
        part = waiting.pop()
        if isinstance(part, str):
            steps += TOKEN_STEPS * sum(1 for _ in TOKENS.finditer(part, 0, MOST_TEXT)) if part is where else VALUE_STEPS
        elif isinstance(part, dict):
            steps += OBJECT_STEPS
            waiting += part.values()
        elif isinstance(part, list):
            steps += LIST_STEPS
            waiting += part
        else:
            steps += VALUE_STEPS
    if steps > MOST_WORK:
        raise ValueRefused("work", f"to read the filter takes more than {MOST_WORK} steps")


def _is_boolean(space: Space, name: object, given: object) -> bool:
    """Is this entry of an object more than a range or a set of categories?"""
    if name == NEGATION and NEGATION not in space.names:
        return True
    return isinstance(given, list) and bool(given) and all(isinstance(one, list) for one in given)


# Trees under construction


@dataclass(frozen=True, slots=True)
class _Both:
    """Where something holds, and where it does not."""

    yes: Filter
    no: Filter
    depth: int = 1

    def opposite(self) -> _Both:
        return _Both(self.no, self.yes, self.depth)


def _all(parts: list[_Both], space: Space) -> _Both:
    _refuse_more(len(parts))
    return _both(parts, conjunction([p.yes for p in parts], space), disjunction([p.no for p in parts], space))


def _any(parts: list[_Both], space: Space) -> _Both:
    _refuse_more(len(parts))
    return _both(parts, disjunction([p.yes for p in parts], space), conjunction([p.no for p in parts], space))


def _both(parts: list[_Both], yes: Filter, no: Filter) -> _Both:
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > MOST_DEPTH:
        raise ValueRefused("deep", f"the filter is nested more than {MOST_DEPTH} deep")
    _refuse_more(min(_predicates(yes), _predicates(no)))  # the complement of a predicate may be two
    return _Both(yes, no, depth)


def _refuse_more(count: int) -> None:
    if count > MOST_PREDICATES:
        raise ValueRefused("deep", f"the filter has {count} predicates, more than {MOST_PREDICATES}")


def _predicates(tree: Filter) -> int:
    return sum(1 for _ in leaves(tree))


def _among(space: Space, attribute: int, intervals: Iterable[tuple[int, int]]) -> _Both:
    """A key in any of these intervals `[lo, hi)`, which may be empty, overlap, or be the whole domain. O(n log n)."""
    a = space.attributes[attribute]
    ends = [a.low]
    for lo, hi in sorted(intervals):
        if lo < hi and len(ends) > 1 and lo <= ends[-1]:
            ends[-1] = max(ends[-1], hi)
        elif lo < hi:
            ends += (lo, hi)
    ends.append(a.high + 1)
    return _Both(_either(attribute, a, ends[1:-1]), _either(attribute, a, ends))


def _either(attribute: int, a: Attribute, ends: list[int]) -> Filter:
    """A key between the first two of these ends, or the next two, and so on; no two such intervals touch."""
    found = tuple(Leaf(attribute, lo, hi) for lo, hi in zip(ends[::2], ends[1::2], strict=True) if lo < hi)
    if len(found) != 1:
        return Or(found)
    return EVERYTHING if (found[0].lo, found[0].hi) == (a.low, a.high + 1) else found[0]


# JSON


def _of_json(space: Space, where: object, deeper: int) -> _Both:
    if deeper == 0:
        raise ValueRefused("deep", f"the filter is nested more than {MOST_DEPTH} deep")
    if isinstance(where, list):
        if not where:
            raise ValueRefused("empty", "an empty list of alternatives matches nothing")
        _refuse_more(len(where))
        return _any([_of_json(space, one, deeper - 1) for one in where], space)
    if isinstance(where, dict):
        return _all([_entry(space, name, given, deeper) for name, given in where.items()], space)
    raise ValueRefused(
        "filter", f"a filter is an object of ranges, a list of alternatives or a text, not {type(where).__name__}"
    )


def _entry(space: Space, name: str, given: object, deeper: int) -> _Both:
    if name == NEGATION and NEGATION not in space.names:
        return _of_json(space, given, deeper - 1).opposite()
    place, a = _attribute(space, name)
    ranges = given if _is_boolean(space, name, given) and isinstance(given, list) else [given]
    return _among(space, place, (ends for one in ranges for ends in a.intervals(one)))


def _attribute(space: Space, name: str) -> tuple[int, Attribute]:
    for place, a in enumerate(space.attributes):
        if a.name == name:
            return place, a
    known = ", ".join(a.name for a in space.attributes)
    hint = nearest(name, space.names)
    raise ValueRefused("attribute", f"{name!r} is not an attribute of the space ({known}){hint}")


# Text


def parse(space: Space, text: str) -> Filter:
    """The filter that a text is; `ValueRefused` names the place, the token and what is allowed there."""
    if len(text) > MOST_TEXT:
        raise ValueRefused("syntax", f"the filter has {len(text)} characters, more than {MOST_TEXT}")
    try:
        return cast(_Both, _parser(space).parse(text)).yes
    except UnexpectedInput as error:
        raise ValueRefused("syntax", _explain(error, text)) from None


@lru_cache(maxsize=8)
def _parser(space: Space) -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(space))


@lru_cache(maxsize=1)
def _reader() -> Lark:
    """The same grammar without filters: what a text with a mistake in it is read again by, in half the time."""
    return Lark(GRAMMAR, parser="lalr", lexer="basic")


def _explain(error: UnexpectedInput, text: str) -> str:
    token = error.token if isinstance(error, UnexpectedToken) else None
    place = int((error.pos_in_stream if token is None else token.start_pos) or 0)
    if token is not None and token.type == "$END":
        found, place = "the end", len(text)
    else:
        found = repr((text[place:].split()[0] if token is None else str(token))[:24])
    allowed = ", ".join(_allowed(text, place))
    return f"at character {place + 1}: {found} is not allowed here; allowed are {allowed}"


def _allowed(text: str, place: int) -> list[str]:
    """Return what may stand at a place. The tokens before it are read again: a failed parse has forgotten some of that.

    They are read from the whole text, since what a token is may depend on what follows it.
    """
    again = _reader().parse_interactive(text)
    with suppress(UnexpectedInput):  # where no token begins, reading ends by itself
        for token in again.iter_parse():
            if (token.start_pos or 0) >= place:
                break
    return sorted(WORDS.get(name, name) for name in again.accepts())  # type: ignore[no-untyped-call]


class _Builder(Transformer[Token, Any]):
    """Each rule of the grammar as filters."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self._space = space

    def start(self, parts: list[_Both]) -> _Both:
        return parts[0]

    def any(self, parts: list[_Both]) -> _Both:
        return parts[0] if len(parts) == 1 else _any(parts, self._space)

    def all(self, parts: list[_Both]) -> _Both:
        return parts[0] if len(parts) == 1 else _all(parts, self._space)

    def inner(self, parts: list[_Both]) -> _Both:
        return parts[0]

    def opposite(self, parts: list[_Both]) -> _Both:
        return parts[0].opposite()

    def value(self, parts: list[Token]) -> Token:
        return parts[0]

    def compared(self, parts: list[Token]) -> _Both:
        name, op, value = parts
        return self._compared(name, str(op), op, value)

    def compared_back(self, parts: list[Token]) -> _Both:
        value, op, name = parts
        return self._compared(name, FLIPPED.get(str(op), str(op)), op, value)

    def _compared(self, name: Token, op: str, at: Token, value: Token) -> _Both:
        place, a = self._attribute(name)
        if op in FLIPPED:
            self._refuse_category(a, at)
        key = self._key(a, value)
        lo, hi = {
            "<": (a.low, key),
            "<=": (a.low, key + 1),
            ">": (key + 1, a.high + 1),
            ">=": (key, a.high + 1),
        }.get(op, (key, key + 1))
        found = _among(self._space, place, [(lo, hi)])
        return found.opposite() if op in ("<>", "!=") else found

    def between(self, parts: list[Token]) -> _Both:
        name, first, last = parts
        place, a = self._attribute(name)
        self._refuse_category(a, name)
        lo, hi = self._key(a, first), self._key(a, last)
        if lo > hi:
            raise ValueRefused("inverted", f"{_at(first)}: the range {first} AND {last} is inverted")
        return _among(self._space, place, [(lo, hi + 1)])

    def not_between(self, parts: list[Token]) -> _Both:
        return self.between(parts).opposite()

    def among(self, parts: list[Token]) -> _Both:
        place, a = self._attribute(parts[0])
        keys = (self._key(a, value) for value in parts[1:])
        return _among(self._space, place, ((key, key + 1) for key in keys))

    def not_among(self, parts: list[Token]) -> _Both:
        return self.among(parts).opposite()

    def _attribute(self, token: Token) -> tuple[int, Attribute]:
        name = _unquoted(token) if token.startswith('"') else str(token)
        return self._placed(token, lambda: _attribute(self._space, name))

    def _refuse_category(self, a: Attribute, at: Token) -> None:
        if a.kind == "category":
            message = f"{_at(at)}: {a.name} is a category, which has no order: compare it by =, <> or IN"
            raise ValueRefused("order", message)

    def _key(self, a: Attribute, token: Token) -> int:
        return self._placed(token, lambda: a.key(_literal(token)))

    def _placed(self, token: Token, look: Callable[[], Found]) -> Found:
        """Do something with a token; if it is refused, say where the token stands."""
        try:
            return look()
        except ValueRefused as refused:
            raise ValueRefused(refused.rule, f"{_at(token)}: {refused}") from None


def _at(token: Token) -> str:
    return f"at character {(token.start_pos or 0) + 1}"


def _unquoted(token: str) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


def _literal(token: Token) -> Written | str:
    return _unquoted(token) if token.type == "STRING" else Written("".join(token.split()))
