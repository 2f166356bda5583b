"""Boxes for benchmarks, and the told half of a link to decide about them."""

from __future__ import annotations

import numpy as np

from producers.workloads import Zipf
from state.config import parse
from state.geometry.boxes import Box, Boxes
from state.protocol.messages import Name
from state.routing.told import Told
from state.space import Keys
from state.strategies import Spec

DOMAIN = 1000


def random_boxes(count: int, dims: int, widest: float, seed: int = 1) -> Keys:
    """Boxes with uniform low ends and sizes up to `widest` of a domain of a million keys."""
    chance = np.random.default_rng(seed)
    low = chance.random((count, dims)) * (1 - widest)
    high = low + chance.random((count, dims)) * widest
    return np.stack((low * 1e6, high * 1e6 + 1), axis=1).astype(np.int64)


def zipf_boxes(count: int, dims: int, seed: int = 1) -> Keys:
    """The negative-space paper's subscriptions on the domain [0, 1000] of whole numbers."""
    shape = Zipf(np.random.default_rng(seed), dims)
    lows = shape.lows(count)
    low = np.rint(lows * DOMAIN)
    return np.stack((low, low + np.rint(shape.sizes(lows) * DOMAIN) + 1), axis=1).astype(np.int64)


def domain_of(dims: int) -> Box:
    return Box((0,) * dims, (DOMAIN + 1,) * dims)


def told_of(dims: int, spec: Spec) -> Told:
    sides = "\n".join(f'x{i} = {{kind = "int", low = 0, high = {DOMAIN}}}' for i in range(dims))
    return Told(parse(f'[space]\n{sides}\n[overlay]\nbrokers = ["hub"]').space, spec)


def named(boxes: Keys) -> list[tuple[Name, Boxes]]:
    return [(Name("hub", "bench", str(k)), (Box.of(box),)) for k, box in enumerate(boxes)]
