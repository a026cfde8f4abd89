"""One workflow to be carried out, with all that is given, and where such cases come from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from spotweave.envs.simulation.market.config import OfferConfig
from spotweave.envs.simulation.series import Bools, Floats, Ints, StepSeries
from spotweave.envs.simulation.snapshot import REFERENCE_HETERO
from spotweave.envs.simulation.workflows.checks import writers
from spotweave.envs.simulation.workflows.model import Workflow
from spotweave.envs.simulation.workflows.problem import Problem
from spotweave.envs.simulation.world import EpisodeKey

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
