"""A workflow to be carried out: its case, and what a question about one of its steps may be answered."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from spotweave.envs.simulation.market.config import OfferConfig
from spotweave.envs.simulation.series import Bools, Floats, Ints, StepSeries
from spotweave.envs.simulation.snapshot import REFERENCE_HETERO
from spotweave.envs.simulation.workflows.model import Workflow, WorkflowError
from spotweave.envs.simulation.workflows.problem import Problem, writers
from spotweave.envs.simulation.world import EpisodeKey

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


# One workflow to be carried out, with all that is given, and where such cases come from.


# What an offer costs and when it can be rented in one episode.

HOUR_S = 3600.0
DAY_S = 86_400.0
WEEK_S = 7 * DAY_S


class Habits(NamedTuple):
    """What is known of an offer's availability at a moment (columns of `clusters` in an observation)."""

    up_ratio: float  # share of the latest 24 h in which it was available
    spell_s: float  # since availability last changed
    mean_up_s: float  # mean of the parts of its up-spells within the latest 7 days; 0 without any


class Quotes:
    """Price and availability of one offer; 0 is the episode's start.

    Args:
        price_usd_hour: of an instance.
        availability: 1.0 where an instance could be rented; its history begins at its first time.

    Attributes:
        prices: as given.
    """

    def __init__(self, price_usd_hour: StepSeries, availability: StepSeries) -> None:
        self.prices, self._availability = price_usd_hour, availability
        self._price_times: list[float] = price_usd_hour.times_s.tolist()
        self._prices: list[float] = price_usd_hour.values.tolist()
        spans = np.diff(price_usd_hour.times_s) * price_usd_hour.values[:-1] / HOUR_S
        self._spent: list[float] = np.concatenate([[0.0], np.cumsum(spans)]).tolist()
        self._times: list[float] = availability.times_s.tolist()
        self._up: list[bool] = (availability.values > 0).tolist()
        ups = np.diff(availability.times_s) * (availability.values[:-1] > 0)
        self._up_s: list[float] = np.concatenate([[0.0], np.cumsum(ups)]).tolist()

    def price_usd_hour(self, at_s: float) -> float:
        """The price that holds at a moment."""
        return self._prices[max(0, bisect_right(self._price_times, at_s) - 1)]

    def cost_usd(self, start_s: float, end_s: float) -> float:
        """What an instance costs from one moment to another."""
        return self._bill_usd(end_s) - self._bill_usd(start_s)

    def available(self, at_s: float) -> bool:
        """Whether an instance can be rented, and those rented run on."""
        return self._up[self._row(at_s)]

    def changes_s(self) -> list[float]:
        """After the start: when its availability changes."""
        return [time_s for time_s in self._times[1:] if time_s > 0]

    def digest(self) -> bytes:
        """All of it."""
        arrays = (array for one in (self.prices, self._availability) for array in (one.times_s, one.values))
        return b"".join(array.tobytes() for array in arrays)

    def least_usd_hour(self, until_s: float) -> float:
        """The lowest price from the start on at which it is available; infinite if it never is."""
        edges = {0.0, *self._times, *self._price_times}
        seen = [edge for edge in edges if 0 <= edge < until_s and self.available(edge)]
        return min((self.price_usd_hour(edge) for edge in seen), default=np.inf)

    def habits(self, at_s: float) -> Habits:
        """What the past tells at a moment; it goes back no further than the history."""
        row, first_s = self._row(at_s), self._times[0]
        day_s, week_s = max(first_s, at_s - DAY_S), max(first_s, at_s - WEEK_S)
        ratio = (self._above_s(at_s) - self._above_s(day_s)) / (at_s - day_s) if at_s > day_s else 0.0
        spells = sum(self._up[self._row(week_s) : row + 1])
        mean_s = (self._above_s(at_s) - self._above_s(week_s)) / spells if spells else 0.0
        return Habits(ratio, at_s - self._times[row], mean_s)

    def _bill_usd(self, at_s: float) -> float:
        row = max(0, bisect_right(self._price_times, at_s) - 1)
        return self._spent[row] + (at_s - self._price_times[row]) * self._prices[row] / HOUR_S

    def _row(self, at_s: float) -> int:
        return max(0, bisect_right(self._times, at_s) - 1)

    def _above_s(self, at_s: float) -> float:
        row = self._row(at_s)
        return self._up_s[row] + (at_s - self._times[row]) * self._up[row]


@dataclass(frozen=True)
class Conditions:
    """What holds at all places."""

    gb_s: float = 0.25  # bandwidth between two regions; within one, files are read where they lie
    latency_s: float = 1.0  # seconds that moving a file takes whatever its size
    runtime_error: float = 0.2  # a step takes at most this share longer or shorter than expected
    minimum_s: float = 60.0  # seconds that an instance is billed for at least
    asks_again_s: float = 300.0  # a step that was told "none" is asked about again after this at the latest


@dataclass(frozen=True)
class Case:
    """One episode: N steps, F files, C places in R regions."""

    workflow: Workflow  # with its deadline
    # C places. An instance of an offer is one executor; owned ones have as many as their quota
    offers: tuple[OfferConfig, ...]
    regions: tuple[str, ...]  # R names
    problem: Problem  # run times as expected; infinite where private data or the step's list forbid a place
    actual: Floats  # [N] by which a step's expected time is multiplied wherever it runs
    egress_usd_gb: Floats  # [R, R] price of a GB from row to column
    quotes: tuple[Quotes, ...]  # C
    conditions: Conditions = Conditions()  # what holds everywhere

    @property
    def deadline_s(self) -> float:
        """Seconds after the start; infinite if there is none."""
        deadline_s = self.workflow.deadline_s
        return np.inf if deadline_s is None else deadline_s

    @cached_property
    def region(self) -> Ints:
        """[C] number of the region."""
        return np.array([self.regions.index(offer.region) for offer in self.offers])

    @cached_property
    def spot(self) -> Bools:
        """[C] whether the provider may interrupt."""
        return np.array([offer.market == "spot" for offer in self.offers])

    @cached_property
    def owned(self) -> Bools:
        """[C] whether it is an owned cluster."""
        return np.array([offer.market == "owned" for offer in self.offers])

    @cached_property
    def speed(self) -> Floats:
        """[C] relative to the reference."""
        return np.array([offer.hetero_factor / REFERENCE_HETERO for offer in self.offers])

    @cached_property
    def may(self) -> Bools:
        """[N, C] whether a place may run a step."""
        return np.isfinite(self.problem.run_s)

    @cached_property
    def launch_s(self) -> Floats:
        """[C] until a new instance runs steps."""
        return np.array([float(offer.launch_s) for offer in self.offers])

    @cached_property
    def gb(self) -> Floats:
        """[F] sizes."""
        return np.array([file.gb for file in self.workflow.files])

    @cached_property
    def reads(self) -> list[Ints]:
        """N: numbers of the files that a step reads."""
        number = {file.name: k for k, file in enumerate(self.workflow.files)}
        return [np.array([number[name] for name in step.reads], np.int64) for step in self.workflow.steps]

    @cached_property
    def writes(self) -> list[Ints]:
        """N: numbers of the files that a step writes."""
        number = {file.name: k for k, file in enumerate(self.workflow.files)}
        return [np.array([number[name] for name in step.writes], np.int64) for step in self.workflow.steps]

    @cached_property
    def given_s(self) -> Floats:
        """[F, R] 0 in the regions in which a file lies at the start, else infinite."""
        place = {offer.name: int(self.region[c]) for c, offer in enumerate(self.offers)}
        at_s = np.full((len(self.workflow.files), len(self.regions)), np.inf)
        for k, file in enumerate(self.workflow.files):
            at_s[k, [place[name] for name in file.at]] = 0.0
        return at_s

    @cached_property
    def before(self) -> list[list[int]]:
        """N: the steps that a step waits for."""
        written, number = writers(self.workflow), {s.name: k for k, s in enumerate(self.workflow.steps)}
        return [
            list(dict.fromkeys(number[written[name].name] for name in step.reads if name in written))
            for step in self.workflow.steps
        ]

    @cached_property
    def after(self) -> list[list[int]]:
        """N: the steps that wait for a step."""
        found: list[list[int]] = [[] for _ in self.before]
        for step, waited in enumerate(self.before):
            for writer in waited:
                found[writer].append(step)
        return found

    @cached_property
    def mean_s(self) -> Floats:
        """[N] mean run time over the places that may run a step."""
        shown = np.where(self.may, self.problem.run_s, 0.0)
        return np.asarray(shown.sum(1) / np.maximum(1, self.may.sum(1)), np.float64)

    @cached_property
    def path_s(self) -> Floats:
        """[N] upward rank (Topcuoglu, Hariri and Wu 2002, Eq. 7) in seconds, files near."""
        rank = self.mean_s.copy()
        for step in self.problem.topological[::-1]:
            rank[step] += max((rank[one] for one in self.after[step]), default=0.0)
        return rank


class CaseSource(Protocol):
    """Gives every episode its case."""

    @property
    def offers(self) -> tuple[OfferConfig, ...]:
        """The places that all cases share; speeds and launch times may differ."""

    def case(self, key: EpisodeKey) -> Case:
        """The case of an episode."""
