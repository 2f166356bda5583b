"""One system through a chain of changes, each by `lacuna apply`: nothing is lost, nothing comes twice.

Producers go on in between: what they send before a change and what has not been read yet is delivered after it. After
each change publications of all brokers reach exactly whom brute force says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from state.errors import LacunaError
from state.protocol.commands import Apply
from streaming import begin
from streaming.apply import apply
from streaming.holder import Holder
from streaming.life import Folder
from streaming.restarts import JobFailed
from streaming.whole import Whole
from tests.spark.test_remedies import ENGINE, System, new_system, system
from tests.system.owed import AT, delivered

pytestmark = pytest.mark.system
__all__ = ["new_system", "system"]


@dataclass
class Change:
    """A change of the configuration's text, and the brokers whose clients move with it."""

    edits: dict[str, str]
    moves: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        return [word for old, new in self.moves.items() for word in ("--move", f"{old}={new}")]


LINKS = '[["paris", "oslo"], ["paris", "rome"], ["paris", "wien"], ["wien", "praha"]]'
REGIONS = 'regions = [["paris", "oslo", "rome"], ["wien", "praha"]]'
SYMBOLS = 'values = ["AAPL", "IBM", "MSFT", "SAP"]'
CHAIN = {
    "a broker is added": Change({LINKS: f'{LINKS[:-1]}, ["praha", "brno"]]', REGIONS: "regions = 2"}),
    "the strategy becomes mics": Change({"[kafka]": '[routing]\nstrategy = "mics"\n[kafka]'}),
    "the state becomes a map": Change({"[kafka]": '[engine]\nstate = "map"\n[kafka]'}),
    "a link is replaced by another": Change({'["wien", "praha"]': '["oslo", "praha"]'}),
    "the strategy becomes flood, in one region": Change({'"mics"': '"flood"', "regions = 2": "regions = 1"}),
    "a broker is removed, and its clients move": Change({', ["praha", "brno"]': ""}, {"brno": "rome"}),
    "a domain is widened, a value and an attribute are added": Change(
        {
            "high = 1000.0": "high = 5000.0",
            '"MSFT"]': '"MSFT", "SAP"]',
            "[overlay]": 'venue = { kind = "category", values = ["main", "dark"], default = "main" }\n[overlay]',
        }
    ),
    "the state becomes a row again": Change({'state = "map"\n': ""}),
    "a value is renamed": Change({SYMBOLS: 'values = ["AAPL", "MSFT", "SAP", "BIG"], renamed = { IBM = "BIG" }'}),
}


def test_a_chain_of_changes(new_system: Callable[[str], System], kafka: str) -> None:
    system = new_system(kafka)
    for k, broker in enumerate(("oslo", "rome", "praha", "wien")):
        system.history.subscribe(broker, f"s{k}")
    system.history.publish("oslo", "first")
    system.run()
    for number, (name, change) in enumerate(CHAIN.items(), start=2):
        system.history.move(change.moves)
        system.history.publish("praha", f"unread before {name}")
        configure(system, change)
        assert system.command("apply", *change.options)["epoch"] == number, name
        if number == 2:
            system.history.subscribe("brno", "new")
        system.run()
        for broker in system.config.overlay.brokers:
            system.history.publish(broker, f"{broker} after {name}")
        system.run()
        system.check()
    system.history.publish("brno", "by the name of a broker that is gone")
    system.run()
    system.check()
    assert AT["symbol"] == "IBM", "producers still use the old name of a value"


def configure(system: System, change: Change) -> None:
    """Edit the configuration; the job as it is refuses it."""
    text = system.file.read_text()
    for old, new in change.edits.items():
        assert old in text, old
        text = text.replace(old, new)
    system.configure(text)
    system.refused("changed configuration")


def test_what_cannot_be_kept_is_refused_and_nothing_has_changed(system: System) -> None:
    before = system.file.read_text()
    system.configure(before.replace(REGIONS, "regions = 1").replace(', ["wien", "praha"]', ""))
    plan = system.command("apply", "--dry-run", code=1)
    assert plan["refused"] == [
        "the broker praha has 1 subscriptions, and is not in the new overlay. Remedy: say where its clients go "
        "(--move praha=OTHER), or cancel them first"
    ]
    with pytest.raises(LacunaError, match="refused, and nothing has changed:\nthe broker praha has 1 subscriptions"):
        apply(system.config, ENGINE, system.said.append, Apply())
    system.configure(before)
    system.history.publish("oslo", "as before")
    system.run()
    system.check()


class Killed(Exception):
    """The process dies here."""


def dies(*_: Any, **__: Any) -> Any:
    raise Killed


STEPS: dict[str, tuple[Any, str]] = {
    "while what stands is decided again": (Whole, "become"),
    "while what it begins with is recorded": (Whole, "record"),
    "before the folder": (Folder, "write"),
    "before the announcement": (Holder, "announce"),
    "before the prologue": (begin, "send_prologue"),
    "in the prologue": (Folder, "note_sent"),
}


def test_a_change_that_is_killed_at_any_step_is_undone_or_finished(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the announcement nothing has happened, and the command is run again; after it, the next start finishes."""
    before = system.file.read_text()
    for number, (step, (owner, name)) in enumerate(STEPS.items()):
        system.configure(f'{before}[routing]\nstrategy = "{("flood", "union")[number % 2]}"\n')
        system.history.publish("praha", f"unread, killed {step}")
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(owner, name, dies)
            system.command("apply")
        if "prologue" not in step:
            system.refused("changed configuration")
        system.command("apply")
        system.run()
        system.check()


def test_a_change_right_after_another(system: System) -> None:
    """The second begins from a life that has done nothing yet; what was under way between regions is delivered once."""
    system.history.publish("praha", "under way")
    with system.running(replace(ENGINE, trigger="600 seconds")) as service:
        service.wait(lambda: service.query("router").lastProgress is not None)
    assert len(delivered(system.config)[1]) < len(system.history.owed), "a letter has not been read"
    text = system.file.read_text()
    for strategy in ("flood", "union"):
        system.configure(f'{text}[routing]\nstrategy = "{strategy}"\n')
        system.command("apply")
    system.run()
    system.check()


def test_a_running_job_whose_change_fails(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the announcement it goes on as it was. After it, it stops; the next start goes on with the new life."""
    changed = f'{system.file.read_text()}[routing]\nstrategy = "flood"\n'
    with pytest.raises(JobFailed, match=r"no room\. Remedy: .*start the job again"), system.running() as service:
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "write", has_no_room)
            assert service._apply(Apply(toml=changed)) == ["no room"]
        system.history.publish("praha", "as before")
        service.wait(service.quiet)
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "note_sent", has_no_room)
            service._apply(Apply(toml=changed))
    system.configure(changed)
    system.history.publish("praha", "after it")
    system.run()
    system.check()
    assert sorted(delivered(system.config)) == [1, 2]


def has_no_room(*_: Any, **__: Any) -> Any:
    raise LacunaError("no room")
