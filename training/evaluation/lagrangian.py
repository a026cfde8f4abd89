"""What no policy can pass in an episode of a market: a lower bound on its cost by Lagrangian relaxation.

What ties jobs together is the room on the offers. Each job alone could be played best by dynamic programming,
so the quotas are relaxed: for prices of an executor-hour per offer and hour, every job pays the price of the
room that it takes, besides its own cost, and the quota's worth of all prices is given back. For prices >= 0,

    sum over jobs of (least cost at these prices) - sum over offers and hours of price * quota

is at most the cost of every policy that brings all jobs to their end (weak duality; Everett 1963, Fisher
1981). The prices are improved by steps along a subgradient: the room that the cheapest plans take beyond the
quota.

Jobs know the recorded future: when each offer is available and what it costs. Whatever is simplified only
makes plans cheaper:

- launches never fail and take the least time that they can, and a job may ask for instances at any moment;
- nothing that was computed is ever lost, and saving it takes no time (but the checkpoints of a job that stays
  on one offer to its end do); no checkpoint is read or moved, input data are;
- the 60 s that are billed at least, room kept in two places while a job moves and room taken by launches that
  come to nothing are left out;
- within a step of time (`job_plans.STEP_S`) the least price holds, and what is rounded is rounded for the
  job: see `one_shot_plans` and `stream_plans`;
- hours after the last price are free of it.

Instances that AWS takes within their first hour are free, as in the world. That is why the bound lies far
below any plan that was found: with foresight a job may go from one such hour to the next.

An episode cut off by `max_decisions` or `max_s` is not bounded: what did not run was not paid for either.
Federated applications, hibernation and jobs that move more often than every `STEP_S` are not covered.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from envs.simulation.market import columns as at
from envs.simulation.market.episodes import EpisodeData
from envs.simulation.market.source import draw_episode
from envs.simulation.market.state import CHARGES_PER_USD
from envs.simulation.market.world import MarketWorld
from envs.simulation.snapshot import Category
from envs.simulation.world import EpisodeKey
from training.evaluation.job_plans import STEP_S, Floats, Ints, Job, Steps
from training.evaluation.one_shot_plans import plan_one_shot
from training.evaluation.stream_plans import plan_stream

ROUNDS = 30
NEVER = 1 << 60
PRICED_AFTER_S = 48 * 3600
"""Room has a price until this long after the last arrival."""
PARTS_A_STEP = 10
MOST_PARTS = 600


def is_covered(world: MarketWorld) -> bool:
    """Whether a market has a bound: no federated applications, no hibernation, and few moves."""
    often = 0 < world.rules.reconsider_interval_s < STEP_S
    return not (often or world.rules.federated or world.offers.fixed[:, at.HIBERNATES].any())


def lagrangian_bound(world: MarketWorld, key: EpisodeKey, target_usd: float, rounds: int = ROUNDS) -> float:
    """A lower bound on the cost `cost_usd_eq` of an episode, in USD.

    Args:
        world: where it is played.
        key: the episode.
        target_usd: what some policy paid in it: how far steps of the prices reach.
        rounds: how often the prices are improved.

    Raises:
        ValueError: for a market that is not covered (see `is_covered`).
    """
    relaxed = RelaxedEpisode(world, draw_episode(world.config, world.data, key))
    return max(relaxed.improve(target_usd, rounds))


class RelaxedEpisode:
    """An episode whose quotas may be passed at a price.

    Args:
        world: where it is played.
        episode: what happens in it.

    Attributes:
        quota: (C,) executors.
        hours: H, hours with prices.

    Raises:
        ValueError: for a market that is not covered (see `is_covered`).
    """

    def __init__(self, world: MarketWorld, episode: EpisodeData) -> None:
        if not is_covered(world):
            raise ValueError(
                "a market with federated applications, hibernation or moves more often than every "
                f"{STEP_S} s has no Lagrangian bound"
            )
        self.quota = world.offers.fixed[:, at.QUOTA].astype(np.float64)
        self.hours = int(episode.jobs.arrival_s[-1] + PRICED_AFTER_S) // 3600
        self._steps = tabulate(episode, world.config.market.max_s)
        self._jobs = [read_job(world, episode, job) for job in range(len(episode.jobs.arrival_s))]

    def value(self, prices: Floats) -> tuple[float, Floats]:
        """The bound at some prices, and the subgradient there.

        Args:
            prices: (C, H) USD per executor-hour, >= 0.

        Returns:
            USD, and (C, H) executor-hours that the cheapest plans take beyond the quota.
        """
        rates = np.zeros_like(self._steps.price)
        within = np.repeat(prices / 3600.0, 3600 // STEP_S, axis=1)[:, : rates.shape[1]]
        rates[:, : within.shape[1]] = within
        steps = self._steps._replace(toll=rates, toll_sum=integral(rates))
        room = np.zeros_like(prices)
        total = 0.0
        for job in self._jobs:
            total += plan_stream(steps, job, room) if job.batches > 0 else plan_one_shot(steps, job, room)
        return total - float((prices * self.quota[:, None]).sum()), room - self.quota[:, None]

    def improve(self, target_usd: float, rounds: int) -> Iterator[float]:
        """The bounds at prices that begin at 0 and follow the subgradient by Polyak's steps."""
        prices = np.zeros((len(self.quota), self.hours))
        best, reach, failed = -np.inf, 1.0, 0
        for _ in range(rounds):
            bound, excess = self.value(prices)
            yield bound
            if bound > best:
                best, failed = bound, 0
            else:
                failed += 1
                if failed == 3:
                    reach, failed = reach / 2.0, 0
            way = np.where((prices > 0.0) | (excess > 0.0), excess, 0.0)
            length = float((way**2).sum())
            if length == 0.0 or bound >= target_usd:
                return
            prices = np.maximum(0.0, prices + reach * (target_usd - bound) / length * way)


def integral(rates: Floats) -> Floats:
    """(C, K + 1) rate times seconds before each step."""
    sums = np.zeros((rates.shape[0], rates.shape[1] + 1))
    np.cumsum(rates * STEP_S, axis=1, out=sums[:, 1:])
    return sums


def tabulate(episode: EpisodeData, max_s: int) -> Steps:
    """Prices and availability of an episode in steps of time, without tolls."""
    n_offers, n_steps = len(episode.availability), -(-max_s // STEP_S)
    begins = np.arange(n_steps, dtype=np.int64) * STEP_S
    price = np.zeros((n_offers, n_steps))
    spells: list[list[tuple[int, int]]] = []
    for c, (available, costs) in enumerate(zip(episode.availability, episode.price_usd_hour, strict=True)):
        usd = np.rint(costs.values * 1e6) / 1e6 / 3600.0
        price[c] = usd[np.maximum(0, np.searchsorted(costs.times_s, begins, side="right") - 1)]
        later = (costs.times_s > 0) & (costs.times_s < n_steps * STEP_S)
        np.minimum.at(price[c], costs.times_s[later] // STEP_S, usd[later])
        edges = [*available.times_s.tolist(), n_steps * STEP_S]
        found: list[tuple[int, int]] = []
        for start, end, state in zip(edges[:-1], edges[1:], available.values.tolist(), strict=True):
            start, end = max(0, start), min(end, n_steps * STEP_S)
            if state <= 0.5 or start >= end:
                continue
            if found and found[-1][1] == start:
                start = found.pop()[0]
            found.append((start, end))
        spells.append(found)
    most = max(1, max(len(found) for found in spells))
    spell_from, spell_to = np.zeros((n_offers, most), np.int64), np.zeros((n_offers, most), np.int64)
    for c, found in enumerate(spells):
        for p, (start, end) in enumerate(found):
            spell_from[c, p], spell_to[c, p] = start, end
    counts = np.array([len(found) for found in spells], np.int64)
    nothing = np.zeros_like(price)
    return Steps(price, integral(price), nothing, integral(nothing), counts, spell_from, spell_to)


def read_job(world: MarketWorld, episode: EpisodeData, number: int) -> Job:
    """What a plan of one job depends on."""
    jobs, offers, rules = episode.jobs, world.offers, world.rules
    category, executors = jobs.category[number], int(jobs.executors[number])
    streaming, arrival = category == Category.STREAMING, int(jobs.arrival_s[number])
    home, regions = int(jobs.home[number]), offers.fixed[:, at.REGION]
    data = float(jobs.data_gb[number])
    execution = np.maximum(1, jobs.execution_s[number]).astype(np.int64)
    interval, dump = int(jobs.interval_s[number]), int(jobs.dump_s[number])
    wall = execution + (dump * ((execution - 1) // interval) if interval > 0 else 0)
    allowance = int(jobs.allowance_s[number])
    egress = np.floor(data * offers.egress_charge_gb[home, regions] + 0.5) / CHARGES_PER_USD
    return Job(
        arrival_s=arrival,
        executors=executors,
        standard_s=int(jobs.standard_s[number]),
        deadline_s=arrival + allowance if category == Category.TIME_CRITICAL else NEVER,
        miss_usd=rules.batch_miss_usd if streaming else rules.miss_usd,
        delay_usd_s=rules.delay_usd_hour / 3600.0,
        batches=int(jobs.executions[number]) if streaming else 0,
        period_s=int(jobs.period_s[number]),
        allowance_s=allowance,
        parts=best_parts(execution, 4 if streaming else MOST_PARTS // 2),
        usable=offers.fixed[:, at.QUOTA] >= executors,
        execution_s=execution,
        wall_s=wall.astype(np.int64),
        launch_s=np.ceil(0.5 * offers.fixed[:, at.LAUNCH_S]).astype(np.int64),
        set_up_s=(rules.restart_s + np.ceil(data * offers.seconds_per_gb[home, regions])).astype(np.int64),
        egress_usd=egress,
        free_first_s=offers.fixed[:, at.FREE_FIRST_S].astype(np.int64),
    )


def best_parts(execution_s: Ints, most: int) -> int:
    """Into how many parts progress is divided, so that rounding a step's progress up gives little away."""
    least = min(most, max(4, int(PARTS_A_STEP * execution_s.max() // STEP_S)))
    tried = np.arange(least, 2 * least + 1)
    exact = tried[:, None] * STEP_S / execution_s[None, :]
    given_away = (np.ceil(exact - 1e-9) / exact).max(axis=1)
    return int(tried[np.argmin(given_away)])
