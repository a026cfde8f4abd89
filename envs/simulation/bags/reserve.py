"""On-demand VMs that may be rented, and those kept free for spot VMs (Teylo 2021, section 6.2.5).

"There always exists on-demand VMs with the same characteristics of vm_j that can be allocated" is what makes
HADS meet deadlines. The number of VMs per type is limited, so it holds only if they are reserved: one
on-demand VM of its type for each spot VM with tasks.
"""

from __future__ import annotations

from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import Market, VmType
from envs.simulation.bags.rented import RentedVm, VmState


def room(fleet: Fleet, vm_type: VmType, source: RentedVm | None, kept: bool = True) -> int:
    """On-demand VMs of a type that may be rented for the tasks of a VM.

    Args:
        fleet: what is rented now.
        vm_type: to be rented.
        source: the VM whose tasks need it; the one kept free for it may be used.
        kept: False to use those kept free for other spot VMs too.
    """
    of_type, of_all = fleet.environment.max_per_type_and_market, fleet.environment.max_on_demand
    for rented in fleet.vms:
        same = rented.vm.vm_type is vm_type
        if rented.spot:
            taken = kept and rented.has_tasks and (rented is not source or not same)
        else:
            taken = rented.state != VmState.TERMINATED
        if taken:
            of_type -= same
            of_all -= 1
    return min(of_type, of_all)


def has_twin(fleet: Fleet, spot: RentedVm) -> bool:
    """Whether an on-demand VM of a spot VM's type is free for the tasks that it has or may get."""
    vm_type = spot.vm.vm_type
    return Market.ON_DEMAND in vm_type.markets and room(fleet, vm_type, spot) > 0


def rentable(fleet: Fleet, source: RentedVm | None, kept: bool = True) -> list[VmType]:
    """M^o by price: types of which a regular on-demand VM may be rented for the tasks of a VM."""
    types = [
        vm_type
        for vm_type in fleet.environment.types
        if not vm_type.burstable
        and Market.ON_DEMAND in vm_type.markets
        and room(fleet, vm_type, source, kept) > 0
    ]
    return sorted(types, key=lambda vm_type: vm_type.usd_hour(Market.ON_DEMAND))
