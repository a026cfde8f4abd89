"""Random federations for tests: small enough to enumerate, with ties, quotas and dead ends."""

from __future__ import annotations

import numpy as np

from spotweave.envs.simulation.federations.application import Aggregation, Client, FlApplication, Messages
from spotweave.envs.simulation.federations.clouds import Clouds, Provider, Region, VmType
from spotweave.envs.simulation.federations.model import Federation


def quotas_kept(clouds: Clouds, used: list[VmType]) -> bool:
    """Whether these VMs may run at once, counted by hand."""
    owners: list[tuple[Provider | Region, list[VmType]]] = [
        (item, [vm for vm in used if vm.region == item.name]) for item in clouds.regions
    ]
    owners += [
        (item, [vm for vm in used if clouds.region[vm.region].provider == item.name])
        for item in clouds.providers
    ]
    return all(
        (item.max_gpus is None or sum(vm.gpus for vm in vms) <= item.max_gpus)
        and (item.max_vcpus is None or sum(vm.vcpus for vm in vms) <= item.max_vcpus)
        for item, vms in owners
    )


def random_federation(
    random: np.random.Generator,
    n_clients: int,
    n_types: int,
    *,
    distinct: bool = False,
    tight: bool = False,
) -> Federation:
    """A federation of one or two providers and up to three regions.

    Some clients are equal, unless all are `distinct`; where it is `tight`, every provider has a quota that is
    hardly enough.
    """
    n_providers = int(random.integers(1, 3))
    n_regions = int(random.integers(n_providers, 4))

    def limit(highest: int) -> int | None:
        if tight:
            return int(random.integers(max(1, highest // 3), highest))
        return int(random.integers(1, highest)) if random.random() < 0.4 else None

    providers = tuple(
        Provider(
            f"p{k}", float(random.choice([0, 0.05, 0.09, 0.12])), limit(2 * n_clients), limit(8 * n_clients)
        )
        for k in range(n_providers)
    )
    regions = tuple(
        Region(
            f"r{k}",
            f"p{k if k < n_providers else int(random.integers(n_providers))}",
            max_gpus=None if tight else limit(2 * n_clients),
            max_vcpus=None if tight else limit(8 * n_clients),
        )
        for k in range(n_regions)
    )
    prices = [0.1, 0.2, 0.5, 0.752, 1.14, 2.86]
    vm_types = tuple(
        VmType(
            f"v{k}",
            f"r{int(random.integers(n_regions))}",
            vcpus=int(random.integers(1, 9)),
            gpus=int(random.integers(0, 3)),
            memory_gib=8,
            on_demand_usd_hour=float(random.uniform(0.1, 3) if distinct else random.choice(prices)),
            hosts_clients=bool(k == 0 or random.random() < 0.8),
        )
        for k in range(n_types)
    )
    names = [region.name for region in regions]
    factors = [0.4, 0.42, 0.84, 1, 1.36, 2, 5]
    slowdowns = {
        name: {
            vm.name: float(random.uniform(0.4, 3) if distinct else random.choice(factors)) for vm in vm_types
        }
        for name in names
    }
    between = {
        (first, second): float(random.choice([0.34, 1, 3.4, 5.84]))
        for k, first in enumerate(names)
        for second in names[k:]
    }
    seconds = [float(random.choice([20, 100, 233, 595.7])) for _ in range(2)]
    clients = tuple(
        Client(
            f"c{k}",
            str(random.choice(names[:2])),
            train_samples=100,
            test_samples=10,
            train_s=float(random.uniform(20, 600) if distinct else random.choice(seconds)),
            test_s=1.0,
        )
        for k in range(n_clients)
    )
    sizes = random.choice([0, 0.1, 0.5, 1], 4).tolist()
    application = FlApplication(
        name="random",
        rounds=int(random.integers(1, 20)),
        clients=clients,
        messages=Messages(*sizes),
        communication_s=float(random.choice([0, 5, 27])),
        aggregation={
            item.name: Aggregation(float(random.choice([0, 0.2, 0.3])), float(random.choice([0, 0.8])))
            for item in providers
        },
    )
    return Federation(application, Clouds(providers, regions, vm_types, slowdowns, between))
