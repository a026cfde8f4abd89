"""One bag to be carried out, with all that is given, and where such cases come from."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np

from spotweave.envs.simulation.bags.model import SPEEDS, Bag, BagError, Environment, Task, VmType
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.envs.simulation.bags.rented import RentedVm, RunningTask
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


# When spot VMs hibernate and resume: the emulation of Teylo 2021, section 7.1.1.
#
# An event hits all VMs of a type ("it has an impact not only on this VM but also on all VMs of that type").
# Each type is in turn running and hibernated; it leaves the one at rate lambda_h and the other at lambda_r.


@dataclass(frozen=True)
class Scenario:
    """Rates of hibernation and resumption."""

    name: str  # such as "sc_1"
    hibernations: float  # k_h, events expected per type in `over_s`
    resumes: float  # k_r, likewise; 0 where a hibernated VM never comes back
    over_s: float  # the deadline D of the section that defines it
    # seconds between two trials of the emulation, each with the probability of one second; 1 takes the rates
    # as printed
    trial_s: float = 1.0

    @property
    def hibernations_per_s(self) -> float:
        """Rate at which a running type hibernates: lambda_h."""
        return self.hibernations / self.over_s / self.trial_s

    @property
    def resumes_per_s(self) -> float:
        """Rate at which a hibernated type resumes: lambda_r."""
        return self.resumes / self.over_s / self.trial_s


def _numbered(prefix: str, over_s: float, *rates: tuple[float, float]) -> tuple[Scenario, ...]:
    return tuple(
        Scenario(f"{prefix}_{number}", k_h, k_r, over_s) for number, (k_h, k_r) in enumerate(rates, 1)
    )


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("none", 0, 0, 1),
        # Table 7.3, Table 9.2 and Table 9.8.
        *_numbered("sc", 2100, (1, 0), (5, 0), (1, 5), (5, 5), (3, 2.5), (2, 1), (2, 2)),
        *_numbered("s", 2700, (1, 0), (5, 0), (1, 5), (5, 5), (3, 2.5)),
        *_numbered("c", 3600, (5, 0), (5, 2.5), (5, 5)),
    )
}


def scenario_named(name: str) -> Scenario:
    """The published scenario of this name. Raises BagError naming those there are."""
    if name not in SCENARIOS:
        raise BagError(f"there is no scenario {name!r}: expected one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


Changes = Callable[[str], Iterator[float]]
"""When the VMs of a type of this name hibernate, resume, hibernate, ...: ascending seconds, maybe endless."""


@dataclass(frozen=True)
class _Drawn:
    """The calendars of a scenario. A `Changes` that can be pickled."""

    scenario: Scenario
    key: int

    def __call__(self, vm_type: str) -> Iterator[float]:
        """The calendar of one type."""
        generator = np.random.Generator(np.random.PCG64([self.key, zlib.crc32(vm_type.encode())]))
        now_s = 0.0
        while True:
            for rate in (self.scenario.hibernations_per_s, self.scenario.resumes_per_s):
                if rate == 0:
                    return
                now_s += generator.standard_exponential() / rate
                yield now_s


def drawn(scenario: Scenario, seed: int) -> Changes:
    """The calendars of a scenario, one for each type of VM.

    They know neither the scheduler nor the other types, so that all schedulers meet the same world; VMs that
    are rented later meet the calendar of their type as it is by then.
    """
    return _Drawn(scenario, Streams(seed).key("revocations"))


# What is going to happen during an execution, in order of time.


class Event(IntEnum):
    """What happens, in the order in which events of the same time are handled.

    A task that ends when its VM hibernates has ended; a VM that hibernates at the end of its allocation cycle
    is kept.
    """

    FINISHED = 0
    NO_CREDITS = 1
    READY = 2
    CHANGED = 3
    LIMIT = 4
    CYCLE_ENDED = 5


class Due(NamedTuple):
    """An event."""

    time_s: float  # when
    event: Event  # what
    order: int  # of entering, to make equal times comparable
    vm: RentedVm | None  # of which VM; None for CHANGED
    running: RunningTask | None  # of which task; None unless FINISHED
    vm_type: str  # "" unless CHANGED


class Calendar:
    """A priority queue of events."""

    def __init__(self) -> None:
        self._due: list[Due] = []
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._due)

    def push(
        self,
        time_s: float,
        event: Event,
        vm: RentedVm | None = None,
        running: RunningTask | None = None,
        vm_type: str = "",
    ) -> None:
        """Enter an event. It may be out of date when its time comes: whoever takes it must look."""
        self._order += 1
        heapq.heappush(self._due, Due(time_s, event, self._order, vm, running, vm_type))

    def pop(self) -> Due:
        """The next event."""
        return heapq.heappop(self._due)
