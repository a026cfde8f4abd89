"""When spot VMs hibernate and resume: the emulation of Teylo 2021, section 7.1.1.

An event hits all VMs of a type ("it has an impact not only on this VM but also on all VMs of that type").
Each type is in turn running and hibernated; it leaves the one at rate lambda_h and the other at lambda_r.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from spotweave.envs.simulation.bags.model import BagError
from spotweave.envs.simulation.bags.rented import RentedVm, RunningTask
from spotweave.envs.simulation.streams import Streams


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
