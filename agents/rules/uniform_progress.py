"""Uniform Progress per job: Wu et al., "Can't Be Late" (NSDI'24), the single-zone policy.

It is applied to each job, with the cheapest available spot offer standing for "the zone". Its rules, with
expected progress ep(t) = t / (time from arrival to the deadline), actual progress cp(t), time left R(t), work
left C(t) and changeover delay d:

- thrifty: nothing runs once the work is done (here the job leaves the system);
- safety net: when R(t) < C(t) + 2d, on demand until the end;
- exploitation: a job on spot stays there until it is interrupted;
- taking risks: an idle job takes spot capacity whenever there is some;
- uniform progress: an idle job that is behind, cp(t) < ep(t), goes on demand if there is none;
- hysteresis: a job on demand stays there until cp(t) >= ep(t + 2d).

Here an interruption also loses the work since the last checkpoint, so the safety net is earlier by a
checkpoint interval; jobs beyond saving are not sent on demand; and spot that is dearer than on demand, egress
included, is not taken.

Streaming jobs have a deadline per batch and no overall progress: they count as behind while batches are due
and not finished, and the safety net holds for them only while there is no spot offer. Jobs without a deadline
are never behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from spotweave.agents.rules.choice import NO_ACTION, flat_action, is_valid, stays, urgent_job
from spotweave.agents.rules.offers import (
    OPPORTUNISTIC,
    SAFE,
    any_offer,
    changeover_s,
    cheapest_offer,
    is_pressed,
    no_dearer,
    place_of,
)
from spotweave.agents.rules.registry import MARKET, Rule, RuleParameters, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import Category, ObservationArrays


@dataclass(frozen=True)
class UniformProgressParameters(RuleParameters):
    """Constants of the paper."""

    # changeover delays kept in hand by the safety net and the hysteresis (2 in the paper)
    changeovers: float = 2.0


@inner
def is_behind(obs: ObservationArrays, job: int, ahead_s: float) -> bool:
    """Whether cp(t) < ep(t + ahead_s)."""
    if obs.jobs[job, col.HAS_DEADLINE] == 0.0:
        return False
    if obs.jobs[job, col.CATEGORY] == Category.STREAMING.value:
        return bool(obs.jobs[job, col.BACKLOG] > 0.0)
    total = obs.jobs[job, col.AGE_S] + obs.jobs[job, col.SLACK_S]
    if total <= 0.0:
        return True
    return bool(obs.jobs[job, col.PROGRESS] < (obs.jobs[job, col.AGE_S] + ahead_s) / total)


@inner
def choose(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
    """The most urgent job, by the rules above; "none" leaves it waiting or where it runs."""
    job = urgent_job(obs)
    if job < 0:
        return NO_ACTION
    safe = cheapest_offer(obs, job, SAFE)
    spot = cheapest_offer(obs, job, OPPORTUNISTIC)
    if stays(obs, job):
        here = place_of(obs, job)
        if here < 0 or spot < 0:
            return flat_action(obs, job, -1)
        if obs.clusters[here, col.IS_SPOT] != 0.0 or obs.clusters[here, col.PROVIDER] == 0.0:
            return flat_action(obs, job, -1)
        keep_s = parameters[0] * changeover_s(obs, job, spot)
        saves = obs.pairs[job, spot, col.COST_USD] < obs.pairs[job, here, col.COST_USD]
        tight = is_pressed(obs, job, spot, -1, parameters[0])
        move = saves and not tight and not is_behind(obs, job, keep_s)
        return flat_action(obs, job, spot if move else -1)
    offer = no_dearer(obs, job, spot, safe)
    pressed = is_pressed(obs, job, safe, spot, parameters[0])
    if pressed or (spot < 0 and is_behind(obs, job, 0.0)):
        offer = safe
    if offer < 0 and not is_valid(obs, job, -1):
        offer = any_offer(obs, job)
    return flat_action(obs, job, offer)


register(
    Rule(
        "uniform_progress",
        "Uniform Progress",
        choose,
        "Can't Be Late (NSDI'24): single-zone policy, per job",
        UniformProgressParameters(),
        worlds=MARKET,
    )
)
