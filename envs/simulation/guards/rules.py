"""How strict the guards are, and what they must know that a snapshot does not show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation.world import WorldError


class GuardRules(NamedTuple):
    """`GuardsConfig` for compiled code. Flags are 0 or 1."""

    safety_net: int
    gain_test: int
    margin_s: float
    margin_share: float
    spot_risk: float
    move_margin: float
    hint_risk: float
    price_memory_s: float


@dataclass
class GuardsConfig:
    """Which guards are on and how strict they are.

    Attributes:
        safety_net: whether a deadline that on-demand or owned capacity could still meet is met.
        gain_test: whether a move of a running task must pay for itself.
        margin_s: the net acts this many seconds before the latest start,
        margin_share: and this share of launch, set-up and work earlier.
        spot_risk: a task that runs on spot capacity is left there past that start while the chance that it
            is interrupted before it ends is at most this; 0 moves every one of them in time.
        move_margin: what a move gains must exceed its cost by this share of it.
        hint_risk: share of a move's cost that counts as due anyway once the provider advises to leave.
        price_memory_s: a price counts as far as its mean over this time confirms it.
    """

    safety_net: bool = True
    gain_test: bool = True
    margin_s: float = 60.0
    margin_share: float = 0.1
    spot_risk: float = 0.1
    move_margin: float = 0.2
    hint_risk: float = 0.5
    price_memory_s: float = 6 * 3600.0

    def validate(self) -> None:
        """Check every parameter.

        Raises:
            WorldError: one line naming the parameter, its value and what is expected.
        """
        for name in ("margin_s", "margin_share", "spot_risk", "move_margin", "hint_risk", "price_memory_s"):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise WorldError(f"guards.{name} is {value}: expected a number >= 0")

    def rules(self) -> GuardRules:
        """For compiled code."""
        return GuardRules(
            int(self.safety_net),
            int(self.gain_test),
            float(self.margin_s),
            float(self.margin_share),
            float(self.spot_risk),
            float(self.move_margin),
            float(self.hint_risk),
            float(self.price_memory_s),
        )


class Facts(NamedTuple):
    """What guards must know about one task beyond its rows in the snapshot.

    Attributes:
        mean_usd_hour: (C,) mean price of an executor over the latest `price_memory_s`.
        minimum_s: (C,) seconds that an instance is billed for at least.
        start_usd: (C,) the least that a start there costs.
        left_usd: what budgets outside the snapshot still pay; infinite without one.
        unsaved: of a running task: share of its execution that a move would lose.
        minimum_left_s: of a running task: seconds of its instances' billing minimum that are still to come.
        hinted: 1.0 if the provider advises to leave, or has announced the end of some of its instances.
    """

    mean_usd_hour: NDArray[np.float64]
    minimum_s: NDArray[np.float64]
    start_usd: NDArray[np.float64]
    left_usd: float
    unsaved: float
    minimum_left_s: float
    hinted: float


@njit(cache=True)
def no_facts(n_clusters: int) -> Facts:
    """Facts of a task that does not run, without a budget."""
    return Facts(np.zeros(n_clusters), np.zeros(n_clusters), np.zeros(n_clusters), np.inf, 0.0, 0.0, 0.0)
