"""The configuration, `lacuna.toml`, as one frozen value; every rule that it must keep is checked here, once.

    [space]     attributes, in order             [overlay]   brokers and links: a tree
    [routing]   strategy, for all or per link    [kafka]     bootstrap, prefix, security, replication, topics
    [limits]    what one client may have         [lake]      path, checkpoint, writer, every, keep
    [engine]    metrics_host, metrics_port, state   [serve]  the gateway: address, tokens, certificate

A configuration that breaks a rule is refused with one `ConfigError` that names the value, the rule and the remedy.
Reading the file is left to the caller; here is only text to value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from typing import Any, Literal, TypeGuard, cast

from state.errors import ConfigError, nearest
from state.protocol.ledger import DAY, Limits
from state.protocol.ledger import SECOND as SECOND
from state.protocol.messages import LOCAL
from state.protocol.security import Address, Security, read_security
from state.protocol.topics import TOPIC_NAMES, Topic, read_copies, read_topics
from state.routing.cut import Regions, cut, is_connected
from state.routing.link import Setup
from state.routing.rangetold import grid_of
from state.space import KINDS, LARGEST_INT, Attribute, Kind, Space, ValueRefused
from state.strategies import BY_RANGES, Spec

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
ADDRESS = re.compile(r"([^\s:,\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
"""The host and the port of a Kafka; an address of IPv6 stands in brackets."""
NAME_RULE = "a name is 1 to 128 letters, digits, '_', '.' or '-', and does not begin with '.' or '-'"
MOST_DIMS = 32
DEEPEST = 20
LARGEST = 10**4000
TOO_DEEP, TOO_LONG = "it is nested too deeply", "it holds a number of more than 4,000 digits"


ALL_TABLES = "*"


@dataclass(frozen=True)
class Kafka:
    """Where the topics are, how Kafka is spoken to, and how Lacuna makes topics.

    Without `replication` there are as many copies as Kafka makes by default. `topics` says what is other than usual
    about each topic. `bootstrap` carries the security with it.
    """

    bootstrap: str = "localhost:9092"
    prefix: str = "lacuna"
    replication: int | None = None
    security: Security = Security()
    topics: Mapping[str, Topic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap", Address(self.bootstrap, self.security))

    @property
    def wanted(self) -> dict[str, Topic]:
        """How each topic is to be made, by its name without the prefix."""
        chosen = {name: self.topics.get(name, Topic()) for name in TOPIC_NAMES}
        return {name: replace(each, replication=each.replication or self.replication) for name, each in chosen.items()}


@dataclass(frozen=True)
class Lake:
    """Where the Delta tables and the checkpoint are, who writes them, how often, and how long rows are kept.

    `every` is the seconds between two batches of the archive, `metrics_every` those between two rows of `metrics` about
    a link (0: a row in each batch that touches it). `keep` gives days by table, `ALL_TABLES` for those not named. A
    table without days keeps its rows for ever.
    """

    path: str = "lake"
    checkpoint: str = "checkpoint"
    writer: str | None = None
    every: float = 1.0
    metrics_every: int = 10
    keep: Mapping[str, float] = field(default_factory=dict)

    def days_of(self, table: str) -> float | None:
        """Return the days for which the rows of a table are kept; None: for ever."""
        return self.keep.get(table, self.keep.get(ALL_TABLES))


@dataclass(frozen=True)
class Endpoint:
    """Where the job says how it is, over HTTP; with port 0 nowhere."""

    host: str = "127.0.0.1"
    port: int = 9464


@dataclass(frozen=True)
class Serve:
    """Where the gateway listens, who may use it, and by which certificate.

    `tokens_file` names the file of tokens; without it, the gateway is for this machine alone. `hosts` are the names by
    which it is addressed, beside `host`. With `proxied`, TLS ends at a proxy before it. `job` is where the job answers,
    if that is not this machine.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    tokens_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    hosts: tuple[str, ...] = ()
    proxied: bool = False
    job: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the gateway."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by an address that no other machine reaches.

    >>> [is_loopback(host) for host in ("localhost", "127.8.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Overlay:
    """Brokers and their neighbours: a tree. Neighbours are in the order in which the links were given."""

    neighbours: Mapping[str, tuple[str, ...]]
    regions: Regions | int | None = None
    """As configured: listed, or how many; None: chosen for the machine (`auto`)."""

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(self.neighbours)

    def cut(self, cores: int) -> Regions:
        """Return the regions, each a connected part, for a machine with so many cores.

        Measured on two cores (`lacuna bench router`, `publications_per_s_by_regions`): one region carries half as many
        publications again as two, because letters cost more than a second core gains. So `auto` is one for every two.
        """
        if isinstance(self.regions, tuple):
            return self.regions
        return cut(self.neighbours, max(1, cores // 2) if self.regions is None else self.regions)

    def directions(self) -> Iterator[tuple[str, str]]:
        """Every direction (from, to) of every link."""
        return ((broker, other) for broker, others in self.neighbours.items() for other in others)


@dataclass(frozen=True)
class Config:
    """A whole, checked configuration."""

    space: Space
    overlay: Overlay
    spec: Spec = Spec("auto")
    specs: Mapping[tuple[str, str], Spec] = field(default_factory=dict)
    remember: int = DAY
    kafka: Kafka = Kafka()
    lake: Lake = Lake()
    endpoint: Endpoint = Endpoint()
    serve: Serve = Serve()
    limits: Limits = Limits()
    state: Literal["row", "map"] = "row"
    """How Spark keeps the state of a region: as one row of bytes, or as a map of pieces."""
    text: str = field(default="", compare=False, repr=False)
    """The TOML that this was read from, so that a life can keep it."""

    def __post_init__(self) -> None:
        _check_ranges(self)

    def spec_of(self, broker: str, link: str) -> Spec:
        """The strategy of one direction of a link."""
        return self.specs.get((broker, link), self.spec)

    def setup(self, broker: str, link: str) -> Setup:
        """Return the configuration of a link, or (`LOCAL`) of a broker's clients."""
        return Setup(broker, link, self.space, self.spec_of(broker, link), self.remember, self.limits)

    def setups(self, brokers: Iterable[str] | None = None) -> dict[str, dict[str, Setup]]:
        """Return the setups of the links and clients of these brokers, or of all, by broker and link."""
        return {
            broker: {link: self.setup(broker, link) for link in (LOCAL, *self.overlay.neighbours[broker])}
            for broker in (self.overlay.brokers if brokers is None else brokers)
        }

    @property
    def unproved(self) -> list[tuple[str, str]]:
        """The directions of links whose strategy may withhold without a proof, and so lose publications."""
        return [link for link in self.overlay.directions() if not self.setup(*link).spec.proves]

    def with_strategy(self, spec: Spec) -> Config:
        """The same configuration with one strategy for all links."""
        return replace(self, spec=spec, specs={})


def parse(text: str, *, routing: bool = True) -> Config:
    """The configuration that a TOML text gives; without `routing` as if nothing were said about it."""
    try:
        tables = read_toml(text)
    except ValueError as error:
        raise ConfigError("the configuration", None, f"it is not valid TOML: {error}", "correct that") from None
    _refuse_unknown(tables, ("space", "cells", "overlay", "routing", "kafka", "lake", "engine", "serve", "limits"), "")
    overlay = _overlay(_section(tables, "overlay", required=True))
    given = _section(tables, "routing") if routing else {}
    _refuse_unknown(given, ("strategy", "links", "remember"), "routing.")
    return Config(
        space=_with_cells(_space(_section(tables, "space", required=True)), _section(tables, "cells")),
        overlay=overlay,
        spec=Spec.of(given.get("strategy", "auto"), "routing.strategy"),
        specs=_specs(given.get("links", {}), overlay),
        remember=_remember(given.get("remember", DAY // SECOND)),
        kafka=_kafka(_section(tables, "kafka")),
        lake=_lake(_section(tables, "lake")),
        limits=_limits(_section(tables, "limits")),
        endpoint=_endpoint(_section(tables, "engine")),
        serve=_serve(_section(tables, "serve")),
        state=_state(_section(tables, "engine")),
        text=text,
    )


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; `ValueError` with a reason if it is none, or holds what nobody needs."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except ValueError:  # Python's own words about it are advice to programmers
        raise ValueError(TOO_LONG) from None
    _refuse_extremes(tables, DEEPEST)
    return tables


def _refuse_extremes(value: object, deeper: int) -> None:
    """Nesting and numbers that no configuration needs, and that could not even be shown in a message."""
    if deeper == 0:
        raise ValueError(TOO_DEEP)
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise ValueError(TOO_LONG)
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for child in children:
        _refuse_extremes(child, deeper - 1)


def _section(tables: Mapping[str, Any], name: str, *, required: bool = False) -> Mapping[str, Any]:
    if required and name not in tables:
        raise ConfigError(name, None, "this section is missing", f"add [{name}]")
    section = tables.get(name, {})
    if not isinstance(section, Mapping):
        raise ConfigError(name, section, "this must be a section", f"write it as [{name}]")
    return section


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
    """Refuse a key that does not exist, without its value: it may be a secret in the wrong place."""
    for key in table:
        if key not in known:
            rule = f"there is no such key{nearest(key, known)}"
            raise ConfigError(f"{prefix}{key}", None, rule, f"use {', '.join(known)}")


# Space


def _space(section: Mapping[str, Any]) -> Space:
    if not section:
        raise ConfigError("space", {}, "a space has at least one attribute", "declare one, with kind and domain")
    if len(section) > MOST_DIMS:
        raise ConfigError("space", len(section), f"a space has at most {MOST_DIMS} attributes", "leave some out")
    return Space(tuple(_attribute(name, given) for name, given in section.items()))


def _attribute(name: str, given: object) -> Attribute:
    where = f"space.{name}"
    if not isinstance(given, Mapping):
        raise ConfigError(where, given, "an attribute is a table", 'write { kind = "int", low = 0, high = 9 }')
    kind = given.get("kind")
    if kind is None:
        raise ConfigError(f"{where}.kind", None, "an attribute has a kind", f"choose one of {', '.join(KINDS)}")
    if kind not in KINDS:
        raise ConfigError(f"{where}.kind", kind, "there is no such kind", f"choose one of {', '.join(KINDS)}")
    if not name.strip():
        raise ConfigError(where, name, "an attribute needs a name", "give it one")
    if kind == "category":
        _refuse_unknown(given, ("kind", "values", "renamed", "default"), f"{where}.")
        return _with_default(_renamed(_category(name, given.get("values"), where), given, where), given, where)
    _refuse_unknown(given, ("kind", "low", "high", "default"), f"{where}.")
    return _with_default(_interval(name, cast(Kind, kind), given, where), given, where)


def _with_default(attribute: Attribute, given: Mapping[str, Any], where: str) -> Attribute:
    """The attribute with the value of publications that do not name it."""
    if "default" not in given:
        return attribute
    try:
        return replace(attribute, default=attribute.key(_plain(given["default"])))
    except ValueRefused as error:
        raise ConfigError(f"{where}.default", given["default"], str(error), "write a value of the domain") from None


def _renamed(attribute: Attribute, given: Mapping[str, Any], where: str) -> Attribute:
    """The category with the names that its values had before."""
    names = given.get("renamed", {})
    if not isinstance(names, Mapping) or not all(isinstance(new, str) for new in names.values()):
        raise ConfigError(f"{where}.renamed", names, "it gives old names their new ones", 'write { old = "new" }')
    for old, new in names.items():
        if old in attribute.values:
            raise ConfigError(f"{where}.renamed", old, "the old name is still a value", "leave it out of one of them")
        if new not in attribute.values:
            raise ConfigError(f"{where}.renamed", new, "the new name is no value", f"add it to {where}.values")
    return replace(attribute, renamed=tuple(names.items()))


def _category(name: str, values: object, where: str) -> Attribute:
    if not isinstance(values, list) or not values or not all(isinstance(v, str) for v in values):
        raise ConfigError(f"{where}.values", values, "a category needs a list of strings", 'write values = ["a", "b"]')
    if len(set(values)) != len(values):
        raise ConfigError(f"{where}.values", values, "a value is listed twice", "list each value once")
    return Attribute(name, "category", 0, len(values) - 1, tuple(values))


def _interval(name: str, kind: Kind, given: Mapping[str, Any], where: str) -> Attribute:
    least, most = -LARGEST_INT, LARGEST_INT
    unbounded = Attribute(name, kind, least, most)
    keys = []
    for end in ("low", "high"):
        if end not in given:
            raise ConfigError(f"{where}.{end}", None, f"a domain of kind {kind} has a low and a high end", f"add {end}")
        try:
            keys.append(unbounded.key(_plain(given[end])))
        except ValueRefused as error:
            remedy = "write an ISO 8601 string" if kind == "timestamp" else f"write a finite {kind}"
            raise ConfigError(f"{where}.{end}", given[end], str(error), remedy) from None
    if keys[0] > keys[1]:
        raise ConfigError(where, dict(given), "the domain is inverted: low is above high", "exchange low and high")
    return Attribute(name, kind, keys[0], keys[1])


def _plain(value: object) -> object:
    """TOML has dates of its own; they mean what their ISO 8601 text means."""
    return value.isoformat() if hasattr(value, "isoformat") else value


# Cells


def _with_cells(space: Space, section: Mapping[str, Any]) -> Space:
    """The space with what was learned about its attributes."""
    known = {a.name: a for a in space.attributes}
    for name, given in section.items():
        where = f"cells.{name}"
        if name not in known:
            raise ConfigError(where, name, "the space has no such attribute", f"use some of {', '.join(known)}")
        if not isinstance(given, Mapping):
            raise ConfigError(where, given, "this must be a table", "write { borders = [...], selectivity = 0.1 }")
        _refuse_unknown(given, ("borders", "selectivity"), f"{where}.")
        borders, share = _borders(known[name], given.get("borders", []), where), given.get("selectivity")
        if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1):
            raise ConfigError(f"{where}.selectivity", share, "it is a share of publications", "use 0 to 1")
        known[name] = replace(known[name], borders=borders, selectivity=None if share is None else float(share))
    return Space(tuple(known.values()))


def _borders(attribute: Attribute, given: object, where: str) -> tuple[int, ...]:
    if not isinstance(given, list):
        raise ConfigError(f"{where}.borders", given, "this must be a list", "write borders = [...]")
    try:
        keys = [attribute.key(_plain(value)) for value in given]
    except ValueRefused as error:
        raise ConfigError(f"{where}.borders", given[:3], str(error), "run lacuna fit again") from None
    if any(b <= a for a, b in zip([attribute.low, *keys], keys, strict=False)):
        rule = "borders grow, and the first is above the low end of the domain"
        raise ConfigError(f"{where}.borders", given[:3], rule, "run lacuna fit again")
    return tuple(keys)


# Overlay


def _overlay(section: Mapping[str, Any]) -> Overlay:
    _refuse_unknown(section, ("brokers", "links", "regions"), "overlay.")
    links = [_pair(link) for link in _list(section, "links")]
    brokers = [_broker(name, "overlay.brokers") for name in _list(section, "brokers")]
    for name, count in ((name, brokers.count(name)) for name in brokers):
        if count > 1:
            raise ConfigError("overlay.brokers", name, "a broker is listed twice", "list it once")
    neighbours: dict[str, list[str]] = {name: [] for name in [*brokers, *(end for link in links for end in link)]}
    if not neighbours:
        raise ConfigError("overlay", dict(section), "there is no broker", 'write links, or brokers = ["hub"]')
    for a, b in links:
        if b in neighbours[a]:
            raise ConfigError("overlay.links", [a, b], "this link is given twice", "give it once")
        neighbours[a].append(b)
        neighbours[b].append(a)
    _check_tree(neighbours, links)
    tree = {broker: tuple(others) for broker, others in neighbours.items()}
    return Overlay(tree, _regions(section.get("regions", "auto"), tree))


def _regions(given: object, tree: Mapping[str, tuple[str, ...]]) -> Regions | int | None:
    where, remedy = "overlay.regions", 'write "auto", a number, or a list such as [["oslo", "paris"], ["rome"]]'
    if given == "auto":
        return None
    if isinstance(given, int) and not isinstance(given, bool):
        if not 1 <= given <= len(tree):
            raise ConfigError(where, given, f"{len(tree)} brokers make 1 to {len(tree)} regions", "change the number")
        return given
    if not isinstance(given, list) or not all(isinstance(region, list) for region in given):
        raise ConfigError(where, given, "regions are chosen, counted or listed", remedy)
    regions = tuple(tuple(region) for region in given)
    _check_regions(regions, tree)
    return regions


def _check_regions(regions: Regions, tree: Mapping[str, tuple[str, ...]]) -> None:
    """Each broker is in exactly one region, and each region is connected."""
    where = "overlay.regions"
    listed = [broker for region in regions for broker in region]
    for region in regions:
        for broker in region:
            if not isinstance(broker, str) or broker not in tree:
                raise ConfigError(where, broker, "the overlay has no such broker", f"use {', '.join(tree)}")
            if listed.count(broker) > 1:
                raise ConfigError(where, broker, "a broker is in two regions, or twice in one", "list it once")
        if not region:
            raise ConfigError(where, [], "a region has at least one broker", "remove the empty list")
        if not is_connected(tree, region):
            rule = "the brokers of a region are joined by links among themselves"
            raise ConfigError(where, list(region), rule, "add the brokers between them, or make them two regions")
    for broker in tree:
        if broker not in listed:
            raise ConfigError(where, broker, "this broker is in no region", "add it to the region of a neighbour")


def _list(section: Mapping[str, Any], key: str) -> list[Any]:
    value = section.get(key, [])
    if not isinstance(value, list):
        raise ConfigError(f"overlay.{key}", value, "this must be a list", f"write {key} = [...]")
    return value


def _pair(link: object) -> tuple[str, str]:
    if not isinstance(link, list) or len(link) != 2:
        raise ConfigError("overlay.links", link, "a link is a pair of brokers", 'write ["oslo", "paris"]')
    a, b = (_broker(name, "overlay.links") for name in link)
    if a == b:
        raise ConfigError("overlay.links", link, "a broker cannot be its own neighbour", "remove the pair")
    return a, b


def _broker(name: object, where: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(where, name, NAME_RULE, "rename the broker")
    if name == LOCAL:
        raise ConfigError(where, name, f"{LOCAL!r} is reserved for a broker's own clients", "rename the broker")
    return name


def _check_tree(neighbours: Mapping[str, list[str]], links: list[tuple[str, str]]) -> None:
    """Acyclic and connected. Joining the two ends' islands link by link finds the link that closes a cycle."""
    island = {name: name for name in neighbours}

    def root(name: str) -> str:
        while island[name] != name:
            name = island[name]
        return name

    for a, b in links:
        if root(a) == root(b):
            raise ConfigError("overlay.links", [a, b], "this link closes a cycle", "remove one link of the cycle")
        island[root(a)] = root(b)
    islands = sorted({root(name) for name in neighbours})
    if len(islands) > 1:
        rule = f"the brokers are {len(islands)} islands without a link between them"
        raise ConfigError("overlay", islands, rule, "add a link between them")


# Routing, Kafka, lake


def _specs(given: object, overlay: Overlay) -> dict[tuple[str, str], Spec]:
    if not isinstance(given, Mapping):
        raise ConfigError("routing.links", given, "this must be a section", 'write [routing.links."oslo>paris"]')
    directions = set(overlay.directions())
    specs = {}
    for link, table in given.items():
        where = f'routing.links."{link}"'
        ends = tuple(str(link).split(">"))
        if ends not in directions:
            known = ", ".join(f"{a}>{b}" for a, b in sorted(directions)) or "none"
            raise ConfigError(where, link, "the overlay has no such link", f"use one of: {known}")
        if not isinstance(table, Mapping) or "strategy" not in table:
            raise ConfigError(where, table, "this section needs a strategy", 'write strategy = "auto"')
        _refuse_unknown(table, ("strategy",), f"{where}.")
        specs[ends] = Spec.of(table["strategy"], f"{where}.strategy")
    return specs


def _check_ranges(config: Config) -> None:
    """Ranges stay ranges: either all links speak in them, on one grid, or none does."""
    own = {(a, b): f'routing.links."{a}>{b}".strategy' for a, b in config.specs}
    used = [(own.get(d, "routing.strategy"), config.spec_of(*d)) for d in config.overlay.directions()]
    grids = [_grid(config.space, spec, where) for where, spec in used]
    default = _grid(config.space, config.spec, "routing.strategy")
    common = grids[0] if len(own) == len(used) > 0 else default
    for (where, spec), grid in zip(used, grids, strict=True):
        if grid != common:
            raise ConfigError(
                where,
                str(spec),
                f"{BY_RANGES} is for all links or for none, with the same bits, cells and dims: what one broker has "
                "rounded to cells, the next one cannot turn back into boxes or into other cells",
                f"use {BY_RANGES} everywhere, or hybrid, which mixes freely",
            )


def _grid(space: Space, spec: Spec, where: str) -> str:
    if spec.name == "hybrid":
        grid_of(space, spec, where)
    return str(grid_of(space, spec, where)) if spec.by_ranges else ""


def _remember(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 10 * 366 * 86400:
        rule = "it is how many seconds a cancellation is remembered, from 0 to ten years"
        raise ConfigError("routing.remember", given, rule, "write a number of seconds such as 86400")
    return int(given * SECOND)


def _kafka(section: Mapping[str, Any]) -> Kafka:
    _refuse_unknown(section, ("bootstrap", "prefix", "replication", "security", "topics"), "kafka.")
    copies = read_copies("kafka.replication", section.get("replication"))
    texts = {key: _text(section[key], f"kafka.{key}") for key in ("bootstrap", "prefix") if key in section}
    security = read_security(section["security"]) if "security" in section else Security()
    kafka = Kafka(**texts, replication=copies, security=security, topics=read_topics(section.get("topics", {})))
    if not all(ADDRESS.fullmatch(address.strip()) for address in kafka.bootstrap.split(",")):
        rule = "it is not a list of HOST:PORT"
        raise ConfigError("kafka.bootstrap", kafka.bootstrap, rule, 'write it as "localhost:9092"')
    if not NAME.fullmatch(kafka.prefix):
        raise ConfigError("kafka.prefix", kafka.prefix, NAME_RULE, "rename it")
    return kafka


def _lake(section: Mapping[str, Any]) -> Lake:
    _refuse_unknown(section, ("path", "checkpoint", "writer", "every", "metrics_every", "keep"), "lake.")
    texts = {key: _text(section[key], f"lake.{key}") for key in ("path", "checkpoint", "writer") if key in section}
    paces = _every(section.get("every", 1.0)), _metrics_every(section.get("metrics_every", 10))
    lake = Lake(**texts, every=paces[0], metrics_every=paces[1], keep=_keep(section.get("keep", {})))
    if lake.writer not in (None, "rust", "spark"):
        raise ConfigError("lake.writer", lake.writer, "there is no such writer", "use rust or spark, or leave it out")
    return lake


def _limits(section: Mapping[str, Any]) -> Limits:
    _refuse_unknown(section, Limits._fields, "limits.")
    for key, value in section.items():
        if type(value) is not int or value < 1:
            rule = "it is how many one client may have, from 1"
            raise ConfigError(f"limits.{key}", value, rule, "write a whole number such as 1000, or leave it out")
    return Limits(**section)


def _endpoint(section: Mapping[str, Any]) -> Endpoint:
    _refuse_unknown(section, ("metrics_host", "metrics_port", "state"), "engine.")
    default = Endpoint()
    port = section.get("metrics_port", default.port)
    if type(port) is not int or not 0 <= port < 1 << 16:
        raise ConfigError("engine.metrics_port", port, "it is a port", "write a number up to 65535; 0: none")
    return Endpoint(_text(section.get("metrics_host", default.host), "engine.metrics_host"), port)


def _serve(section: Mapping[str, Any]) -> Serve:
    _refuse_unknown(section, tuple(field.name for field in fields(Serve)), "serve.")
    names = ("host", "tokens_file", "cert_file", "key_file", "job")
    texts = {key: _text(section[key], f"serve.{key}") for key in names if key in section}
    port, hosts, proxied = section.get("port", 8080), section.get("hosts", []), section.get("proxied", False)
    if type(port) is not int or not 0 <= port < 1 << 16:
        raise ConfigError("serve.port", port, "it is a port", "write a number up to 65535; 0: any free one")
    if not isinstance(hosts, list) or not all(isinstance(name, str) and name for name in hosts):
        raise ConfigError("serve.hosts", hosts, "it lists names", 'write hosts = ["lacuna.example.org"]')
    if not isinstance(proxied, bool):
        raise ConfigError("serve.proxied", proxied, "it is yes or no", "write true or false")
    serve = Serve(port=port, hosts=tuple(name.lower() for name in hosts), proxied=proxied, **texts)
    check_serve(serve)
    return serve


def check_serve(serve: Serve) -> None:
    """Check that other machines reach the gateway only with tokens, and only through TLS."""
    if (serve.cert_file is None) != (serve.key_file is None):
        rule = "a certificate and its key belong together"
        raise ConfigError("serve.cert_file", serve.cert_file, rule, "name both cert_file and key_file")
    if serve.job is not None and not serve.job.startswith(("http://", "https://")):
        raise ConfigError("serve.job", serve.job, "it is the address of a job", 'write it as "http://HOST:9464"')
    if serve.is_local:
        return
    if serve.tokens_file is None:
        rule = "without tokens the gateway believes every client, so it listens for this machine alone"
        raise ConfigError("serve.host", serve.host, rule, "name a tokens_file, or listen on 127.0.0.1")
    if serve.cert_file is None and not serve.proxied:
        rule = "tokens do not travel in plain text"
        raise ConfigError(
            "serve.host", serve.host, rule, "name cert_file and key_file, or write proxied = true behind a TLS proxy"
        )
    if serve.host in ("0.0.0.0", "::") and not serve.hosts:
        rule = "the names by which the gateway is addressed must be known"
        raise ConfigError("serve.hosts", None, rule, 'write hosts = ["lacuna.example.org"]')


def _state(section: Mapping[str, Any]) -> Literal["row", "map"]:
    given = section.get("state", "row")
    if given in ("row", "map"):
        return cast(Literal["row", "map"], given)
    raise ConfigError("engine.state", given, "it is how Spark keeps the state of a region", 'write "row" or "map"')


def _every(given: object) -> float:
    if not _is_number(given) or not 0 <= given <= 86400:
        rule = "it is the seconds between two batches of the archive, up to a day"
        raise ConfigError("lake.every", given, rule, "write a number such as 60")
    return float(given)


def _metrics_every(given: object) -> int:
    if type(given) is not int or not 0 <= given <= 86400:
        rule = "it is the whole seconds between two rows of metrics about a link, up to a day"
        raise ConfigError("lake.metrics_every", given, rule, "write a number such as 10, or 0 for a row in every batch")
    return given


def _keep(given: object) -> dict[str, float]:
    days: Mapping[Any, Any] = given if isinstance(given, Mapping) else {ALL_TABLES: given}
    for table, value in days.items():
        if not _is_number(value) or not 0 < value <= 36500:
            where = "lake.keep" if table == ALL_TABLES else f"lake.keep.{table}"
            rule = "it is the days for which rows are kept, up to a hundred years"
            raise ConfigError(where, value, rule, "write a number such as 30, or leave it out to keep rows for ever")
    return {str(table): float(value) for table, value in days.items()}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(where, value, "this must be a non-empty string", "put it in quotes")
    return value
