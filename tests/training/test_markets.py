"""The published markets say of themselves what the recording and the draws say."""

from __future__ import annotations

import numpy as np
import pytest

from envs.market_data import market_data
from envs.simulation.streams import Streams
from envs.variety import Variety, vary
from training.markets import market_config

SEED = 20_240


@pytest.mark.parametrize("number", range(4))
def test_drawn_markets_are_what_their_seed_gives(number: int) -> None:
    drawn_only = Variety(share=1.0, every_offer=0.0, small_jobs=0.0, load=[1.0, 1.0])
    rng = Streams(np.random.SeedSequence(SEED, spawn_key=(number,))).generator("markets")
    assert market_config(f"drawn_{number}") == vary(market_config("default"), drawn_only, rng)


def test_outages_has_the_zones_that_were_down_longest_in_training() -> None:
    data = market_data(market_config("default").market)
    start, end = data.splits["train"]
    moments = np.arange(start, end, 300)
    up = {}
    for offer, series in zip(data.offers, data.availability, strict=True):
        if offer.market == "spot" and series is not None:
            rows = np.searchsorted(series.times_s, moments, side="right") - 1
            up[offer.name] = float((series.values[rows] > 0.5).mean())
    worst = sorted(up, key=lambda name: up[name])[:3]
    spot = [name for name in market_config("outages").market.offers if name.endswith("/spot")]
    assert sorted(worst) == sorted(spot)
    assert max(up[name] for name in worst) < 0.43
