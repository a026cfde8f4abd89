"""One workflow to be carried out, with all that is given, and where such cases come from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from envs.simulation.market.config import OfferConfig
from envs.simulation.snapshot import REFERENCE_HETERO
from envs.simulation.workflows.checks import writers
from envs.simulation.workflows.episodes.market import Quotes
from envs.simulation.workflows.model import Workflow
from envs.simulation.workflows.problem import Problem
from envs.simulation.world import EpisodeKey

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Conditions:
    """What holds at all places.

    Attributes:
        gb_s: bandwidth between two regions; within one, files are read where they lie.
        latency_s: seconds that moving a file takes whatever its size.
        runtime_error: a step takes at most this share longer or shorter than expected.
        minimum_s: seconds that an instance is billed for at least.
        asks_again_s: a step that was told "none" is asked about again after this at the latest.
    """

    gb_s: float = 0.25
    latency_s: float = 1.0
    runtime_error: float = 0.2
    minimum_s: float = 60.0
    asks_again_s: float = 300.0


@dataclass(frozen=True)
class Case:
    """One episode: N steps, F files, C places in R regions.

    Attributes:
        workflow: with its deadline.
        offers: C places. An instance of an offer is one executor; owned ones have as many as their quota.
        regions: R names.
        problem: run times as expected; infinite where private data or the step's list forbid a place.
        actual: [N] by which a step's expected time is multiplied wherever it runs.
        egress_usd_gb: [R, R] price of a GB from row to column.
        quotes: C.
        conditions: what holds everywhere.
    """

    workflow: Workflow
    offers: tuple[OfferConfig, ...]
    regions: tuple[str, ...]
    problem: Problem
    actual: Floats
    egress_usd_gb: Floats
    quotes: tuple[Quotes, ...]
    conditions: Conditions = Conditions()

    @property
    def deadline_s(self) -> float:
        """Seconds after the start; infinite if there is none."""
        deadline_s = self.workflow.deadline_s
        return np.inf if deadline_s is None else deadline_s

    @cached_property
    def region(self) -> NDArray[np.int64]:
        """[C] number of the region."""
        return np.array([self.regions.index(offer.region) for offer in self.offers])

    @cached_property
    def spot(self) -> NDArray[np.bool_]:
        """[C] whether the provider may interrupt."""
        return np.array([offer.market == "spot" for offer in self.offers])

    @cached_property
    def owned(self) -> NDArray[np.bool_]:
        """[C] whether it is an owned cluster."""
        return np.array([offer.market == "owned" for offer in self.offers])

    @cached_property
    def speed(self) -> Floats:
        """[C] relative to the reference."""
        return np.array([offer.hetero_factor / REFERENCE_HETERO for offer in self.offers])

    @cached_property
    def may(self) -> NDArray[np.bool_]:
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
    def reads(self) -> list[NDArray[np.int64]]:
        """N: numbers of the files that a step reads."""
        number = {file.name: k for k, file in enumerate(self.workflow.files)}
        return [np.array([number[name] for name in step.reads], np.int64) for step in self.workflow.steps]

    @cached_property
    def writes(self) -> list[NDArray[np.int64]]:
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
