"""A copy of the overlay from the tables: the same active and passive ones, the same told and heard."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lacuna.analysis.history import event_story
from lacuna.analysis.lake import ANEW, open_tables
from lacuna.analysis.mirror import Mirror
from lacuna.simulate import Simulation, Writer
from state.config import Config, parse
from state.errors import LacunaError
from state.protocol.messages import Name
from state.routing.region import Region
from state.routing.told import PORTION
from tests.core.histories import config_text, configs, events
from tests.core.lakes import Archive, write_lake
from tests.core.shell import Shell


def simulated(config: Config, history: list[dict[str, Any]], folder: Path) -> Region:
    with ExitStack() as stack:
        simulation = Simulation(config, Writer(folder, config.space, stack))
        simulation.quiet(json.dumps(event).encode() for event in history)
    return simulation.region


def assert_same(mirror: Region, real: Region) -> None:
    for name, broker in real.brokers.items():
        copy = mirror.brokers[name]
        copy.clients.check()
        assert set(copy.clients) == set(broker.clients)
        for link, there in broker.links.items():
            here = copy.links[link]
            here.check()
            if not there.setup.spec.by_ranges:
                assert list(here.told.active) == list(there.told.active)
                proofs = {n: entry.coverers for n, entry in there.told.passive.items()}
                assert {n: entry.coverers for n, entry in here.told.passive.items()} == proofs
            assert _boxes(here.told.asks()) == _boxes(there.told.asks())
            assert _boxes(here.heard.asked()) == _boxes(there.heard.asked())


def _boxes(asked: Any) -> Any:
    return {name: boxes for name, (boxes, _) in asked.items()} if isinstance(asked, dict) else asked


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data())
def test_a_copy_holds_what_the_router_holds(data: st.DataObject) -> None:
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=60))
    with tempfile.TemporaryDirectory() as folder:
        real = simulated(config, history, Path(folder))
        mirror = Mirror(open_tables(config, Path(folder)))
        mirror.refresh()
        assert not mirror.refresh()
    assert_same(mirror.region, real)


@settings(max_examples=6, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data())
def test_a_copy_follows_the_lake(data: st.DataObject) -> None:
    """Polled as the archive goes on, with compaction in between, in regions; or read at once, only what counts."""
    config = data.draw(configs())
    history = data.draw(events(config.overlay.brokers, most=60))
    shell = Shell(config)
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(shell, Path(folder))
        follows = Mirror(open_tables(archive.config))
        assert not follows.refresh()
        for begin in range(0, len(history), 15):
            for event in history[begin : begin + 15]:
                shell.send(event)
            shell.settle()
            archive.append()
            follows.refresh()
            if begin == 15:
                for table in ("subscriptions", "decisions"):
                    DeltaTable(f"{archive.config.lake.path}/{table}").optimize.compact()
            assert not follows.refresh(), "compaction adds no rows"
        at_once = Mirror(open_tables(archive.config))
        at_once.refresh()
    for broker in config.overlay.brokers:
        region = shell.region(broker)
        assert_same(follows.region, region)
        assert_same(at_once.region, region)


def test_a_shape_that_leaves_is_known_from_the_lake(tmp_path: Path) -> None:
    """Many lean on one that is cancelled: a step decides about a portion of them, the neighbour keeps the old shape."""
    config = parse(config_text([("b0", "b1")], '"union"'))
    shell = Shell(config)
    one = {"kind": "subscribe", "broker": "b0", "client": "ann"}
    shell.send({**one, "id": "all", "where": {}})
    for k in range(3 * PORTION):
        shell.send({**one, "id": f"s{k}", "where": {"x": [k % 8, k % 8], "y": [k % 7, k % 7]}})
    shell.send({"kind": "unsubscribe", "broker": "b0", "client": "ann", "id": "all"})
    shell.settle()
    real = shell.region("b0")
    assert real.brokers["b0"].links["b1"].told.working
    mirror = Mirror(open_tables(write_lake(shell, tmp_path)))
    mirror.refresh()
    assert_same(mirror.region, real)
    assert mirror.region.brokers["b0"].links["b1"].told.working, "nothing is worked off in a copy"


def test_a_new_life_that_decides_again_replaces_the_copy(tmp_path: Path) -> None:
    shell = Shell(parse(config_text([("b0", "b1")], '"union"')))
    archive = Archive(shell, tmp_path)
    shell.send({"kind": "subscribe", "broker": "b0", "client": "ann", "id": "old", "where": {}})
    shell.settle()
    archive.append()
    mirror = Mirror(open_tables(archive.config))
    mirror.refresh()
    rows = mirror.tables.rows("subscriptions") and DeltaTable(f"{tmp_path}/lake/subscriptions").to_pyarrow_table()
    anew = rows.set_column(rows.schema.get_field_index("epoch"), "epoch", pa.array([8], pa.int64()))
    anew = anew.set_column(anew.schema.get_field_index("batch"), "batch", pa.array([-1_000_000], pa.int64()))
    anew = anew.set_column(anew.schema.get_field_index("subscription"), "subscription", pa.array(["new"]))
    write_deltalake(f"{tmp_path}/lake/subscriptions", anew.cast(rows.schema), mode="append")
    assert mirror.refresh()
    assert [name.id for name in mirror.asked] == ["new"]
    assert not mirror.refresh()


def test_tables_of_another_space_are_refused(tmp_path: Path) -> None:
    shell = Shell(parse(config_text([("b0", "b1")], '"union"')))
    shell.send({"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": {"y": [1, 2]}})
    shell.settle()
    written = write_lake(shell, tmp_path)
    other = parse(config_text([("b0", "b1")], '"union"').replace("\ny =", "\nz ="))
    mirror = Mirror(open_tables(replace(other, lake=written.lake)))
    for _ in range(2):
        with pytest.raises(LacunaError, match=r"rows do not fit the configuration .*Remedy"):
            mirror.refresh()


def test_a_table_that_is_put_in_the_place_of_another_is_followed(tmp_path: Path) -> None:
    """As `lacuna archive rebuild` does: the same rows, and those that come after them, in fewer versions."""
    shell = Shell(parse(config_text([("b0", "b1")], '"union"')))
    archive = Archive(shell, tmp_path)
    for k in range(3):
        shell.send({"kind": "subscribe", "broker": "b0", "client": "ann", "id": f"s{k}", "where": {"x": [k, k]}})
        shell.settle()
        archive.append()
    mirror = Mirror(open_tables(archive.config))
    mirror.refresh()
    path = tmp_path / "lake" / "subscriptions"
    rows = DeltaTable(str(path)).to_pyarrow_table()
    path.rename(tmp_path / "before")
    more = rows.slice(2).set_column(rows.schema.get_field_index("subscription"), "subscription", pa.array(["later"]))
    more = more.set_column(rows.schema.get_field_index("batch"), "batch", pa.array([99], pa.int64()))
    write_deltalake(str(path), pa.concat_tables([rows, more.cast(rows.schema)]))
    assert any(refreshed(mirror) for _ in range(ANEW + 1))
    assert sorted(name.id for name in mirror.asked) == ["later", "s0", "s1", "s2"]


def refreshed(mirror: Mirror) -> bool:
    try:
        return mirror.refresh()
    except LacunaError as error:
        assert "Remedy: try again" in str(error)
        return False


def test_files_that_are_gone_are_a_message_and_then_read_again(tmp_path: Path) -> None:
    shell = Shell(parse(config_text([("b0", "b1")], '"union"')))
    shell.send({"kind": "subscribe", "broker": "b0", "client": "ann", "id": "s", "where": {}})
    shell.settle()
    config = write_lake(shell, tmp_path)
    [file] = (tmp_path / "lake" / "decisions").glob("*.parquet")
    file.rename(tmp_path / "kept")
    mirror = Mirror(open_tables(config))
    with pytest.raises(LacunaError, match=r"decisions: it cannot be read .*Remedy: try again"):
        mirror.refresh()
    (tmp_path / "kept").rename(file)
    assert mirror.refresh()
    assert len(mirror.asked) == 1 and len(mirror.region.brokers["b1"].links["b0"].heard) == 1


@pytest.mark.parametrize("compacted", [False, True])
def test_the_lake_tells_of_an_event_what_the_files_do(tmp_path: Path, compacted: bool) -> None:
    """One region, so that the order of rows is that of the simulation; the lake reads only what counted then."""
    config = parse(config_text([("b0", "b1"), ("b1", "b2")], '"union"'))
    history = list(some_events(60))
    simulated(config, history, tmp_path / "out")
    shell = Shell(config, regions=1)
    archive = Archive(shell, tmp_path)
    for k, event in enumerate(history):
        shell.send(event)
        shell.settle()
        if k % 20 == 19:
            archive.append()
    archive.append()
    if compacted:
        DeltaTable(f"{archive.config.lake.path}/decisions").optimize.compact()
    files, lake = open_tables(config, tmp_path / "out"), open_tables(archive.config)
    ids = [event["id"] for event in history if event["kind"] == "publish"]
    told = [[one.text for one in event_story(tables, id).sentences] for id in ids for tables in (files, lake)]
    assert told[::2] == told[1::2]
    assert sum("asked for contain it" in text for texts in told for text in texts) > 5
    beside = Name("b2", "ann", "s5")
    texts = {event_story(tables, ids[-1], beside).text for tables in (files, lake)}
    assert len(texts) == 1


def some_events(count: int) -> Iterator[dict[str, Any]]:
    """Subscriptions that are withheld, promoted and cancelled, with publications between."""
    for k in range(count):
        one = {"broker": f"b{k % 3}", "client": "ann", "id": f"s{k}"}
        yield {"kind": "subscribe", **one, "where": {"x": [k % 5, 7 - k % 3], "y": [0, k % 8]}}
        if k % 4 == 3:
            yield {"kind": "unsubscribe", "broker": f"b{(k - 3) % 3}", "client": "ann", "id": f"s{k - 3}"}
        if k % 3 == 0:
            at = {"x": k % 8, "y": k % 4, "colour": "red"}
            yield {"kind": "publish", "broker": f"b{k % 2}", "id": f"p{k}", "at": at}


def test_what_is_certified_by_a_new_shape_does_not_wait_for_the_old_one(tmp_path: Path) -> None:
    """The decision about the new shape is recorded last: after those that were promoted, or lean on it."""
    config = parse(config_text([("b0", "b1")], '"union"'))
    wheres = [("wide", {}), ("low", {"y": [0, 3]}), ("edge", {"x": [7, 7]}), ("wide", {"y": [4, 7]})]
    history = [{"kind": "subscribe", "broker": "b0", "client": "ann", "id": id, "where": where} for id, where in wheres]
    real = simulated(config, history, tmp_path)
    told = real.brokers["b0"].links["b1"].told
    assert not told.working and told.passive[Name("b0", "ann", "edge")].coverers
    mirror = Mirror(open_tables(config, tmp_path))
    mirror.refresh()
    assert_same(mirror.region, real)


def test_the_last_rows_are_read_from_the_newest_files(tmp_path: Path) -> None:
    shell = Shell(parse(config_text([("b0", "b1")], '"union"')))
    archive = Archive(shell, tmp_path)
    for k in range(6):
        shell.send({"kind": "publish", "broker": "b0", "id": f"p{k}", "at": {"x": k, "y": 0, "colour": "red"}})
        shell.settle()
        archive.append()
    lake = open_tables(archive.config)
    assert [row["point"]["x"] for row in lake.last("publications", 2, ("point",))] == [4, 5]
    assert len(lake.last("publications", 99)) == 6 and lake.last("deliveries", 3) == []
    oldest = DeltaTable(f"{tmp_path}/lake/publications").file_uris()[-1]
    Path(oldest).unlink()
    assert [row["publication"] for row in lake.last("publications", 5)] == ["p1", "p2", "p3", "p4", "p5"]
