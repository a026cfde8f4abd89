"""How often a task on a spot VM saves its state (Teylo 2021, section 6.1.2)."""

from __future__ import annotations

from envs.simulation.bags.model import Environment, Task, Vm


def checkpoint_count(task: Task, vm: Vm, environment: Environment) -> float:
    """n_ckp = e * ovh / dump (Eq. 6.1): checkpoints that the allowed overhead pays for; no whole number."""
    return task.runtime_s[vm.vm_type.name] * environment.checkpoint_overhead / environment.checkpoint_s(task)


def checkpoint_interval_s(task: Task, vm: Vm, environment: Environment) -> float | None:
    """intv_ckp = e / n_ckp (Eq. 6.2): seconds of work between two checkpoints; None where ovh is 0.

    It is dump / ovh for every type of VM. Where it is longer than the run, no checkpoint is taken.
    """
    count = checkpoint_count(task, vm, environment)
    return task.runtime_s[vm.vm_type.name] / count if count > 0 else None
