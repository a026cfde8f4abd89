"""One bag to be carried out, with all that is given, and where such cases come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from envs.simulation.bags.model import Environment
from envs.simulation.bags.plan import Plan
from envs.simulation.bags.scenarios import Changes, Scenario
from envs.simulation.world import EpisodeKey


@dataclass(frozen=True)
class Case:
    """One episode.

    Attributes:
        plan: the primary scheduling map; without VMs, the policy places each task.
        environment: what may be rented.
        scenario: rates, which policies may know.
        changes: when spot VMs hibernate and resume.
        d_spot_s: by which the objective normalises (Eq. 8.1).
        launch_s: until the plan's VMs are ready.
    """

    plan: Plan
    environment: Environment
    scenario: Scenario
    changes: Changes
    d_spot_s: float
    launch_s: float


class CaseSource(Protocol):
    """Gives every episode its case."""

    @property
    def environment(self) -> Environment:
        """The VM types and limits that all cases share; other parameters may differ."""

    def case(self, key: EpisodeKey) -> Case:
        """The case of an episode."""
