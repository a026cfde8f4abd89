"""On-demand only: the plan is carried out as it stands (Teylo 2021, section 7.2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from envs.simulation.bags.decisions import Answer, Question, Wait
from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import Market, Vm
from envs.simulation.bags.plan import Plan


class OnDemand:
    """Never moves a task."""

    name = "on-demand"

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        """The task stays where the plan has it."""
        return Wait()


def on_demand_plan(plan: Plan) -> Plan:
    """The same scheduling "but only with on-demand VMs": the same queues, without checkpoints.

    Starts and ends are still those of the spot VMs; an execution needs only their order.
    """
    numbers: Counter[str] = Counter()
    vms = []
    for planned in plan.vms:
        vm_type = planned.vm.vm_type
        numbers[vm_type.name] += 1
        vm = Vm(vm_type, Market.ON_DEMAND, numbers[vm_type.name])
        tasks = tuple(replace(placed, checkpoint_interval_s=None) for placed in planned.tasks)
        vms.append(replace(planned, vm=vm, tasks=tasks))
    return replace(plan, vms=tuple(vms))
