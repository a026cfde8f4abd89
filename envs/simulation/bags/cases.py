"""One bag to be carried out, with all that is given, and where such cases come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spotweave.envs.simulation.bags.model import SPEEDS, Bag, BagError, Environment, Task, VmType
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.envs.simulation.bags.scenarios import Changes, Scenario
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.simulation.world import EpisodeKey


@dataclass(frozen=True)
class Case:
    """One episode."""

    plan: Plan  # the primary scheduling map; without VMs, the policy places each task
    environment: Environment  # what may be rented
    scenario: Scenario  # rates, which policies may know
    changes: Changes  # when spot VMs hibernate and resume
    d_spot_s: float  # by which the objective normalises (Eq. 8.1)
    launch_s: float  # until the plan's VMs are ready


class CaseSource(Protocol):
    """Gives every episode its case."""

    @property
    def environment(self) -> Environment:
        """The VM types and limits that all cases share; other parameters may differ."""

    def case(self, key: EpisodeKey) -> Case:
        """The case of an episode."""


# The bags of Teylo 2021, drawn: J60, J80, J100 and ED200 of Table 7.2, and small ones for section 9.2.
#
# Run times and memory of single tasks are not published. Table 7.2 gives the least, mean and largest of each
# bag: these are kept, what lies between is drawn (PERT: the beta distribution of a least, mean and largest
# value). Its run times are taken for c3.large, the slowest type; the others are faster by `tables.SPEEDS`.


@dataclass(frozen=True)
class Spread:
    """The least, mean and largest of some values."""

    least: float
    mean: float
    largest: float


@dataclass(frozen=True)
class Profile:
    """A row of Table 7.2."""

    tasks: int  # how many
    runtime_s: Spread  # spread of their run times
    memory_mb: Spread  # spread of their memory
    # whether more memory takes longer, as in the synthetic tasks, whose run time and memory both follow the
    # size of their vectors (section 7.1)
    grows: bool = True


TABLE_7_2 = {
    "J60": Profile(60, Spread(102, 198, 323), Spread(2.85, 4.69, 12.20)),
    "J80": Profile(80, Spread(103, 199, 322), Spread(2.91, 4.71, 13.19)),
    "J100": Profile(100, Spread(107, 190, 330), Spread(2.81, 4.49, 10.86)),
    "ED200": Profile(200, Spread(161, 211, 354), Spread(153.74, 168.68, 177.77), grows=False),
}
"""Minutes of the print in seconds."""


def published_job(name: str, types: Sequence[VmType], seed: int = 0) -> Bag:
    """A bag with the published spread of run times and memory.

    Args:
        name: "J60", "J80", "J100" or "ED200".
        types: the VM types that it may run on.
        seed: of what is drawn.

    Raises:
        BagError: for another name, and for a type whose speed is not published.
    """
    if name not in TABLE_7_2:
        raise BagError(f"there is no job {name!r}: use {', '.join(TABLE_7_2)}")
    return profile_job(name, TABLE_7_2[name], types, seed)


def profile_job(name: str, profile: Profile, types: Sequence[VmType], seed: int = 0) -> Bag:
    """A bag with the spread of run times and memory of a profile. Arguments and errors as above."""
    random = Streams(seed).generator("job_sizes")
    runtime_s = _drawn(profile.runtime_s, profile.tasks, random).round()
    memory_mb = _drawn(profile.memory_mb, profile.tasks, random).round(2)
    if profile.grows:
        # The n-th longest task gets the n-th largest memory.
        memory_mb = np.sort(memory_mb)[np.argsort(np.argsort(runtime_s, kind="stable"))]
    return _bag(name, f"drawn within Table 7.2, seed {seed}", runtime_s, memory_mb, types)


def uniform_job(
    tasks: int, shortest_s: float, longest_s: float, types: Sequence[VmType], seed: int = 0
) -> Bag:
    """A bag as section 9.2 describes: run times "from 5 to 15 seconds", memory as in J60.

    Args:
        tasks: how many.
        shortest_s: least run time on c3.large; whole seconds up to `longest_s` are equally likely.
        longest_s: largest run time on c3.large.
        types: the VM types that it may run on.
        seed: of what is drawn.

    Raises:
        BagError: for a type whose speed is not published.
    """
    random = Streams(seed).generator("job_sizes")
    runtime_s = random.integers(int(shortest_s), int(longest_s), tasks, endpoint=True).astype(np.float64)
    memory_mb = _drawn(TABLE_7_2["J60"].memory_mb, tasks, random).round(2)
    description = f"{shortest_s:g} to {longest_s:g} s, seed {seed}"
    return _bag(f"{tasks} tasks", description, runtime_s, memory_mb, types)


def _drawn(spread: Spread, count: int, random: np.random.Generator) -> Floats:
    """[count] values with this least, mean and largest, in random order."""
    width = spread.largest - spread.least
    share = (spread.mean - spread.least) / width
    values = spread.least + width * random.beta(6 * share, 6 * (1 - share), count)
    values[[0, 1]] = spread.least, spread.largest
    # A shift mends the mean; the few that leave the range are clipped, so that it takes some rounds.
    for _ in range(100):
        values[2:] = np.clip(values[2:] + spread.mean - values.mean(), spread.least, spread.largest)
    return random.permutation(values)


def _bag(name: str, description: str, runtime_s: Floats, memory_mb: Floats, types: Sequence[VmType]) -> Bag:
    for vm_type in types:
        if vm_type.name not in SPEEDS:
            raise BagError(f"the speed of {vm_type.name!r} is not published: use {', '.join(SPEEDS)}")
    tasks = tuple(
        Task(
            str(number),
            f"run {number}",
            float(memory),
            {vm_type.name: float(seconds) / SPEEDS[vm_type.name] for vm_type in types},
        )
        for number, (seconds, memory) in enumerate(zip(runtime_s, memory_mb, strict=True))
    )
    return Bag(1, name, description, tasks)
