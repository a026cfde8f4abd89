"""Rules for federated tasks as they can be read off an observation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from agents.policy import Policy
from agents.rounds.choices import LARGE, RoundParameters, weigh
from envs.simulation import columns as col
from envs.simulation.snapshot import Observation

Bools = NDArray[np.bool_]


class RoundCost(Policy):
    """The expected cost alone: each epoch as late as is safe, two in a row on one instance."""

    name = "round_cost"

    def __init__(self, parameters: RoundParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else RoundParameters()

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions: the cheapest choices."""
        choices = weigh(observations, self.parameters)
        return np.asarray(choices.cost.argmin(1), np.int64)


class AlwaysOnOffers(Policy):
    """Every task keeps its instance; a missing one is rented on the cheapest offer of the market.

    Args:
        name: as tables show it.
        spot: whether spot offers are taken (on demand where none is there), or on-demand ones only.
    """

    def __init__(self, name: str, spot: bool) -> None:
        self.name = name
        self._spot = spot

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions."""
        return _placed(observations, self._spot)


class FedCostAwareRule(Policy):
    """Sinha 2025, Listing 1, at the moments and with the estimates of the environment.

    An idle client is released when waiting takes longer than a spin-up and a threshold; it is started when
    the round's end is no further away than a spin-up and a buffer. Nobody is released until a cold and a warm
    epoch have been seen. `agents.planners.fed_cost_aware` is the paper's scheduler with its own moments.

    Args:
        threshold_s: what releasing must save at least, beyond a spin-up.
        buffer_s: an instance is started so much earlier than its spin-up needs.
    """

    name = "fed_cost_aware"

    def __init__(self, threshold_s: float = 60.0, buffer_s: float = 30.0) -> None:
        self._threshold_s = threshold_s
        self._buffer_s = buffer_s

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions."""
        job = observations["jobs"][:, 0]
        launch_s = observations["clusters"][..., col.LAUNCH_S].max(1)
        left_s = job[:, col.ROUND_LEFT_S]
        waits = job[:, col.OWES] == 0
        long = left_s - launch_s > self._threshold_s
        early = left_s > launch_s + self._buffer_s
        idle = job[:, col.IDLE] > 0
        off = waits & (job[:, col.COLD_S] > 0) & np.where(idle, long, early)
        off |= job[:, col.EXECUTIONS] == 0
        actions = _placed(observations, True)
        none = observations["action_mask"].shape[1] - 1
        may_wait = observations["action_mask"][:, none] != 0
        return np.asarray(np.where(off & may_wait, none, actions), np.int64)


def _placed(observations: Observation, spot: bool) -> NDArray[np.int64]:
    """(n,) the own offer of a task that has one, else the cheapest valid one of the market, else none."""
    clusters, pairs = observations["clusters"], observations["pairs"][:, 0]
    n_offers = clusters.shape[1]
    valid = observations["action_mask"][:, : n_offers + 1] != 0
    here = (pairs[..., col.HERE] > 0) & valid[:, :n_offers]
    is_spot = clusters[..., col.IS_SPOT] > 0
    price = clusters[..., col.PRICE_USD_HOUR].astype(np.float64)
    # The other market only where it must be: nobody may stand still for a market that has nothing.
    cost = np.where(is_spot == spot, price, price + LARGE / 2)
    cost = np.where(here, -1.0, np.where(valid[:, :n_offers], cost, np.inf))
    best = cost.argmin(1)
    found = np.isfinite(cost[np.arange(len(cost)), best])
    return np.asarray(np.where(found, best, n_offers), np.int64)


ROUND_RULES: Mapping[str, Callable[[], Policy]] = {
    "round_cost": RoundCost,
    "fed_cost_aware": FedCostAwareRule,
    "always_spot": lambda: AlwaysOnOffers("always_spot", True),
    "always_on_demand": lambda: AlwaysOnOffers("always_on_demand", False),
}
"""Rules that only environments of federated applications know, in the order of tables."""

ROUND_RULE_SOURCES: Mapping[str, tuple[str, str]] = {
    "round_cost": ("Expected cost of rounds", "Spotweave: late starts, two epochs on one instance"),
    "fed_cost_aware": ("FedCostAware", "Sinha 2025, Listing 1"),
    "always_spot": ("Always on, spot", "Sinha 2025, Table I"),
    "always_on_demand": ("Always on, on demand", "Sinha 2025, Table I"),
}
"""Title and source of each."""
