"""Places for the VMs of an execution: as many per type and market as may run at once."""

from __future__ import annotations

from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import Environment, Market, Vm, VmType
from envs.simulation.bags.rented import RentedVm, VmState


class Slots:
    """Numbers the VMs that may be rented: spot, regular on-demand, then burstable ones.

    The VMs of a type and market that are rented take its first places in the order of renting; a new one
    would take the next.

    Args:
        environment: what may be rented.

    Attributes:
        vms: (C,) what each place is for.
    """

    def __init__(self, environment: Environment) -> None:
        self.vms: tuple[Vm, ...] = (
            *environment.spot(),
            *environment.on_demand(),
            *environment.burstable(),
        )
        self._first: dict[tuple[str, Market], int] = {}
        for number, vm in enumerate(self.vms):
            self._first.setdefault((vm.vm_type.name, vm.market), number)

    def taken(self, fleet: Fleet) -> dict[int, RentedVm]:
        """The VMs that are rented now, by place."""
        places = dict(self._first)
        found = {}
        for rented in fleet.vms:
            if rented.state != VmState.TERMINATED:
                kind = rented.vm.vm_type.name, rented.vm.market
                found[places[kind]] = rented
                places[kind] += 1
        return found

    def next(self, fleet: Fleet, vm_type: VmType, market: Market) -> int:
        """The place of a new VM, if one more may run."""
        return self._first[vm_type.name, market] + fleet.alive(vm_type, market)

    def history(self, fleet: Fleet) -> list[int]:
        """[VMs ever rented] a place for each, for pictures; later ones come again to places given back."""
        most, count = fleet.environment.max_per_type_and_market, dict.fromkeys(self._first, 0)
        places = []
        for rented in fleet.vms:
            kind = rented.vm.vm_type.name, rented.vm.market
            places.append(self._first[kind] + count[kind] % most)
            count[kind] += 1
        return places
