"""What each choice about one federated task would cost, and the times behind it.

A client may start each epoch at any time between the beginning of its round and the latest start with which
it still delivers in time. A client that trains at the end of one round and at the beginning of the next needs
one instance, one spin-up and one cold epoch for both. So of the two states that a client can be in when a
round begins, "on" is worth half of what starting an instance costs more than "off"; and an idle instance is
worth keeping for just that long. (Off, late epoch, on, early epoch, off: two rounds, one start.)
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from envs.simulation import columns as col
from envs.simulation.snapshot import Observation

Floats = NDArray[np.float64]
LARGE = 1e6


@dataclass(frozen=True)
class RoundParameters:
    """How the expected cost weighs what is uncertain.

    Attributes:
        buffer_s: a start is due so much before the latest one in time,
        buffer_errors: and so many times the error that expected times had lately,
        buffer_launch: or, before any was seen, this share of the launch.
        delay_price: USD that a second's delay of the round costs, for each USD that all instances of the
            application cost in a second.
        keep_share: share of what a start costs that an idle instance may cost before it is released.
        hazard: weight of the expected cost of an interruption.
    """

    buffer_s: float = 5.0
    buffer_errors: float = 1.0
    buffer_launch: float = 0.2
    delay_price: float = 2.0
    keep_share: float = 0.5
    hazard: float = 0.5

    def changed(self, values: dict[str, float]) -> RoundParameters:
        """With some values replaced.

        Raises:
            ValueError: for a name that is not a parameter.
        """
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in values:
            if name not in known:
                raise ValueError(f"unknown parameter {name!r}: expected one of {', '.join(known)}")
        return RoundParameters(**{**known, **values})


@dataclass(frozen=True)
class Choices:
    """n decisions about one task each; C offers, then "none for now". Seconds and USD.

    Attributes:
        valid: (n, C + 1).
        cost: (n, C + 1) expected USD of each choice; LARGE where it is not valid.
        unit: (n,) what a start on the offer that suits best costs: the measure of all costs.
        begin_s: (n, C) from now until the next epoch would begin there.
        finish_s: (n, C) until it would end.
        early_s: (n, C) how long before it is needed.
        late_s: (n, C) how long after.
        slack_s: (n,) from now until the latest start in time, on the offer that would then be the cheapest.
        start_s: (n, C) launch and cold extra.
    """

    valid: NDArray[np.bool_]
    cost: Floats
    unit: Floats
    begin_s: Floats
    finish_s: Floats
    early_s: Floats
    late_s: Floats
    slack_s: Floats
    start_s: Floats


def weigh(observations: Observation, parameters: RoundParameters) -> Choices:
    """The choices of the first job of each observation (leading axis n)."""
    clusters = observations["clusters"].astype(np.float64)
    job = observations["jobs"][:, 0].astype(np.float64)
    pair = observations["pairs"][:, 0].astype(np.float64)
    n, n_offers = clusters.shape[:2]
    valid = observations["action_mask"][:, : n_offers + 1] != 0
    rentable = pair[..., col.REQUEST] <= clusters[..., col.CAPACITY_MAX]
    price = clusters[..., col.PRICE_USD_HOUR] / 3600
    here = pair[..., col.HERE] > 0
    launch = np.where(here, 0.0, clusters[..., col.LAUNCH_S] + pair[..., col.TRANSFER_S])
    start_s = clusters[..., col.LAUNCH_S] + pair[..., col.TRANSFER_S] + job[:, col.COLD_S, None]
    execution = pair[..., col.EXECUTION_S]
    left, whole = job[:, col.ROUND_LEFT_S], job[:, col.ROUND_S]
    owes = job[:, col.OWES] > 0
    opens = np.where(owes, 0.0, left)
    needed = left + np.where(owes, 0.0, whole)
    begin = np.maximum(launch, opens[:, None])
    finish = begin + execution
    early = np.maximum(0.0, needed[:, None] - finish)
    late = np.maximum(0.0, finish - needed[:, None])
    best_price = np.where(rentable, price, np.inf).min(1)
    best_price = np.where(np.isfinite(best_price), best_price, 0.0)
    delay_usd_s = parameters.delay_price * (job[:, col.OTHERS_USD_HOUR] / 3600 + best_price)
    begin_usd = price * start_s
    keep_usd = parameters.keep_share * np.where(rentable, begin_usd, np.inf).min(1)
    keep_usd = np.where(np.isfinite(keep_usd), keep_usd, 0.0)
    rate = _interruptions_per_s(clusters)
    # An interruption costs a start, and the round as much time as no early start made up for.
    lost_s = start_s + 0.5 * execution
    loss_usd = begin_usd + delay_usd_s[:, None] * np.maximum(0.0, lost_s - early)
    risk_usd = parameters.hazard * rate * finish * loss_usd
    after_usd = np.minimum(price * early, keep_usd[:, None])
    messages_usd = pair[..., col.EGRESS_USD]
    placed = price * finish + after_usd + delay_usd_s[:, None] * late + risk_usd + messages_usd
    # Later: started on the offer that is then the cheapest, at the latest time.
    again_s = clusters[..., col.LAUNCH_S] + pair[..., col.TRANSFER_S]
    fresh_s = np.where(here, execution + job[:, col.COLD_S, None], execution)
    # A late start makes up for nothing.
    later_loss_usd = begin_usd + delay_usd_s[:, None] * lost_s
    later_risk = parameters.hazard * rate * (again_s + fresh_s) * later_loss_usd
    later = np.where(rentable, price * (again_s + fresh_s) + later_risk + messages_usd, np.inf)
    # Where a start takes long against a round, a place is for many rounds.
    rounds_after = np.maximum(0.0, job[:, col.EXECUTIONS] - 1) * start_s.min(1) / (start_s.min(1) + whole + 1)
    excess_s = np.maximum(0.0, execution - np.maximum(whole, left)[:, None])
    future = rounds_after[:, None] * (price * execution + delay_usd_s[:, None] * excess_s + messages_usd)
    placed, later = placed + future, later + future
    best = later.argmin(1)
    rows = np.arange(n)
    again, fresh = again_s[rows, best], fresh_s[rows, best]
    slack = np.maximum(needed - fresh, opens) - again
    unavoidable_s = np.maximum(0.0, opens + fresh - needed)
    error_s = job[:, col.TIME_ERROR_S]
    unseen_s = parameters.buffer_launch * again
    buffer = parameters.buffer_s + np.where(error_s > 0, parameters.buffer_errors * error_s, unseen_s)
    waiting = np.where(np.isfinite(later[rows, best]), later[rows, best], 0.0)
    waiting = waiting + delay_usd_s * (np.maximum(0.0, buffer - slack) + unavoidable_s)
    serves = job[:, col.IS_SERVER] > 0
    lasts = job[:, col.DURATION_S, None]
    lost_usd = delay_usd_s[:, None] * (again_s + 0.5 * whole[:, None])
    serving = (
        (price + parameters.hazard * rate * lost_usd) * (launch + lasts)
        + delay_usd_s[:, None] * launch
        + messages_usd
    )
    placed = np.where(serves[:, None], serving, placed)
    # Nothing goes on without a server.
    waiting = np.where(serves, LARGE / 2, waiting)
    over = job[:, col.EXECUTIONS] <= 0
    waiting = np.where(over, 0.0, waiting)
    cost = np.where(valid, np.concatenate([placed, waiting[:, None]], 1), LARGE)
    unit = np.maximum(1e-9, np.where(rentable, begin_usd, np.inf).min(1))
    unit = np.where(np.isfinite(unit), unit, 1.0)
    return Choices(valid, cost, unit, begin, finish, early, late, slack, start_s)


def _interruptions_per_s(clusters: Floats) -> Floats:
    """(n, C) expected interruptions per second, from the mean length of the spells seen; 0 on demand."""
    mean_s = clusters[..., col.MEAN_UP_S]
    spot = clusters[..., col.IS_SPOT] > 0
    return np.where(spot & (mean_s > 0), 1 / np.maximum(mean_s, 60.0), 0.0)
