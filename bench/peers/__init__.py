"""`lacuna bench peers`: beside others that answer the same questions, in one run, with results that are checked equal.

Boxes with sides of 5 to 15 % of the domain in 3 attributes, and points, both uniform. A ratio says how many times
longer the peer takes, the median of several turns; a peer that cannot be had is skipped by name.

* `match_vs_rtree_100k`, `match_vs_rstar_100k` (aim: 4), `match_vs_cube_100k`: which of 100,000 boxes hold a point?
  Against libspatialindex, rstar (Rust) and PostgreSQL's cube with GiST. The details have 1,000, 10,000 and 1,000,000
  boxes too, and event-ruler (Java) at 1,000, as far as a peer gets in a minute.
* `match_boolean_vs_a_tree_10k`: which of 10,000 Boolean filters of book auctions hold? Against a-tree (Rust).
* `cover_vs_cube_100k`, `cover_vs_rtree_100k`: does one of 100,000 boxes contain a box?
* `union_vs_z3`: do 24 boxes cover another together? z3 is the judge too.
* `auto_vs_better_exact` (about 1): CPU time for a subscription by `auto`, over that by the better of `union` and
  `negative`; the worst of nine workloads in 1 to 3 attributes.
* `links_vs_activemq` (at most 0.6): publications on the links of three brokers in a line, 2,000 subscriptions, over
  those of ActiveMQ in the setting that needs fewer.

Needs cargo and Maven for the peers in Rust and Java, and PostgreSQL; builds the former once, in `bench/out/peers`.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.peers.covering import compare_exact, compare_one_by_one, compare_unions
from bench.peers.matching import compare_boxes, compare_filters
from bench.peers.postgres import Server
from bench.peers.programs import SkippedError
from bench.peers.routing import compare_links
from bench.report import Report, Step

SIZES = [1_000, 10_000, 100_000, 1_000_000]


def run(step: Step, *, quick: bool) -> Report:
    """All peers; `quick` leaves out 1,000,000 boxes and most unions."""
    report = Report("peers", quick=quick)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peers-")))
        home.chmod(0o755)  # the account of PostgreSQL looks into it
        step("starting PostgreSQL")
        server = _server(report, home, stack)
        compare_boxes(report, step, home, server, SIZES[:-1] if quick else SIZES)
        compare_filters(report, step, home)
        compare_one_by_one(report, step, server)
        compare_unions(report, step, 20 if quick else 100)
        compare_exact(report, step)
        compare_links(report, step, home)
    return report


def _server(report: Report, home: Path, stack: ExitStack) -> Server | None:
    try:
        server = Server(home / "postgres")
    except SkippedError as skipped:
        report.skip("cube", str(skipped))
        return None
    stack.callback(server.close)
    return server
