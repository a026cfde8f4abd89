"""The values of one row of the window: what a request for a decision needs."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from agents.rules.appraisal import appraise
from agents.weighed_policy import WeighedPolicy
from deploy.scheduler.decide.decider import Decider
from deploy.scheduler.decide.policies import load_market_policy
from deploy.scheduler.snapshot.occupancy import Occupancy
from deploy.scheduler.snapshot.writer import snapshot_of
from envs.simulation.snapshot import Observation, encode
from tests.deploy.scheduler.cases import need, offer

OFFERS = [offer("spot", price_usd_hour=0.2), offer("sure", "on_demand"), offer("down", available=False)]
NEEDS = [
    need("first"),
    need("second", kind="deadline", slack_s=900.0),
    need("third", kind="deadline", slack_s=5000.0, running=True, here="spot", left_here_s=300.0),
]


@pytest.mark.parametrize("name", ["multicloud", "cheapest"])
def test_the_values_shown_are_those_of_the_whole_window(name: str) -> None:
    """Only the decided task's row is computed for showing: it must not depend on the others."""
    loaded = load_market_policy(name, len(OFFERS))
    decider = Decider(loaded.policy, window=8, components=loaded.components)
    snapshot = snapshot_of(OFFERS, NEEDS, {"spot": 1}, Occupancy())
    decision = decider.decide(snapshot, NEEDS, OFFERS)
    assert decision is not None
    row = NEEDS.index(decision.need)
    window = {key: np.asarray(array)[None] for key, array in encode(snapshot, 8).items()}
    batch = cast(Observation, window)
    usd = appraise(batch, len(NEEDS)).usd[0, row]
    places = [*(one.offer_id for one in OFFERS), None]
    for candidate in decision.candidates:
        place = places.index(candidate.offer_id)
        assert candidate.expected_usd == pytest.approx(usd[place], rel=1e-5, abs=1e-6)
        if isinstance(loaded.policy, WeighedPolicy):
            shown = [candidate.values.get(one, np.nan) for one in loaded.components]
            expected = loaded.policy.value_table(batch)[0, row, place]
            assert shown == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)
