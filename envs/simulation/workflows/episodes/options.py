"""What a question may be answered: the places that may take a step, and whether it may wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.workflows.episodes.case import HOUR_S, Case
from spotweave.envs.simulation.workflows.model import WorkflowError

# When spot capacity may still be tried: the time that on-demand instances need for what is left.
#
# On-demand instances are not limited here, so that each step can have a new one. What a step needs at most
# is a launch, its files from another region and the longest run; spot is tried only where all of that, and
# what comes after it, fits behind the moment at which it would be lost latest. From a start that leaves so
# much time, no sequence of allowed answers misses the deadline. The idea is HADS' (Teylo 2021, section
# 6.2.5).


class Reserve:
    """What on demand needs at most.

    Args:
        case: the episode.

    Raises:
        WorkflowError: for a step that only spot offers may run.

    Attributes:
        need_s: [N] from the moment a step is ready until it has ended.
        tail_s: [N] from a step's end until all that waits for it has ended.
    """

    def __init__(self, case: Case) -> None:
        conditions = case.conditions
        longest = 1 + conditions.runtime_error
        # Wherever the steps before it ran; given files lie in their regions from the start.
        near = case.given_s[:, case.region] == 0.0
        taken_s = conditions.latency_s + case.gb / conditions.gb_s
        moving_s = [np.where(near[k], 0.0, taken_s[k, None]).max(0, initial=0.0) for k in case.reads]
        whole_s = case.launch_s + np.stack(moving_s) + case.problem.run_s * longest
        rented_s = np.where(case.spot | case.owned, np.inf, whole_s).min(1)
        owned_s = np.where(case.owned, whole_s, np.inf).min(1)
        # Where private data keep a step on an owned cluster, its wait for an executor is not covered.
        self.need_s: Floats = np.where(np.isfinite(rented_s), rented_s, owned_s)
        if not np.isfinite(self.need_s).all():
            name = case.workflow.steps[int(np.argmax(self.need_s))].name
            raise WorkflowError(
                f"step {name!r} may run on spot offers only: expected an owned cluster or on demand too"
            )
        self.tail_s: Floats = np.zeros(len(self.need_s))
        for step in case.problem.topological[::-1]:
            following = case.after[step]
            self.tail_s[step] = max((self.need_s[one] + self.tail_s[one] for one in following), default=0.0)

    @property
    def least_s(self) -> float:
        """The earliest deadline that is certainly kept."""
        return float((self.need_s + self.tail_s).max())


def on_demand_s(case: Case) -> float:
    """How long the workflow takes if no step waits for an instance, on demand, launched once, files near.

    HEFT on an unlimited number of on-demand instances comes close to it.
    """
    rented = np.where(case.spot | case.owned, np.inf, case.problem.run_s).min(1)
    run_s = np.where(np.isfinite(rented), rented, case.problem.run_s.min(1))
    rank = run_s.copy()
    for step in case.problem.topological[::-1]:
        rank[step] += max((rank[one] for one in case.after[step]), default=0.0)
    launch_s = case.launch_s[~case.spot & ~case.owned].min(initial=np.inf)
    return float(rank.max()) + (float(launch_s) if np.isfinite(launch_s) else 0.0)


def on_demand_usd(case: Case) -> float:
    """What the work costs on demand where that is cheapest, without launches; private data left out."""
    offers = [c for c, offer in enumerate(case.offers) if offer.market == "on_demand"]
    usd_s = [case.quotes[c].price_usd_hour(0.0) / case.speed[c] for c in offers]
    standard_s = (case.problem.run_s * case.speed).min(1)
    return float(standard_s.sum() * min(usd_s) / HOUR_S)


# Where the files of a workflow lie, and what moving them takes.


class Files:
    """The copies of all files. Each region has one store, which its instances and owned clusters share.

    Args:
        case: the episode.

    Attributes:
        there_s: [F, R] when a copy is there; infinite where none is or comes.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self.there_s = case.given_s.copy()

    def moved(self, step: int, now_s: float) -> tuple[Floats, Floats]:
        """([R] seconds until all that a step reads is in a region, [R] USD for moving it there)."""
        case, numbers = self._case, self._case.reads[step]
        if not len(numbers):
            return np.zeros(len(case.regions)), np.zeros(len(case.regions))
        arrives_s, usd = self._arrivals(numbers, now_s)
        return arrives_s.max(0) - now_s, usd.sum(0)

    def move(self, step: int, region: int, now_s: float) -> None:
        """Begin to copy what a step reads to a region; the copies stay."""
        numbers = self._case.reads[step]
        if len(numbers):
            arrives_s, _ = self._arrivals(numbers, now_s)
            self.there_s[numbers, region] = arrives_s[:, region]

    def write(self, step: int, region: int, now_s: float) -> None:
        """What a step writes is in its region when it ends."""
        self.there_s[self._case.writes[step], region] = now_s

    def _arrivals(self, numbers: Ints, now_s: float) -> tuple[Floats, Floats]:
        """([n, R] when each file is in a region, [n, R] USD): from the copy there, else the cheapest one."""
        case = self._case
        there_s = np.maximum(self.there_s[numbers], now_s)
        moving_s = case.conditions.latency_s + case.gb[numbers] / case.conditions.gb_s
        present = np.isfinite(there_s)
        arrives_s = np.where(present, there_s, (there_s.min(1) + moving_s)[:, None])
        sources = np.where(present[:, :, None], case.egress_usd_gb[None], np.inf).min(1)
        return arrives_s, sources * case.gb[numbers][:, None]


TOLERANCE_S = 1e-6


@dataclass(frozen=True)
class Options:
    """What is true of a step at the C places now."""

    valid: Bools  # [C] whether it may be put there
    none: bool  # whether it may wait
    launch_s: Floats  # [C] until an instance is ready: 0 where one is idle
    files_s: Floats  # [C] until its files are there
    egress_usd: Floats  # [C] for moving them


def options_of(
    case: Case, reserve: Reserve, files: Files, step: int, now_s: float, idle: Ints, rentable: Bools
) -> Options:
    """The answers that keep the deadline whatever is interrupted; if there are none, those without spot.

    Args:
        case: the episode.
        reserve: what on demand needs.
        files: where they lie.
        step: asked about.
        now_s: seconds after the start.
        idle: [C] idle instances.
        rentable: [C] whether a new instance may be rented.
    """
    launch_s = np.where(idle > 0, 0.0, case.launch_s)
    files_s, egress_usd = files.moved(step, now_s)
    files_s, egress_usd = files_s[case.region], egress_usd[case.region]
    there = case.may[step] & ((idle > 0) | rentable)
    longest_s = case.problem.run_s[step] * (1 + case.conditions.runtime_error)
    ends_s = now_s + np.maximum(launch_s, files_s) + longest_s
    ends_s = ends_s + reserve.tail_s[step] + np.where(case.spot, reserve.need_s[step], 0.0)
    valid = there & (ends_s <= case.deadline_s + TOLERANCE_S)
    none = may_wait(case, reserve, step, now_s)
    if not none and not valid.any():
        valid = there & ~case.spot
        none = not valid.any()
    return Options(valid, none, launch_s, files_s, egress_usd)


def may_wait(case: Case, reserve: Reserve, step: int, now_s: float) -> bool:
    """Whether on demand still suffices when the step is asked about again."""
    needed_s = reserve.need_s[step] + reserve.tail_s[step]
    return bool(now_s + case.conditions.asks_again_s + needed_s <= case.deadline_s + TOLERANCE_S)
