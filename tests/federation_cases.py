"""Federations: those of the published tables, and random ones, small enough to try every placement."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from spotweave.agents.federated.mapping.problem import Candidate, MappingProblem
from spotweave.envs.federated_data.multi_fedls import load_application, load_clouds
from spotweave.envs.simulation.federations.application import Aggregation, Client, FlApplication, Messages
from spotweave.envs.simulation.federations.clouds import Clouds, Provider, Region, VmType
from spotweave.envs.simulation.federations.model import Federation
from spotweave.envs.simulation.series import Bools, Ints


def published_federation(setup: dict[str, Any]) -> Federation:
    """A row of Tables 7.8 to 7.10."""
    clouds = load_clouds("aws_gcp")
    if "slowdown_of_vm213" in setup:
        clouds = clouds.with_compute_slowdown("us-central1", "vm213", setup["slowdown_of_vm213"])
    if setup["table"] == "7.8":
        clouds = clouds.without_quotas()
    return Federation(load_application(setup["application"]), clouds)


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
    """A federation of one or two providers and up to three regions, with ties and dead ends.

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


def enumerate_placements(problem: MappingProblem, best: int | None = None) -> list[Candidate]:
    """The `best` placements, or all, that keep every limit, best first; of equals the cheaper one."""
    federation = problem.federation
    # [choices, V] counts of each group on each type; `index` combines the choices of all groups
    per_group = [
        _choices(size, np.isfinite(row))
        for size, row in zip(problem.sizes.tolist(), problem.exec_s, strict=False)
    ]
    grid = np.meshgrid(*[np.arange(len(choices)) for choices in per_group], indexing="ij")
    index = [axis.ravel() for axis in grid]
    total = sum((choices[rows] for choices, rows in zip(per_group, index, strict=True)), np.array(0))
    rate = total @ np.where(np.isfinite(federation.client_usd_s), federation.client_usd_s, 0.0)
    used = total @ problem.amounts.T
    found: list[tuple[float, float, int, int]] = []
    for server in np.flatnonzero(problem.servers).tolist():
        along = federation.comm_s[federation.region, federation.region[server]]
        seconds = np.zeros(len(total))
        for g, (choices, rows) in enumerate(zip(per_group, index, strict=True)):
            reach = np.where(
                choices > 0, problem.exec_s[g] + (along + federation.aggregation_s[server]), -np.inf
            )
            np.maximum(seconds, reach.max(axis=1)[rows], out=seconds)
        messages = total @ federation.message_usd[federation.provider, federation.provider[server]]
        usd = (rate + federation.server_usd_s[server]) * seconds + messages
        limits = problem.round_limits
        good = (seconds <= limits.seconds * (1 + 1e-12)) & (usd <= limits.usd * (1 + 1e-12))
        good &= (used + problem.amounts[:, server] <= problem.limits).all(axis=1)
        objective = (
            problem.alpha * usd / federation.cost_max + (1 - problem.alpha) * seconds / federation.t_max
        )
        where = np.flatnonzero(good)
        order = where[np.lexsort((usd[where], objective[where]))[:best]]
        found += [(float(objective[k]), float(usd[k]), int(server), int(k)) for k in order]
    candidates = []
    for _, _, server, k in sorted(found)[:best]:
        counts = np.array([choices[rows[k]] for choices, rows in zip(per_group, index, strict=True)])
        row = np.zeros((1, counts.shape[1]), np.int64)
        row[0, server] = 1
        counts = np.concatenate([counts, row])
        placement = problem.placement(counts)
        candidates.append(Candidate(counts, placement, federation.outcome(placement, problem.alpha)))
    return candidates


def _choices(size: int, usable: Bools) -> Ints:
    """[choices, V] every way to put `size` equal clients on the usable types."""
    types = np.flatnonzero(usable)
    ways = list(combinations_with_replacement(range(len(types)), size))
    counts = np.zeros((len(ways), len(usable)), np.int64)
    for row, way in enumerate(ways):
        np.add.at(counts[row], types[list(way)], 1)
    return counts
