"""What runs and where it may run: tasks, VM types and the limits of the cloud (Teylo 2021, chapter 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from spotweave.envs.simulation.world import WorldError


class BagError(WorldError):
    """A mistake in a bag, an environment or a plan that its user can mend; the message is one line."""


SECONDS_PER_HOUR = 3600.0
MB_PER_GB = 1024.0


class Market(StrEnum):
    """How a VM is rented."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Mode(StrEnum):
    """How fast a burstable VM runs its tasks; other VMs are always at full speed."""

    FULL = "full"
    """100 % of each vCPU; on a burstable VM this burns CPU credits (burst mode, section 8.2.1)."""
    BASELINE = "baseline"
    """The share of a vCPU that burns no credits (section 8.2.2)."""


@dataclass(frozen=True)
class VmType:
    """A type of VM (Figure 4.5, env.json)."""

    name: str  # such as "c3.large"
    vcpus: int  # cores; each runs one task at a time
    memory_gb: float  # for all tasks that run at once; 1 GB is 1024 MB
    on_demand_usd_hour: float | None = None  # None where this market does not offer it
    spot_usd_hour: float | None = None  # None where this market does not offer it
    burstable: bool = False  # whether it runs on CPU credits
    cpu_credit_rate_hour: float = 0.0  # credits that it earns per hour, up to 24 hours' worth
    baseline: float = 0.0  # share of a vCPU, 0 to 1, that it may use for ever; 0 unless burstable

    @property
    def memory_mb(self) -> float:
        """Memory in the unit of tasks."""
        return self.memory_gb * MB_PER_GB

    @cached_property
    def markets(self) -> tuple[Market, ...]:
        """The markets that offer it."""
        return tuple(market for market in Market if self._price(market) is not None)

    def usd_hour(self, market: Market) -> float:
        """Price on a market in USD per hour. Raises BagError where it is not offered there."""
        price = self._price(market)
        if price is None:
            raise BagError(f"VM type {self.name!r} has no {market} price: give one, or leave the market out")
        return price

    def _price(self, market: Market) -> float | None:
        return self.spot_usd_hour if market == Market.SPOT else self.on_demand_usd_hour


@dataclass(frozen=True)
class Task:
    """One task: it runs on one core and needs its memory throughout (section 4.1)."""

    name: str  # its key in job.json, such as "0"
    command: str  # what a worker runs
    memory_mb: float  # rm_i
    runtime_s: Mapping[str, float]  # e_ij by the name of the VM type, at full speed and without checkpoints


@dataclass(frozen=True)
class Bag:
    """A bag of independent tasks (Figure 4.5, job.json)."""

    id: int
    name: str
    description: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Vm:
    """One VM that may be rented: vm_j."""

    vm_type: VmType  # its type
    market: Market  # how it would be rented
    number: int  # 1, 2, ... among those of its type and market

    @property
    def name(self) -> str:
        """Unique in its environment, such as "c3.large spot 1"."""
        return f"{self.vm_type.name} {self.market} {self.number}"

    @property
    def usd_hour(self) -> float:
        """Price in USD per hour."""
        return self.vm_type.usd_hour(self.market)


@dataclass(frozen=True)
class Environment:
    """What can be rented and the parameters of chapters 6 to 9, as sections 7.1.2 and 9.1 set them."""

    types: tuple[VmType, ...]  # the VM types
    max_per_type_and_market: int = 5  # VMs of one type and market that may run at once
    max_on_demand: int = 20  # on-demand VMs that may run at once, burstable ones among them (max_ondemand)
    migration_overhead_s: float = 180.0  # until a new VM can run migrated tasks (alpha)
    # share of its run time that checkpoints may add to a task on a spot VM (ovh)
    checkpoint_overhead: float = 0.10
    allocation_cycle_s: float = 900.0  # an idle VM is given back at the end of such a cycle (AC)
    omega: float = 0.5  # weight of cost against makespan, 0 to 1; section 9.1 prints it as alpha = 0.5
    burst_period_s: float = 60.0  # seconds of a vCPU at full speed that burn one credit (burst_period)
    dump_s: float = 12.99  # seconds of a checkpoint of a task without memory (section 7.3.2)
    dump_s_per_mb: float = 0.022  # seconds that each MB of its memory adds

    def spot(self) -> tuple[Vm, ...]:
        """M^s: the spot VMs that may be rented."""
        return self._vms(Market.SPOT, burstable=False)

    def on_demand(self) -> tuple[Vm, ...]:
        """M^o: the regular on-demand VMs that may be rented; at most `max_on_demand` of them at once."""
        return self._vms(Market.ON_DEMAND, burstable=False)

    def burstable(self) -> tuple[Vm, ...]:
        """M^b: the burstable on-demand VMs that may be rented."""
        return self._vms(Market.ON_DEMAND, burstable=True)

    def _vms(self, market: Market, *, burstable: bool) -> tuple[Vm, ...]:
        return tuple(
            Vm(vm_type, market, number)
            for vm_type in self.types
            if vm_type.burstable == burstable and market in vm_type.markets
            for number in range(1, self.max_per_type_and_market + 1)
        )

    def duration_s(self, task: Task, vm: Vm, mode: Mode = Mode.FULL) -> float:
        """Seconds that a task takes on a VM: with checkpoints on spot VMs, slower in baseline mode."""
        runtime_s = task.runtime_s[vm.vm_type.name]
        if mode == Mode.BASELINE:
            return runtime_s / vm.vm_type.baseline
        return runtime_s * (1 + self.checkpoint_overhead) if vm.market == Market.SPOT else runtime_s

    def checkpoint_s(self, task: Task) -> float:
        """Seconds that one checkpoint of a task takes: dump(t_i) = 12.99 + 0.022 MB (section 7.3.2)."""
        return self.dump_s + self.dump_s_per_mb * task.memory_mb


# The VMs of Teylo 2021, Tables 7.1, 9.1 and 9.7, and how fast they are.
#
# The credits of t3.large are not printed: a credit is one vCPU at full speed for a minute, so that the 20 %
# of Table 9.1 on 2 vCPUs are 24 credits per hour.

TABLE_7_1 = (
    VmType("c3.large", 2, 3.75, 0.105, 0.0294),
    VmType("c4.large", 2, 3.75, 0.100, 0.0308),
    VmType("c3.xlarge", 4, 7.5, 0.210, 0.0596),
    VmType("c4.xlarge", 4, 7.5, 0.199, 0.0673),
)
"""Chapter 7: prices of December 2019."""

GFLOPS = {"c3.large": 22.09, "c4.large": 40.73, "c3.xlarge": 44.46, "c4.xlarge": 83.33}
"""LINPACK of all cores together, Table 7.1."""

TABLE_9_1 = (
    VmType("c3.large", 2, 3.75, 0.105, 0.0299),
    VmType("c4.large", 2, 3.75, 0.100, 0.0366),
    VmType("c3.xlarge", 4, 7.5, 0.199, 0.0634),
    VmType("t3.large", 2, 8.0, 0.0832, None, burstable=True, cpu_credit_rate_hour=24.0, baseline=0.2),
)
"""Chapter 9: prices of November 2020."""

TABLE_9_7 = (
    VmType("c3.xlarge", 4, 7.5, 0.210, 0.072),
    VmType("c4.xlarge", 4, 7.5, 0.199, 0.076),
    VmType("c5.xlarge", 4, 8.0, 0.170, 0.073),
    VmType("c3.2xlarge", 8, 15.0, 0.420, 0.161),
    VmType("c4.2xlarge", 8, 15.0, 0.398, 0.209),
    VmType("c5.2xlarge", 8, 16.0, 0.340, 0.161),
    VmType("c3.4xlarge", 16, 30.0, 0.840, 0.350),
    VmType("c4.4xlarge", 16, 30.0, 0.796, 0.246),
    VmType("c5.4xlarge", 16, 32.0, 0.680, 0.281),
    VmType("c3.8xlarge", 32, 60.0, 1.680, 0.529),
    VmType("c4.8xlarge", 36, 60.0, 1.591, 0.609),
    VmType("c5.9xlarge", 36, 72.0, 1.530, 0.684),
    VmType("c5.12xlarge", 48, 96.0, 2.040, 0.790),
    VmType("c5.18xlarge", 72, 144.0, 3.060, 1.196),
    VmType("m3.xlarge", 4, 15.0, 0.266, 0.061),
    VmType("m4.xlarge", 4, 16.0, 0.200, 0.080),
    VmType("m5.xlarge", 4, 16.0, 0.192, 0.076),
    VmType("m3.2xlarge", 8, 30.0, 0.532, 0.129),
    VmType("m4.2xlarge", 8, 32.0, 0.400, 0.206),
    VmType("m5.2xlarge", 8, 32.0, 0.384, 0.182),
    VmType("m4.4xlarge", 16, 64.0, 0.800, 0.343),
    VmType("m5.4xlarge", 16, 64.0, 0.768, 0.335),
    VmType("m5.8xlarge", 32, 128.0, 1.536, 0.637),
    VmType("r3.xlarge", 4, 30.5, 0.333, 0.071),
    VmType("r4.xlarge", 4, 30.5, 0.266, 0.095),
    VmType("r5.xlarge", 4, 32.0, 0.252, 0.098),
    VmType("r3.2xlarge", 8, 61.0, 0.665, 0.144),
    VmType("r4.2xlarge", 8, 61.0, 0.532, 0.184),
    VmType("r5.2xlarge", 8, 64.0, 0.504, 0.221),
    VmType("r3.4xlarge", 16, 122.0, 1.330, 0.309),
    VmType("r4.4xlarge", 16, 122.0, 1.064, 0.330),
    VmType("r5.4xlarge", 16, 128.0, 1.008, 0.344),
)
"""Section 9.5, the case study of sequence alignment: prices of November 2020."""

KNOWN = {vm_type.name: vm_type for vm_type in (*TABLE_9_7, *TABLE_9_1)}
"""The newest prices of a type; where Tables 9.1 and 9.7 differ (c3.xlarge), those of Table 9.1."""

SPEEDS = {
    **{
        name: gflops / KNOWN[name].vcpus / (GFLOPS["c3.large"] / KNOWN["c3.large"].vcpus)
        for name, gflops in GFLOPS.items()
    },
    "t3.large": 167.0 / 119.0,
}
"""Speed of one core against c3.large: Gflops per core of Table 7.1; for t3.large the run times of Figure 4.5
on a core of t3.xlarge."""
