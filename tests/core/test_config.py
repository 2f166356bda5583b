"""The configuration: the documented one is read as meant; a bad one is one error with value, rule and remedy."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.config import MOST_DIMS, Config, Endpoint, Kafka, Lake, parse
from state.errors import ConfigError, shown
from state.protocol.ledger import DAY, Limits
from state.protocol.security import Security
from state.protocol.topics import Topic
from state.routing.link import Setup
from state.space import LARGEST_INT, Attribute, float_key, timestamp_key
from state.strategies import Spec

DOCUMENTED = """
[space]                                   # attributes, in order; every event is a point in this space
price  = { kind = "float", low = 0.0, high = 1000.0 }
volume = { kind = "int",   low = 0,   high = 100000 }
symbol = { kind = "category", values = ["AAPL", "IBM", "MSFT"] }
seen   = { kind = "timestamp", low = "2026-01-01T00:00:00Z", high = "2027-01-01T00:00:00Z" }

[overlay]                                 # acyclic, checked; a single broker has brokers = ["hub"], links = []
links = [["oslo", "paris"], ["paris", "rome"], ["paris", "wien"]]

[routing]
strategy = "auto"                         # for every link; see routing.md section 6; parameters beside the name:

[kafka]
bootstrap = "localhost:9092"
prefix = "lacuna"                         # topics lacuna.subscribe, lacuna.unsubscribe, lacuna.publish, ...

[lake]
path = "lake"                             # Delta tables below it
checkpoint = "checkpoint"
"""
SPACE = '[space]\nx = { kind = "int", low = 0, high = 9 }\n'
OVERLAY = '[overlay]\nlinks = [["oslo", "paris"], ["paris", "rome"]]\n'
GOOD = SPACE + OVERLAY


def space(attribute: str) -> str:
    return f"[space]\n{attribute}\n{OVERLAY}"


def attribute(kind: str, ends: str) -> str:
    return space(f'x = {{ kind = "{kind}", {ends} }}')


def overlay(text: str) -> str:
    return f"{SPACE}[overlay]\n{text}\n"


def regions(text: str) -> str:
    """A line of four brokers, cut so."""
    return overlay(f'links = [["a", "b"], ["b", "c"], ["c", "d"]]\nregions = {text}')


def routing(text: str) -> str:
    return f"{GOOD}[routing]\n{text}\n"


def link(name: str, text: str) -> str:
    return f'{GOOD}[routing.links."{name}"]\n{text}\n'


def kafka(text: str) -> str:
    return f"{GOOD}[kafka]\n{text}\n"


def topic(name: str, text: str) -> str:
    return kafka(f"topics.{name} = {{ {text} }}")


def lake(text: str) -> str:
    return f"{GOOD}[lake]\n{text}\n"


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value


# Good ones


def test_the_documented_example_is_read_as_meant() -> None:
    config = parse(DOCUMENTED)
    assert config.space.attributes == (
        Attribute("price", "float", float_key(0.0), float_key(1000.0)),
        Attribute("volume", "int", 0, 100_000),
        Attribute("symbol", "category", 0, 2, ("AAPL", "IBM", "MSFT")),
        Attribute("seen", "timestamp", timestamp_key("2026-01-01"), timestamp_key("2027-01-01")),
    )
    assert config.overlay.neighbours == {
        "oslo": ("paris",),
        "paris": ("oslo", "rome", "wien"),
        "rome": ("paris",),
        "wien": ("paris",),
    }
    assert (config.spec, config.specs, config.remember) == (Spec("auto"), {}, DAY)
    assert (config.kafka, config.lake) == (Kafka("localhost:9092", "lacuna"), Lake("lake", "checkpoint", None))


def test_what_is_left_out_has_its_default() -> None:
    config = parse(GOOD)
    assert config == Config(config.space, config.overlay)
    assert (config.spec, config.kafka, config.lake) == (Spec("auto"), Kafka(), Lake())


@pytest.mark.parametrize("text", ['brokers = ["hub"]\nlinks = []', 'brokers = ["hub"]'])
def test_a_single_broker_needs_no_link(text: str) -> None:
    config = parse(overlay(text))
    assert config.overlay.brokers == ("hub",)
    assert list(config.overlay.directions()) == []


def test_brokers_may_be_listed_besides_the_links_and_keep_that_order() -> None:
    config = parse(overlay('brokers = ["rome", "oslo"]\nlinks = [["oslo", "paris"], ["paris", "rome"]]'))
    assert config.overlay.brokers == ("rome", "oslo", "paris")
    assert set(config.overlay.directions()) == {
        ("oslo", "paris"),
        ("paris", "oslo"),
        ("paris", "rome"),
        ("rome", "paris"),
    }


@pytest.mark.parametrize("name", ["a", "A-1", "_x", "0", "x.y_z-9", "x" * 128])
def test_names_of_brokers_are_letters_digits_and_three_signs(name: str) -> None:
    assert parse(overlay(f'brokers = ["{name}"]')).overlay.brokers == (name,)


def test_strategies_are_for_all_links_or_for_one_direction_of_one() -> None:
    config = parse(
        routing('strategy = { name = "negative", index = "rtree" }')
        + '[routing.links."oslo>paris"]\nstrategy = "flood"\n'
        '[routing.links."paris>rome"]\nstrategy = { name = "union", budget = 7, covering = "active" }\n'
    )
    rtree = Spec("negative", (("index", "rtree"),))
    assert config.setup("oslo", "paris").spec == Spec("flood")
    assert config.setup("paris", "oslo").spec == rtree
    assert config.setup("paris", "rome").spec == Spec("union", (("budget", 7),), "active")
    assert config.setup("oslo", "local") == Setup("oslo", "local", config.space, rtree, DAY)
    changed = config.with_strategy(Spec("cover"))
    assert {changed.setup(*link).spec for link in config.overlay.directions()} == {Spec("cover")}


@pytest.mark.parametrize(("given_", "expected"), [("0", 0), ("3600", 3_600_000_000), ("0.5", 500_000)])
def test_remember_is_in_seconds(given_: str, expected: int) -> None:
    config = parse(routing(f"remember = {given_}"))
    assert config.remember == config.setup("oslo", "paris").remember == expected


@pytest.mark.parametrize(
    "moment", ['"2026-01-01T00:00:00Z"', "2026-01-01T00:00:00Z", "2026-01-01", "2026-01-01T01:00:00+01:00"]
)
def test_a_timestamp_may_be_a_text_or_a_date_of_toml(moment: str) -> None:
    (attribute,) = parse(space(f't = {{ kind = "timestamp", low = {moment}, high = {moment} }}')).space.attributes
    assert (attribute.low, attribute.high) == (timestamp_key("2026-01-01"),) * 2


def test_the_widest_domains_are_accepted() -> None:
    wide = (
        f'[space]\nn = {{ kind = "int", low = {-LARGEST_INT}, high = {LARGEST_INT} }}\n'
        'x = { kind = "float", low = -1.7976931348623157e308, high = 1.7976931348623157e308 }\n'
        'p = { kind = "float", low = 1, high = 1 }\n'
    )
    n, x, p = parse(wide + OVERLAY).space.attributes
    assert (n.low, n.high) == (-LARGEST_INT, LARGEST_INT)
    assert (x.low, x.high) == (float_key(-1.7976931348623157e308), float_key(1.7976931348623157e308))
    assert p.low == p.high == float_key(1.0)


def test_kafka_and_lake_are_taken_over() -> None:
    config = parse(kafka('bootstrap = "a:1,b:2"\nprefix = "x.y"\n[lake]\npath = "s3://l"\nwriter = "spark"'))
    assert config.kafka == Kafka("a:1,b:2", "x.y")
    assert config.lake == Lake("s3://l", "checkpoint", "spark")


def test_copies_pace_and_days_are_taken_over() -> None:
    config = parse(kafka('replication = 3\n[lake]\nevery = 60\nkeep = {routes = 7, "*" = 30.5}'))
    assert (config.kafka.replication, config.lake.every) == (3, 60.0)
    assert (config.lake.days_of("routes"), config.lake.days_of("rejects")) == (7.0, 30.5)
    assert parse(lake("keep = 5")).lake.days_of("routes") == 5.0
    assert parse(lake("keep = 36500")).lake.days_of("routes") == 36500.0
    with pytest.raises(ConfigError, match="a hundred years"):
        parse(lake("keep = 36500.5"))
    plain = parse(GOOD)
    chosen = parse(kafka("replication = 3\n[kafka.topics]\npublish = { partitions = 8 }\nlinks = { replication = 5 }"))
    assert chosen.kafka.wanted["publish"] == Topic(8, 3) and chosen.kafka.wanted["links"] == Topic(replication=5)
    assert chosen.kafka.wanted["control"] == Topic(replication=3) and parse(GOOD).kafka.wanted["links"] == Topic()
    forever = parse(kafka('topics.publish.retention = "forever"')).kafka.wanted["publish"].retention
    assert forever == float("inf")
    assert (plain.kafka.replication, plain.lake.every, plain.lake.days_of("routes")) == (None, 1.0, None)


def test_limits_endpoint_and_security_are_taken_over() -> None:
    config = parse(GOOD + "[limits]\nsubscriptions_per_client = 5\n[engine]\nmetrics_port = 0\n")
    assert config.limits == config.setup("oslo", "local").limits == Limits(5, None)
    assert config.endpoint == Endpoint("127.0.0.1", 0)
    assert parse(kafka('security = { protocol = "SSL" }')).kafka.security == Security("SSL")


# Bad ones: what is wrong, the text, where the error says it is, a part of the rule

BAD: list[tuple[str, str, str, str]] = [
    ("nothing", "", "overlay", "this section is missing"),
    ("no overlay", SPACE, "overlay", "this section is missing"),
    ("no space", OVERLAY, "space", "this section is missing"),
    ("not TOML", "[space", "the configuration", "not valid TOML"),
    ("JSON", '{"space": {}}', "the configuration", "not valid TOML"),
    ("a key twice", SPACE + SPACE + OVERLAY, "the configuration", "not valid TOML"),
    ("an unknown section", GOOD + "[network]\n", "network", "no such key"),
    ("an unknown limit", GOOD + "[limits]\nevents = 1", "limits.events", "no such key"),
    (
        "a limit that is none",
        GOOD + "[limits]\nsubscriptions_per_client = 0",
        "limits.subscriptions_per_client",
        "from 1",
    ),
    ("a port that is none", GOOD + "[engine]\nmetrics_port = 70000", "engine.metrics_port", "it is a port"),
    ("a host that is none", GOOD + '[engine]\nmetrics_host = ""', "engine.metrics_host", "non-empty"),
    ("security that is a text", kafka('security = "SSL"'), "kafka.security", "must be a table"),
    ("a key outside all sections", "x = 1\n" + GOOD, "x", "no such key"),
    ("a section that is a value", "overlay = 5\n" + SPACE, "overlay", "must be a section"),
    ("a section that is a list", "kafka = []\n" + GOOD, "kafka", "must be a section"),
    ("a section that is a list of tables", SPACE + "[[overlay]]\n", "overlay", "must be a section"),
    ("routing that is a text", 'routing = "auto"\n' + GOOD, "routing", "must be a section"),
    # space
    ("no attribute", "[space]\n" + OVERLAY, "space", "at least one attribute"),
    (
        "too many attributes",
        space("\n".join(f'x{k} = {{ kind = "int", low = 0, high = 9 }}' for k in range(MOST_DIMS + 1))),
        "space",
        f"at most {MOST_DIMS}",
    ),
    ("an attribute that is no table", space('x = "int"'), "space.x", "an attribute is a table"),
    ("an attribute without a name", space('" " = { kind = "int", low = 0, high = 9 }'), "space. ", "needs a name"),
    ("no kind", space("x = { low = 0, high = 9 }"), "space.x.kind", "has a kind"),
    ("an unknown kind", attribute("string", "low = 0, high = 9"), "space.x.kind", "no such kind"),
    ("a kind in capitals", attribute("INT", "low = 0, high = 9"), "space.x.kind", "no such kind"),
    ("a kind that is a list", space('x = { kind = ["int"], low = 0, high = 9 }'), "space.x.kind", "no such kind"),
    ("an unknown key of an attribute", attribute("int", "low = 0, high = 9, step = 1"), "space.x.step", "no such key"),
    ("values for an int", attribute("int", 'low = 0, high = 9, values = ["a"]'), "space.x.values", "no such key"),
    ("no low end", attribute("int", "high = 9"), "space.x.low", "a low and a high end"),
    ("no high end", attribute("int", "low = 9"), "space.x.high", "a low and a high end"),
    ("an inverted domain of ints", attribute("int", "low = 1, high = 0"), "space.x", "inverted"),
    ("an inverted domain of floats", attribute("float", "low = 0.1, high = -0.1"), "space.x", "inverted"),
    (
        "an inverted domain of timestamps",
        attribute("timestamp", "low = 2026-01-02, high = 2026-01-01"),
        "space.x",
        "inverted",
    ),
    ("a fraction for an int", attribute("int", "low = 0.5, high = 9"), "space.x.low", "fraction"),
    ("a text for an int", attribute("int", 'low = "0", high = 9'), "space.x.low", "not a number"),
    ("a boolean for an int", attribute("int", "low = false, high = 9"), "space.x.low", "not a number"),
    ("NaN for an int", attribute("int", "low = nan, high = 9"), "space.x.low", "not a finite number"),
    ("an int that was rounded", attribute("int", "low = 0, high = 9e18"), "space.x.high", "without point or exponent"),
    ("an int beyond int64", attribute("int", f"low = 0, high = {LARGEST_INT + 1}"), "space.x.high", "outside"),
    ("an int far beyond int64", attribute("int", f"low = -{10**40}, high = 0"), "space.x.low", "outside"),
    ("NaN for a float", attribute("float", "low = nan, high = 1"), "space.x.low", "not a finite number"),
    ("infinity for a float", attribute("float", "low = 0, high = inf"), "space.x.high", "not a finite number"),
    ("minus infinity for a float", attribute("float", "low = -inf, high = 0"), "space.x.low", "not a finite number"),
    (
        "an int beyond any double",
        attribute("float", f"low = 0, high = {10**400}"),
        "space.x.high",
        "beyond the largest double",
    ),
    ("a number for a timestamp", attribute("timestamp", "low = 0, high = 1"), "space.x.low", "ISO 8601"),
    ("a word for a timestamp", attribute("timestamp", 'low = "now", high = "later"'), "space.x.low", "ISO 8601"),
    (
        "a time of day for a timestamp",
        attribute("timestamp", "low = 07:32:00, high = 08:00:00"),
        "space.x.low",
        "ISO 8601",
    ),
    (
        "nanoseconds",
        attribute("timestamp", 'low = "2026-01-01T00:00:00.000000001Z", high = 2027-01-01'),
        "space.x.low",
        "microsecond",
    ),
    ("a date for an int", attribute("int", "low = 2026-01-01, high = 9"), "space.x.low", "not a number"),
    ("a category without values", space('x = { kind = "category" }'), "space.x.values", "list of strings"),
    ("a category with no values", attribute("category", "values = []"), "space.x.values", "list of strings"),
    ("a category of numbers", attribute("category", "values = [1, 2]"), "space.x.values", "list of strings"),
    ("a category that is a text", attribute("category", 'values = "ab"'), "space.x.values", "list of strings"),
    ("a category listed twice", attribute("category", 'values = ["a", "b", "a"]'), "space.x.values", "listed twice"),
    ("a category with ends", attribute("category", 'values = ["a"], low = 0'), "space.x.low", "no such key"),
    # overlay
    ("no broker", overlay(""), "overlay", "no broker"),
    ("no broker and no link", overlay("brokers = []\nlinks = []"), "overlay", "no broker"),
    ("an unknown key of the overlay", overlay('nodes = ["a"]'), "overlay.nodes", "no such key"),
    ("links that are no list", overlay('links = "oslo>paris"'), "overlay.links", "must be a list"),
    ("brokers that are no list", overlay('brokers = "hub"'), "overlay.brokers", "must be a list"),
    ("a link that is a text", overlay('links = ["oslo>paris"]'), "overlay.links", "a pair of brokers"),
    ("a link of one", overlay('links = [["oslo"]]'), "overlay.links", "a pair of brokers"),
    ("a link of three", overlay('links = [["a", "b", "c"]]'), "overlay.links", "a pair of brokers"),
    ("a link to itself", overlay('links = [["a", "b"], ["b", "b"]]'), "overlay.links", "its own neighbour"),
    ("a link twice", overlay('links = [["a", "b"], ["a", "b"]]'), "overlay.links", "given twice"),
    ("a link twice, turned round", overlay('links = [["a", "b"], ["b", "a"]]'), "overlay.links", "given twice"),
    ("a cycle", overlay('links = [["a", "b"], ["b", "c"], ["c", "a"]]'), "overlay.links", "closes a cycle"),
    (
        "a longer cycle",
        overlay('links = [["a", "b"], ["c", "d"], ["b", "c"], ["d", "e"], ["e", "b"]]'),
        "overlay.links",
        "closes a cycle",
    ),
    ("two islands", overlay('links = [["a", "b"], ["c", "d"]]'), "overlay", "2 islands"),
    ("a broker apart", overlay('brokers = ["x"]\nlinks = [["a", "b"]]'), "overlay", "2 islands"),
    ("two brokers and no link", overlay('brokers = ["a", "b"]'), "overlay", "2 islands"),
    ("a broker listed twice", overlay('brokers = ["a", "a"]'), "overlay.brokers", "listed twice"),
    ("a broker called local", overlay('brokers = ["local"]'), "overlay.brokers", "reserved"),
    ("a link to local", overlay('links = [["a", "local"]]'), "overlay.links", "reserved"),
    ("a broker without a name", overlay('brokers = [""]'), "overlay.brokers", "a name is"),
    ("a broker with a space", overlay('brokers = ["new york"]'), "overlay.brokers", "a name is"),
    ("a broker with the sign of a link", overlay('links = [["a>b", "c"]]'), "overlay.links", "a name is"),
    ("a broker that begins with a dot", overlay('brokers = [".hub"]'), "overlay.brokers", "a name is"),
    ("a broker that begins with a dash", overlay('brokers = ["-hub"]'), "overlay.brokers", "a name is"),
    ("a broker that ends with a new line", overlay('brokers = ["hub\\n"]'), "overlay.brokers", "a name is"),
    ("a broker with an accent", overlay('brokers = ["zürich"]'), "overlay.brokers", "a name is"),
    ("a broker with a long name", overlay(f'brokers = ["{"x" * 129}"]'), "overlay.brokers", "a name is"),
    ("a broker that is a number", overlay("brokers = [1]"), "overlay.brokers", "a name is"),
    ("a link of numbers", overlay("links = [[1, 2]]"), "overlay.links", "a name is"),
    # regions
    ("a region of an unknown broker", regions('[["a", "b", "x"], ["c", "d"]]'), "overlay.regions", "no such broker"),
    ("a region of numbers", regions("[[1, 2], [3, 4]]"), "overlay.regions", "no such broker"),
    ("a region of lists", regions('[[["a"]], ["b", "c", "d"]]'), "overlay.regions", "no such broker"),
    ("a region of tables", regions('[[{a = 1}], ["b", "c", "d"]]'), "overlay.regions", "no such broker"),
    ("a region apart", regions('[["a", "c"], ["b", "d"]]'), "overlay.regions", "joined by links"),
    ("a region with a hole", regions('[["a", "b", "d"], ["c"]]'), "overlay.regions", "joined by links"),
    ("a broker in two regions", regions('[["a", "b"], ["b", "c", "d"]]'), "overlay.regions", "in two regions"),
    ("a broker twice in a region", regions('[["a", "b", "a"], ["c", "d"]]'), "overlay.regions", "twice in one"),
    ("a broker in no region", regions('[["a", "b"], ["c"]]'), "overlay.regions", "in no region"),
    ("no regions", regions("[]"), "overlay.regions", "in no region"),
    ("an empty region", regions('[["a", "b", "c", "d"], []]'), "overlay.regions", "at least one broker"),
    ("none at all", regions("0"), "overlay.regions", "4 brokers make 1 to 4 regions"),
    ("fewer than none", regions("-1"), "overlay.regions", "4 brokers make 1 to 4 regions"),
    ("more regions than brokers", regions("5"), "overlay.regions", "4 brokers make 1 to 4 regions"),
    ("a fraction of regions", regions("2.0"), "overlay.regions", "chosen, counted or listed"),
    ("regions as text", regions('"two"'), "overlay.regions", "chosen, counted or listed"),
    ("regions that are true", regions("true"), "overlay.regions", "chosen, counted or listed"),
    ("regions as a table", regions('{a = ["b"]}'), "overlay.regions", "chosen, counted or listed"),
    ("one list of brokers", regions('["a", "b", "c", "d"]'), "overlay.regions", "chosen, counted or listed"),
    # routing
    ("an unknown key of routing", routing('covering = "lazy"'), "routing.covering", "no such key"),
    ("an unknown strategy", routing('strategy = "best"'), "routing.strategy", "no such strategy"),
    ("a strategy that is a number", routing("strategy = 5"), "routing.strategy", "a name or a table"),
    ("a strategy without a name", routing("strategy = { budget = 5 }"), "routing.strategy", "not name a strategy"),
    (
        "an unknown parameter",
        routing('strategy = { name = "union", depth = 5 }'),
        "routing.strategy.depth",
        "no such parameter",
    ),
    (
        "a wrong value of a parameter",
        routing('strategy = { name = "union", budget = 0 }'),
        "routing.strategy.budget",
        "at least 1",
    ),
    (
        "a wrong covering",
        routing('strategy = { name = "union", covering = "no" }'),
        "routing.strategy.covering",
        "'lazy' or 'active'",
    ),
    ("links of routing that are no section", routing("links = []"), "routing.links", "must be a section"),
    ("an unknown link", link("oslo>rome", 'strategy = "flood"'), 'routing.links."oslo>rome"', "no such link"),
    (
        "a link written another way",
        link("oslo-paris", 'strategy = "flood"'),
        'routing.links."oslo-paris"',
        "no such link",
    ),
    ("the link to the clients", link("oslo>local", 'strategy = "flood"'), 'routing.links."oslo>local"', "no such link"),
    ("a link without a strategy", link("oslo>paris", ""), 'routing.links."oslo>paris"', "needs a strategy"),
    (
        "a link that is a text",
        GOOD + '[routing.links]\n"oslo>paris" = "flood"\n',
        'routing.links."oslo>paris"',
        "needs a strategy",
    ),
    (
        "an unknown key of a link",
        link("oslo>paris", 'strategy = "flood"\nbudget = 5'),
        'routing.links."oslo>paris".budget',
        "no such key",
    ),
    (
        "an unknown strategy of a link",
        link("oslo>paris", 'strategy = "best"'),
        'routing.links."oslo>paris".strategy',
        "no such strategy",
    ),
    ("to remember a negative time", routing("remember = -1"), "routing.remember", "seconds"),
    ("to remember for ever", routing("remember = inf"), "routing.remember", "seconds"),
    ("to remember NaN", routing("remember = nan"), "routing.remember", "seconds"),
    ("to remember a century", routing("remember = 3155760000"), "routing.remember", "seconds"),
    ("to remember a word", routing('remember = "1 day"'), "routing.remember", "seconds"),
    ("to remember a boolean", routing("remember = true"), "routing.remember", "seconds"),
    # kafka and lake
    ("an unknown key of kafka", kafka('servers = "a:1"'), "kafka.servers", "no such key"),
    ("a bootstrap that is a list", kafka('bootstrap = ["a:1"]'), "kafka.bootstrap", "non-empty string"),
    ("an empty bootstrap", kafka('bootstrap = ""'), "kafka.bootstrap", "non-empty string"),
    ("a prefix that Kafka would refuse", kafka('prefix = "a b"'), "kafka.prefix", "a name is"),
    ("a blank prefix", kafka('prefix = " "'), "kafka.prefix", "non-empty string"),
    ("an unknown key of the lake", lake('tables = "lake"'), "lake.tables", "no such key"),
    ("a path that is a number", lake("path = 5"), "lake.path", "non-empty string"),
    ("an empty checkpoint", lake('checkpoint = ""'), "lake.checkpoint", "non-empty string"),
    ("topics that are a list", kafka("topics = []"), "kafka.topics", "must be a section"),
    ("a topic that is a number", kafka("topics = { publish = 8 }"), "kafka.topics.publish", "must be a table"),
    ("an unknown topic", topic("publishes", "partitions = 8"), "kafka.topics.publishes", "did you mean 'publish'"),
    (
        "an unknown key of a topic",
        topic("publish", "partition = 8"),
        "kafka.topics.publish.partition",
        "did you mean 'partitions'",
    ),
    ("no partitions", topic("publish", "partitions = 0"), "kafka.topics.publish.partitions", "from 1 to 10,000"),
    (
        "partitions by mistake",
        topic("publish", "partitions = 10001"),
        "kafka.topics.publish.partitions",
        "from 1 to 10,000",
    ),
    (
        "partitions that are a text",
        topic("publish", 'partitions = "8"'),
        "kafka.topics.publish.partitions",
        "number of partitions",
    ),
    (
        "a second order of commands",
        topic("control", "partitions = 2"),
        "kafka.topics.control.partitions",
        "has one partition",
    ),
    (
        "notices in two partitions",
        topic("notices", "partitions = 2"),
        "kafka.topics.notices.partitions",
        "has one partition",
    ),
    ("a topic without copies", topic("links", "replication = 0"), "kafka.topics.links.replication", "number of copies"),
    (
        "no days",
        topic("publish", "retention = 0"),
        "kafka.topics.publish.retention",
        "the days for which records are kept",
    ),
    (
        "days that are no number",
        topic("publish", "retention = nan"),
        "kafka.topics.publish.retention",
        "the days for which",
    ),
    (
        "a retention with a unit",
        topic("publish", 'retention = "7d"'),
        "kafka.topics.publish.retention",
        "the days for which",
    ),
    (
        "letters that go before they are read",
        topic("links", "retention = 7"),
        "kafka.topics.links.retention",
        "part of the state",
    ),
    ("claims that go", topic("control", "retention = 7"), "kafka.topics.control.retention", "last record of each key"),
    ("no copies", kafka("replication = 0"), "kafka.replication", "number of copies"),
    ("copies that are a truth value", kafka("replication = true"), "kafka.replication", "number of copies"),
    ("half a copy", kafka("replication = 1.5"), "kafka.replication", "number of copies"),
    ("a negative pace", lake("every = -1"), "lake.every", "seconds between two batches"),
    ("a pace that is a text", lake('every = "1 minute"'), "lake.every", "seconds between two batches"),
    ("no days", lake("keep = 0"), "lake.keep", "days for which rows are kept"),
    ("days of a table that are a text", lake('keep = {routes = "7"}'), "lake.keep.routes", "days for which"),
    ("days that are no number", lake("keep = nan"), "lake.keep", "days for which rows are kept"),
    ("an unknown writer", lake('writer = "java"'), "lake.writer", "no such writer"),
]


@pytest.mark.parametrize(("text", "where", "rule"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_a_bad_configuration_is_refused_with_value_rule_and_remedy(text: str, where: str, rule: str) -> None:
    error = refused(text)
    assert error.where == where
    assert rule in error.rule
    assert error.remedy
    what = error.where if error.value is None else f"{error.where} = {shown(error.value)}"
    assert str(error) == f"{what}: {error.rule}. Remedy: {error.remedy}."


def test_a_message_shows_no_more_of_a_value_than_a_person_reads() -> None:
    for kind, value in (("float", 10**400), ("int", 10**400), ("int", '"' + "x" * 5000 + '"')):
        assert len(str(refused(attribute(kind, f"low = 0, high = {value}")))) < 500


def test_what_is_missing_is_not_called_none() -> None:
    for text in (
        SPACE,
        space("x = { low = 0, high = 9 }"),
        attribute("int", "high = 9"),
        "[space",
        "x = " + "9" * 5000,
    ):
        assert "None" not in str(refused(text)) and "set_int" not in str(refused(text))


def test_the_error_names_the_value_that_is_wrong() -> None:
    assert refused(overlay('links = [["a", "b"], ["b", "c"], ["c", "a"]]')).value == ["c", "a"]
    assert refused(overlay('brokers = ["a", "b", "b"]')).value == "b"
    assert refused(regions('[["a", "b", "x"], ["c", "d"]]')).value == "x"
    assert refused(regions('[["a", "c"], ["b", "d"]]')).value == ["a", "c"]
    assert refused(regions('[["a", "b"], ["c"]]')).value == "d"
    assert refused(regions("5")).value == 5
    assert refused(attribute("int", "low = 0.5, high = 9")).value == 0.5
    assert refused(routing('strategy = "best"')).value == "best"
    assert refused(routing("remember = -1")).value == -1
    assert refused(lake('writer = "java"')).value == "java"


def test_regions_are_chosen_counted_or_listed() -> None:
    one_each = (("a",), ("b",), ("c",), ("d",))
    default, auto = parse(regions('"auto"').replace('regions = "auto"', "")), parse(regions('"auto"'))
    assert default.overlay == auto.overlay
    assert [auto.overlay.cut(cores) for cores in (1, 2, 4, 99)] == [
        (("a", "b", "c", "d"),),
        (("a", "b", "c", "d"),),
        (("a", "b"), ("c", "d")),
        one_each,
    ]
    assert {parse(regions("2")).overlay.cut(cores) for cores in (1, 2, 99)} == {(("a", "b"), ("c", "d"))}
    listed = parse(regions('[["d", "c", "b"], ["a"]]')).overlay
    assert {listed.cut(cores) for cores in (1, 2, 99)} == {(("d", "c", "b"), ("a",))}


def test_an_unknown_link_is_told_which_there_are() -> None:
    error = refused(link("oslo>rome", 'strategy = "flood"'))
    assert all(link in error.remedy for link in ("oslo>paris", "paris>oslo", "paris>rome", "rome>paris"))


def test_a_domain_that_no_utc_text_can_name_is_refused() -> None:
    error = refused(space('t = { kind = "timestamp", low = "0001-01-01T00:00:00+01:00", high = 2026-01-01 }'))
    assert error.where == "space.t.low"


# Whatever comes


STUMBLES = {
    "digits": attribute("int", "low = 0, high = " + "9" * 5000),
    "hex digits": attribute("int", "low = 0, high = 0x" + "f" * 5000),
    "hex seconds": routing("remember = 0x" + "f" * 5000),
    "deep lists": routing("strategy = " + "[" * 5000 + "]" * 5000),
    "deep tables": routing("strategy = " + "{a = " * 5000 + "1" + "}" * 5000),
    "deep keys": "a." * 5000 + "b = 1",
    "NUL": "\x00",
    "surrogate": "\ud800 = 1",
    "surrogate name": '[space]\n"\ud800" = 1',
}


@pytest.mark.parametrize("text", STUMBLES.values(), ids=STUMBLES)
def test_a_text_that_python_itself_stumbles_over_is_refused_too(text: str) -> None:
    assert refused(text).remedy


WORDS = ["", "a", "int", "float", "category", "timestamp", "auto", "union", "hub", "local", "lazy", "2026-01-01"]
NUMBERS = ["0", "1", "-1", "9", "0.5", "nan", "inf", "-inf", "1e400", "99999999999999999999", "0x10"]
DATES = ["2026-01-01", "2026-01-01T00:00:00Z", "07:32:00"]
scalars = st.sampled_from([*NUMBERS, *DATES, "true", *(f'"{word}"' for word in WORDS)])
KEYS = [
    "kind",
    "low",
    "high",
    "values",
    "name",
    "budget",
    "strategy",
    "links",
    "brokers",
    "remember",
    "x",
    "prefix",
    "path",
    "bootstrap",
    "regions",
]
keys = st.sampled_from(KEYS)


def tables(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.dictionaries(keys, inner, max_size=4)
    return pairs.map(lambda some: "{ " + ", ".join(f"{key} = {value}" for key, value in some.items()) + " }")


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda some: f"[{', '.join(some)}]")


values = st.recursive(scalars, lambda inner: tables(inner) | lists(inner), max_leaves=5)
sections = st.sampled_from(["space", "overlay", "routing", "kafka", "lake", 'routing.links."hub>a"', "other"])
texts = st.dictionaries(sections, st.dictionaries(keys, values, max_size=3), max_size=5).map(
    lambda some: "".join(
        f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items())
        for section, table in some.items()
    )
)


def read_or_refused(text: str) -> None:
    try:
        config = parse(text)
    except ConfigError as error:
        assert error.rule
        assert error.remedy
    else:
        assert config.space.dims >= 1
        assert config.overlay.brokers


@given(texts)
@example(GOOD)
def test_no_text_like_a_configuration_raises_anything_else(text: str) -> None:
    read_or_refused(text)


@given(texts)
def test_nothing_added_to_a_good_configuration_raises_anything_else(text: str) -> None:
    read_or_refused(GOOD + text)


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    read_or_refused(text)


@given(st.sampled_from(["int", "float", "timestamp", "category"]), values, values)
def test_no_domain_raises_anything_else(kind: str, low: str, high: str) -> None:
    ends = f"values = {low}" if kind == "category" else f"low = {low}, high = {high}"
    read_or_refused(space(f'x = {{ kind = "{kind}", {ends} }}'))


@given(values)
def test_no_strategy_raises_anything_else(value: str) -> None:
    read_or_refused(routing(f"strategy = {value}"))
