"""Weighted round robin over VMs (Teylo 2021, Eq. 6.3)."""

from __future__ import annotations

from collections.abc import Iterable

from envs.simulation.bags.model import Bag, Vm, VmType


def computing_power(vm_type: VmType, bag: Bag) -> float:
    """Tasks of the bag per second that all cores of a VM run.

    The thesis takes Gflops of a benchmark; env.json has none, and the bag's own run times say the same where
    they follow the benchmark.
    """
    return vm_type.vcpus * len(bag.tasks) / sum(task.runtime_s[vm_type.name] for task in bag.tasks)


class WeightedRoundRobin:
    """Takes types in turn, each as often as its weight says: power over price (Eq. 6.3).

    Each turn every type gains its weight; the one that gained most is taken and pays the sum of all weights.
    Over many turns each type is taken in proportion to its weight, and never twice in a row without need.

    Args:
        vms: those to take from.
        bag: whose run times give the power.
    """

    def __init__(self, vms: Iterable[Vm], bag: Bag) -> None:
        self._left: dict[VmType, list[Vm]] = {}
        for vm in vms:
            self._left.setdefault(vm.vm_type, []).append(vm)
        self._weight = {
            vm_type: computing_power(vm_type, bag) / left[0].usd_hour for vm_type, left in self._left.items()
        }
        self._gained = dict.fromkeys(self._left, 0.0)

    def next(self) -> Vm | None:
        """The next VM in turn, not yet taken away (get_wrr_VM); None if none is left."""
        types = [vm_type for vm_type, left in self._left.items() if left]
        if not types:
            return None
        for vm_type in types:
            self._gained[vm_type] += self._weight[vm_type]
        chosen = max(types, key=lambda vm_type: self._gained[vm_type])
        self._gained[chosen] -= sum(self._weight[vm_type] for vm_type in types)
        return self._left[chosen][0]

    def take(self, vm: Vm) -> None:
        """Take a VM away: it is rented now."""
        self._left[vm.vm_type].remove(vm)
