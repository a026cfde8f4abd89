"""The objective of Teylo 2021: money and makespan, weighted (Eq. 8.1 and 8.8)."""

from __future__ import annotations

from envs.simulation.bags.model import SECONDS_PER_HOUR, Environment


def fitness_scales(environment: Environment, d_spot_s: float) -> tuple[float, float]:
    """Weights of one USD and of one second in Eq. 8.1 and 8.8.

    The cost is divided by that of all VMs, at the price of the dearest, during D_spot; the makespan by it.
    """
    vms = environment.spot() or environment.on_demand()
    most_usd = max(vm.usd_hour for vm in vms) / SECONDS_PER_HOUR * d_spot_s * len(vms)
    return environment.omega / most_usd, (1 - environment.omega) / d_spot_s
