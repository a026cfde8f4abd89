"""Episodes of bags of tasks: the jobs and scenarios of Teylo 2021, or drawn ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from spotweave.envs.simulation.bags.cases import (
    TABLE_7_2,
    Case,
    Profile,
    Scenario,
    Spread,
    drawn,
    profile_job,
    published_job,
    scenario_named,
)
from spotweave.envs.simulation.bags.model import TABLE_7_1, TABLE_9_1, Bag, BagError, Environment
from spotweave.envs.simulation.bags.options import compute_d_spot
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.envs.simulation.bags.world import BagWorld
from spotweave.envs.simulation.streams import Streams, episode_sequence
from spotweave.envs.simulation.world import EpisodeKey, WorldError, at_least

VmTypes = Literal["table_7_1", "table_9_1"]
_TYPES = {"table_7_1": TABLE_7_1, "table_9_1": TABLE_9_1}
_FAR_S = 1e6
_MOST_RATE = 6.0
"""Hibernations of a type until the deadline are drawn up to this, as many as in the worst scenarios."""


@dataclass
class BagsConfig:
    """What `spotweave/Bags-v0` simulates."""

    types: VmTypes = "table_9_1"  # the VM types of Table 7.1 or 9.1 of the thesis
    job: str = ""  # "J60", "J80", "J100" or "ED200", redrawn for each episode; empty: bags of any size
    scenario: str = ""  # such as "sc_4" or "s_2"; empty: drawn rates
    deadline_s: float | None = None  # seconds; None: drawn
    launch_s: float | None = None  # seconds until a VM that is rented runs tasks; None: drawn
    omega: float = 0.5  # weight of money in the objective, 1 - omega that of the makespan (Eq. 8.1)

    def validate(self) -> None:
        """Raises WorldError for a configuration that makes no sense."""
        if self.job and self.job not in TABLE_7_2:
            raise WorldError(f"env.job is {self.job!r}: expected one of {', '.join(TABLE_7_2)}, or empty")
        if self.scenario:
            try:
                scenario_named(self.scenario)
            except BagError as error:
                raise WorldError(f"env.scenario: {error}") from error
        if self.deadline_s is not None and not 0 < self.deadline_s < math.inf:
            raise WorldError(f"env.deadline_s is {self.deadline_s}: expected seconds > 0")
        if self.launch_s is not None:
            at_least(self, "env", 0, "launch_s")
        if not 0 < self.omega < 1:
            raise WorldError(f"env.omega is {self.omega}: expected a number between 0 and 1")


class DrawnBags:
    """Bags on the VM types of a configuration. A `CaseSource`.

    Raises:
        WorldError: for a configuration that makes no sense.
    """

    def __init__(self, config: BagsConfig) -> None:
        config.validate()
        self.config = config
        self.environment = Environment(_TYPES[config.types])

    def case(self, key: EpisodeKey) -> Case:
        """The case of an episode."""
        config, streams = self.config, Streams(episode_sequence(key.seed, key.split, key.index))
        sizes, window = streams.generator("job_sizes"), streams.generator("window")
        launch_s = float(streams.generator("launches").uniform(60, 240))
        if config.launch_s is not None:
            launch_s = config.launch_s
        environment = replace(self.environment, migration_overhead_s=launch_s)
        bag = self._any_bag(sizes)
        if config.job:
            bag = published_job(config.job, environment.types, int(sizes.integers(2**31)))
        deadline_s = _drawn_deadline_s(bag, environment, float(window.uniform(0.0, 1.0)))
        if config.deadline_s is not None:
            deadline_s = config.deadline_s
        hibernations, resumes = window.uniform(0, _MOST_RATE, 2).tolist()
        resumes *= bool(window.random() < 0.6)
        scenario = Scenario("drawn", hibernations, resumes, deadline_s)
        if config.scenario:
            scenario = scenario_named(config.scenario)
        d_spot_s = compute_d_spot(bag.tasks, environment, deadline_s)
        return Case(
            Plan(bag, (), deadline_s, d_spot_s, environment.allocation_cycle_s),
            environment,
            scenario,
            drawn(scenario, streams.key("revocations")),
            d_spot_s,
            launch_s,
        )

    def _any_bag(self, sizes: np.random.Generator) -> Bag:
        """20 to 160 tasks whose run times and memory lie between those of Table 7.2 and around them."""
        mean_s, mean_mb = float(sizes.uniform(120, 260)), math.exp(sizes.uniform(1.0, 5.2))
        runtime_s = Spread(mean_s * sizes.uniform(0.4, 0.8), mean_s, mean_s * sizes.uniform(1.3, 1.9))
        memory_mb = Spread(mean_mb * 0.6, mean_mb, mean_mb * sizes.uniform(1.05, 2.5))
        profile = Profile(int(sizes.integers(20, 161)), runtime_s, memory_mb, bool(sizes.random() < 0.7))
        return profile_job("drawn", profile, self.environment.types, int(sizes.integers(2**31)))


def _drawn_deadline_s(bag: Bag, environment: Environment, share: float) -> float:
    """The worst case of Algorithm 1 after 0.8 to 5 times what all spot VMs take at least."""
    worst_s = _FAR_S - compute_d_spot(bag.tasks, environment, _FAR_S)
    per_s = sum(
        vm.vm_type.vcpus * len(bag.tasks) / sum(task.runtime_s[vm.vm_type.name] for task in bag.tasks)
        for vm in environment.spot()
    )
    least_s = environment.migration_overhead_s + len(bag.tasks) / per_s
    return worst_s + least_s * math.exp(math.log(0.8) + share * math.log(5 / 0.8))


def build_bags(config: BagsConfig, n_lanes: int = 1, record: bool = False) -> BagWorld:
    """A world of `n_lanes` copies; each keeps a timeline.

    Raises:
        WorldError: for a configuration that makes no sense, in one line.
    """
    return BagWorld(DrawnBags(config), n_lanes, config.omega)
