"""Regions joined, and cut in another way: a broker is the unit of storage, a region only of scheduling.

    regions of the old life ──join──▶ one region of the whole overlay ──cut──▶ regions of the new life

Brokers move as they are, with everything that links were told and have heard. Numbers of channels begin again, in the
epoch of the new life. Letters that were sent and not yet received are taken by the joined region, each once, as its
receivers say; it must be quiet before it is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from state.errors import InvariantError
from state.routing.link import Setup
from state.routing.region import Region

Setups = Mapping[str, Mapping[str, Setup]]
"""The setups of a region's links, by broker and link."""


def join(name: str, regions: Iterable[Region], setups: Setups, epoch: int) -> Region:
    """Return one region of all brokers of these regions, which must not be used any more.

    Its receivers are those of the borders between them: letters that were under way can be taken.
    """
    whole = Region(name, setups, epoch, logs=False)
    for region in regions:
        whole.brokers |= region.brokers
        whole.receivers |= region.receivers
        whole.echoes.join(region.echoes)
        for (broker, link), (counts, batches) in region.counters.waiting.items():
            whole.counters.wait(broker, link, counts, batches)
        whole.clock = max(whole.clock, region.clock)
    whole.resume()
    return whole


def cut(whole: Region, parts: Mapping[str, Setups], epoch: int) -> dict[str, Region]:
    """Return the brokers of a region of the whole overlay in these regions. The whole must not be used any more."""
    if whole.waiting:
        raise InvariantError("a region is cut while messages wait inside")
    made = {name: Region(name, setups, epoch) for name, setups in parts.items()}
    for region in made.values():
        region.brokers = {broker: whole.brokers[broker] for broker in region.brokers}
        region.clock = whole.clock
        region.resume()
    return made
