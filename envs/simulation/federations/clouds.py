"""Clouds of an application: providers, regions, VM types and their slowdowns (Brum 2023, section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from spotweave.envs.simulation.federations.application import FederationError, require_number, require_unique


class Market(StrEnum):
    """How a VM is rented."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"


def market_named(name: str) -> Market:
    """A market by its name, as people type it. Raises FederationError for another name."""
    for market in Market:
        if name.replace("-", "_") == market:
            return market
    raise FederationError(f"there is no market {name!r}: use {' or '.join(Market)}")


@dataclass(frozen=True)
class Provider:
    """A cloud provider."""

    name: str  # unique
    transfer_usd_gb: float  # USD for each GB that a VM of this provider sends, to wherever (`cost_transfer`)
    # GPUs that may be rented at once in all regions together (N_GPU); None for no limit
    max_gpus: int | None = None
    max_vcpus: int | None = None  # the same for vCPUs (N_CPU)

    def __post_init__(self) -> None:
        owner = f"provider {self.name!r}"
        require_number(owner, "transfer_usd_gb", self.transfer_usd_gb)
        _require_limits(owner, self.max_gpus, self.max_vcpus)


@dataclass(frozen=True)
class Region:
    """A region of a provider."""

    name: str  # unique over all providers
    provider: str  # its provider's name
    place: str = ""  # for people, e.g. "N. Virginia"
    max_gpus: int | None = None  # GPUs that may be rented at once in this region (N_L_GPU); None for no limit
    max_vcpus: int | None = None  # the same for vCPUs (N_L_CPU)

    def __post_init__(self) -> None:
        _require_limits(f"region {self.name!r}", self.max_gpus, self.max_vcpus)


@dataclass(frozen=True)
class VmType:
    """An instance type in one region; the same product in two regions is two types."""

    name: str  # unique, e.g. "vm121" as the thesis counts them
    region: str  # its region's name
    vcpus: int  # virtual CPUs
    gpus: int  # GPUs
    memory_gib: float  # memory of the machine
    on_demand_usd_hour: float  # USD per hour on demand
    # USD per hour as a spot (preemptible) VM; None where it is not offered
    spot_usd_hour: float | None = None
    product: str = ""  # the provider's name for it, e.g. "g4dn.2xlarge"
    gpu: str = ""  # name of the GPU
    hosts_clients: bool = True  # whether clients may run here; where not, only the server may

    def __post_init__(self) -> None:
        owner = f"VM type {self.name!r}"
        require_number(owner, "vcpus", self.vcpus, above=0)
        require_number(owner, "gpus", self.gpus)
        require_number(owner, "memory_gib", self.memory_gib)
        require_number(owner, "on_demand_usd_hour", self.on_demand_usd_hour)
        if self.spot_usd_hour is not None:
            require_number(owner, "spot_usd_hour", self.spot_usd_hour)

    def usd_hour(self, market: Market) -> float | None:
        """USD per hour on a market; None where it is not offered there."""
        return self.on_demand_usd_hour if market is Market.ON_DEMAND else self.spot_usd_hour


@dataclass(frozen=True)
class Measurement:
    """Seconds that a dummy application took."""

    round_s: float  # median seconds of a round after the first
    workload: str  # what was run, in words. Only seconds of the same workload can be divided by each other
    first_round_s: float | None = None  # median seconds of a process's first round; None for messages


@dataclass(frozen=True)
class Measured:
    """Seconds behind the slowdowns that were measured here (`spotweave measure fl`)."""

    # the VM type whose compute slowdown is 1; None where its seconds are not known
    baseline_vm_type: str | None = None
    # the two regions whose communication slowdown is 1; None likewise
    baseline_between: tuple[str, str] | None = None
    # [region of the data][VM type]
    compute: Mapping[str, Mapping[str, Measurement]] = field(default_factory=dict)
    # [(region, region)], in the order in which they were given
    communication: Mapping[tuple[str, str], Measurement] = field(default_factory=dict)


@dataclass(frozen=True)
class Clouds:
    """All that can be rented, and the slowdowns that pre-scheduling measured (Brum 2023, section 6.1).

    Raises:
        FederationError: for names that are given twice or do not exist, and values out of range.
    """

    providers: tuple[Provider, ...]  # at least one
    regions: tuple[Region, ...]  # at least one
    vm_types: tuple[VmType, ...]  # at least one
    # [region of the data][VM type] seconds of a round's training and test there, divided by those on the
    # baseline VM (sl_inst). It depends on where the data are: reading them is part of a round
    compute_slowdowns: Mapping[str, Mapping[str, float]]
    # [(region, region)] seconds of the messages between the two, divided by those between the baseline pair
    # (sl_comm). One order of a pair is enough
    communication_slowdowns: Mapping[tuple[str, str], float]
    source: tuple[str, ...] = ()  # where the numbers come from, for people
    # the seconds behind those of the slowdowns that were measured here
    measured: Measured = field(default_factory=Measured)

    def __post_init__(self) -> None:
        for what, things in (
            ("provider", self.providers),
            ("region", self.regions),
            ("VM type", self.vm_types),
        ):
            if not things:
                raise FederationError(f"the clouds have no {what}: give at least one")
            require_unique(what, (thing.name for thing in things))
        for region in self.regions:
            if region.provider not in self.provider:
                raise _unknown(f"region {region.name!r}", "provider", region.provider, self.provider)
        for vm in self.vm_types:
            self.require_region(f"VM type {vm.name!r}", vm.region)
        for data_region, slowdowns in self.compute_slowdowns.items():
            self.require_region("compute_slowdowns", data_region)
            for name, slowdown in slowdowns.items():
                self.require_vm_type("compute_slowdowns", name)
                require_number(f"compute_slowdowns of {data_region!r}", name, slowdown, above=0)
        for pair, slowdown in self.communication_slowdowns.items():
            for name in pair:
                self.require_region("communication_slowdowns", name)
            require_number("communication_slowdowns", " & ".join(pair), slowdown, above=0)
            mirrored = self.communication_slowdowns.get((pair[1], pair[0]), slowdown)
            if mirrored != slowdown:
                raise FederationError(
                    f"communication_slowdowns give {slowdown:g} and {mirrored:g} for "
                    f"{pair[0]!r} & {pair[1]!r}: give the pair once"
                )
        self._check_measured()

    def _check_measured(self) -> None:
        measured = self.measured
        if measured.baseline_vm_type is not None:
            self.require_vm_type("measured", measured.baseline_vm_type)
        for name in measured.baseline_between or ():
            self.require_region("measured", name)
        for data_region, types in measured.compute.items():
            self.require_region("measured", data_region)
            for name, measurement in types.items():
                self.require_vm_type("measured", name)
                require_number(f"measured {name!r}", "round_s", measurement.round_s, above=0)
        for pair, measurement in measured.communication.items():
            for name in pair:
                self.require_region("measured", name)
            require_number(f"measured {' & '.join(pair)}", "round_s", measurement.round_s, above=0)

    @cached_property
    def provider(self) -> dict[str, Provider]:
        """Providers by name."""
        return {provider.name: provider for provider in self.providers}

    @cached_property
    def region(self) -> dict[str, Region]:
        """Regions by name."""
        return {region.name: region for region in self.regions}

    @cached_property
    def vm_type(self) -> dict[str, VmType]:
        """VM types by name."""
        return {vm.name: vm for vm in self.vm_types}

    def require_region(self, owner: str, name: str) -> None:
        """Raise FederationError if there is no such region."""
        if name not in self.region:
            raise _unknown(owner, "region", name, self.region)

    def require_vm_type(self, owner: str, name: str) -> None:
        """Raise FederationError if there is no such VM type."""
        if name not in self.vm_type:
            raise _unknown(owner, "VM type", name, self.vm_type)

    def compute_slowdown(self, data_region: str, vm_type: str) -> float:
        """How much slower than on the baseline VM a round is on `vm_type` with data in `data_region`.

        Raises:
            FederationError: if it was not measured.
        """
        measured = self.compute_slowdowns.get(data_region)
        if measured is None or vm_type not in measured:
            raise FederationError(
                f"no compute slowdown for VM type {vm_type!r} with data in region {data_region!r}: "
                f"measure it (spotweave measure fl), or set hosts_clients of this type to false"
            )
        return measured[vm_type]

    def communication_slowdown(self, first: str, second: str) -> float:
        """How much slower than between the baseline regions messages are; the order does not matter.

        Raises:
            FederationError: if it was not measured.
        """
        measured = self.communication_slowdowns
        slowdown = measured.get((first, second), measured.get((second, first)))
        if slowdown is None:
            raise FederationError(
                f"no communication slowdown for regions {first!r} & {second!r}: "
                f"measure it (spotweave measure fl)"
            )
        return slowdown

    def without_quotas(self) -> Clouds:
        """The same clouds with no limit on GPUs and vCPUs anywhere."""
        return replace(
            self,
            providers=tuple(replace(item, max_gpus=None, max_vcpus=None) for item in self.providers),
            regions=tuple(replace(item, max_gpus=None, max_vcpus=None) for item in self.regions),
        )

    def with_compute_slowdown(self, data_region: str, vm_type: str, slowdown: float) -> Clouds:
        """The same clouds with one slowdown replaced, e.g. by a newer measurement."""
        table = {region: dict(slowdowns) for region, slowdowns in self.compute_slowdowns.items()}
        table.setdefault(data_region, {})[vm_type] = slowdown
        return replace(self, compute_slowdowns=table)


def _require_limits(owner: str, max_gpus: int | None, max_vcpus: int | None) -> None:
    for what, limit in (("max_gpus", max_gpus), ("max_vcpus", max_vcpus)):
        if limit is not None:
            require_number(owner, what, limit)


def _unknown(owner: str, what: str, name: str, known: Mapping[str, object]) -> FederationError:
    return FederationError(
        f"{owner} names {what} {name!r}, which is not there: use one of {', '.join(known)}"
    )
