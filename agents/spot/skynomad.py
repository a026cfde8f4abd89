"""SkyNomad, the published policy for a job on spot in several regions (Li et al., arXiv 2601.06520, NSDI'27).

Every option has a value per hour: that of the progress it brings, less its price. An hour of progress is
worth V = c_od * (work left / time left) / (all work / all time), at least the least spot price: what on
demand costs, times how far the job is behind its plan (the log-barrier form, the paper's default). Spot in a
zone brings progress for its expected remaining lifetime less the restart overhead of a start. The lifetime
follows from the spells seen there: a Nelson-Aalen estimate, all of whose hazards are multiplied by a factor
of at least 1 while interruptions come more densely than it expects. A running job changes only for more than
0.5 USD/h + 0.05 V.

Constants and details are those of the published artifact (andylizf/skynomad-artifact, `unified_cost_model`,
with the settings of its V100 experiment, Figure 9b). What this world does not have is left out: checkpoints
have no size, so moves have no price; the availability of every zone can be read, so every zone is probed in
every tick at no cost, and none is tried in vain.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import FloatArray, Observation

MARGIN_USD_HOUR = 0.5
MARGIN_SHARE = 0.05  # another option must beat the present one by this many USD/h plus this share of V
WINDOW_RISK = 8.0  # the window for the interruption rate, in expected interruptions
LEAST_HAZARD = 1e-8
HOUR_S = 3600.0


@dataclass
class ZoneHistory:
    """What was seen of one zone since the job began."""

    spells_h: list[float] = field(default_factory=list)  # lengths of the spells of spot that ended
    age_h: float | None = None  # length of the present one; None without spot
    # (expected interruptions, interruptions) of ticks, the latest last
    events: list[tuple[float, int]] = field(default_factory=list)

    def knots(self) -> list[tuple[float, float]]:
        """(hours, hazard) of the Nelson-Aalen estimate: d / n at each length at which d of n spells ended.

        The present spell counts among the n that reached its age.
        """
        age_h = -1.0 if self.age_h is None else self.age_h
        found: list[tuple[float, float]] = []
        lengths = sorted(self.spells_h)
        for k, length in enumerate(lengths):
            if k + 1 < len(lengths) and lengths[k + 1] == length:
                continue  # the last of equal lengths stands for all
            ended = k + 1 - bisect_left(lengths, length)
            found.append((length, ended / (len(lengths) - k - 1 + ended + (age_h + 1e-9 >= length))))
        return found

    def see(self, up: bool, tick_h: float) -> None:
        """Take in what a tick shows of a zone."""
        before_h = self.age_h
        if up:
            self.age_h = 0.0 if before_h is None else before_h + tick_h
            if before_h is not None:
                knots = self.knots()
                self._remember(_cumulated(knots, self.age_h) - _cumulated(knots, before_h), 0)
        elif before_h is not None:
            self.age_h = None
            self.spells_h.append(before_h + tick_h)
            self._remember(_tail(self.knots()) * tick_h, 1)

    def _remember(self, risk: float, interruptions: int) -> None:
        if risk <= 0.0:
            return
        self.events.append((risk, interruptions))
        total = sum(event[0] for event in self.events)
        while total - self.events[0][0] >= WINDOW_RISK:
            total -= self.events.pop(0)[0]

    def burst(self) -> float:
        """How many times as many interruptions as expected came in the densest latest ticks; at least 1.

        They span at most one expected interruption; before one was expected, the factor is 1.
        """
        if sum(risk for risk, _ in self.events) < 1.0:
            return 1.0
        densest, expected, came = 1.0, 0.0, 0
        for risk, interruptions in reversed(self.events):
            if expected > 0.0 and expected + risk > 1.0 + 1e-9:
                break
            expected += risk
            came += interruptions
            densest = max(densest, came / expected)
        return densest

    def lifetime_h(self, tick_h: float) -> float:
        """Expected hours until spot is interrupted, at the present age."""
        factor, knots = self.burst(), self.knots()
        hours, alive, now_h = 0.0, 1.0, self.age_h or 0.0
        for length_h, hazard in knots:
            if length_h > now_h:
                hours += alive * (length_h - now_h)
                alive *= math.exp(-factor * hazard)
                now_h = length_h
        return hours + alive * tick_h / -math.expm1(-factor * _tail(knots))


def _tail(knots: list[tuple[float, float]]) -> float:
    """Hazard beyond the last knot: the last one, in every tick."""
    return knots[-1][1] if knots else LEAST_HAZARD


def _cumulated(knots: list[tuple[float, float]], age_h: float) -> float:
    """Expected interruptions up to an age: hazards passed, and since then the last one per hour."""
    passed = [knot for knot in knots if knot[0] < age_h]
    since_h = age_h - (passed[-1][0] if passed else 0.0)
    return sum(hazard for _, hazard in passed) + _tail(knots) * since_h


def worth_usd_hour(
    on_demand_usd_hour: float,
    least_spot_usd_hour: float,
    done_s: float,
    work_s: float,
    age_s: float,
    deadline_s: float,
) -> float:
    """V, what an hour of progress is worth."""
    behind = (work_s - done_s) / (deadline_s - age_s) * deadline_s / work_s
    return max(on_demand_usd_hour * behind, least_spot_usd_hour)


class SkyNomadPolicy(Policy):
    """The option worth most per hour, every tick.

    Args:
        tick_s: length of a tick, seconds.
    """

    def __init__(self, tick_s: int) -> None:
        self.tick_h = tick_s / HOUR_S
        self.name = "SkyNomad"
        self._zones: dict[int, list[ZoneHistory]] = {}

    def begin(self, lane: int, seed: int) -> None:
        """Start an episode in a lane: forget its zones."""
        self._zones.pop(lane, None)

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions for observations with a leading axis of n."""
        rows = [
            self._decide(
                lane,
                observations["clusters"][row],
                observations["jobs"][row, 0],
                observations["pairs"][row, 0],
            )
            for row, lane in enumerate(lanes.tolist())
        ]
        return np.array(rows, np.int64)

    def _decide(self, lane: int, clusters: FloatArray, job: FloatArray, pairs: FloatArray) -> int:
        n_zones = len(clusters) - 1
        age_s, slack_s, work_s = (float(job[k]) for k in (col.AGE_S, col.SLACK_S, col.STANDARD_S))
        zones = self._zones.get(lane)
        if zones is None or age_s == 0.0:
            zones = self._zones[lane] = [ZoneHistory() for _ in range(n_zones)]
        up = clusters[:, col.AVAILABLE] > 0
        for zone, has_spot in zip(zones, up[:-1].tolist(), strict=True):
            zone.see(has_spot, self.tick_h)
        price = clusters[:, col.PRICE_USD_HOUR].astype(np.float64)
        done_s = work_s - float(job[col.DURATION_S])
        worth = worth_usd_hour(
            price[n_zones], float(price[:-1].min()), done_s, work_s, age_s, age_s + slack_s
        )
        running = np.flatnonzero(pairs[:, col.HERE])
        here = int(running[0]) if len(running) else n_zones + 1
        values = np.zeros(n_zones + 2)  # of each option per hour, none last
        values[n_zones] = worth - price[n_zones]
        for z, zone in enumerate(zones):
            values[z] = -math.inf
            lost_h = 0.0 if z == here else float(job[col.RESTART_S]) / HOUR_S
            hours = min(zone.lifetime_h(self.tick_h), slack_s / HOUR_S) if up[z] else 0.0
            if hours > lost_h:
                values[z] = worth * (hours - lost_h) / hours - price[z]
        needed = values[here] + (MARGIN_USD_HOUR + MARGIN_SHARE * worth if here <= n_zones else 0.0)
        values[here] = -math.inf
        best = int(values.argmax())
        # Without anything worth its price, what runs goes on.
        return best if values[best] > max(0.0, needed) else n_zones + 1
