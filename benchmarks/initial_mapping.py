"""How long the initial mapping takes to prove a placement optimal (Brum 2023, Figure 7.1, and beyond)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.measurement import Measurement, at_most, one_core
from spotweave.agents.federated.mapping.initial import map_initially
from spotweave.envs.federated_data.multi_fedls import load_application, load_clouds
from spotweave.envs.simulation.federations.application import Aggregation, Client, FlApplication, Messages
from spotweave.envs.simulation.federations.clouds import Clouds, Provider, Region, VmType
from spotweave.envs.simulation.federations.model import Federation

SYNTHETIC = ((0.85, 1.2), (0.7, 1.5), (0.8, 1.2), (1.2, 0.85), (1.5, 0.7))
"""(price, time) of the five synthetic types next to each published one: "constants from 0.7 to 1.5"."""

PUBLISHED_BAR_S = 5.0
LARGE_BAR_S = 60.0


def published_case() -> Federation:
    """Section 7.4.1: the 13 types and five synthetic ones next to each (78), data in AWS, no quotas."""
    clouds = load_clouds("aws_gcp").without_quotas()
    types, slowdowns = [], {region: dict(row) for region, row in clouds.compute_slowdowns.items()}
    application = load_application("til_aws4")
    aggregation = dict(application.aggregation)
    for vm in clouds.vm_types:
        types.append(vm)
        provider = clouds.region[vm.region].provider
        for number, (price, slower) in enumerate(SYNTHETIC, 1):
            name = f"{vm.name}-{number}"
            types.append(
                replace(vm, name=name, on_demand_usd_hour=vm.on_demand_usd_hour * price, spot_usd_hour=None)
            )
            aggregation[name] = Aggregation(application.aggregation[provider].seconds * slower)
            for row in slowdowns.values():
                if vm.name in row:
                    row[name] = row[vm.name] * slower
    clouds = replace(clouds, vm_types=tuple(types), compute_slowdowns=slowdowns)
    many = tuple(replace(application.clients[0], name=f"c{k}") for k in range(1, 51))
    return Federation(replace(application, clients=many, aggregation=aggregation), clouds)


def random_case(clients: int, types: int, gpu_share: float | None) -> Federation:
    """Clients that all differ, types that all differ, data everywhere: nothing is symmetric.

    Args:
        clients: number of clients.
        types: number of VM types.
        gpu_share: GPUs that a provider allows, as a part of the number of clients, and half as many times 8
            vCPUs per region; None for no quotas.
    """
    providers, regions = 5, 20
    random = np.random.default_rng(0)
    max_gpus = None if gpu_share is None else int(clients * gpu_share)
    max_vcpus = None if gpu_share is None else int(clients * gpu_share * 4)
    speed = random.lognormal(0, 0.5, types)
    vm_types = tuple(
        VmType(
            name=f"v{k}",
            region=f"r{k % regions}",
            vcpus=int(2 ** random.integers(2, 6)),
            gpus=int(random.integers(0, 5)),
            memory_gib=32,
            on_demand_usd_hour=float(0.7 * speed[k] ** 0.8 * random.lognormal(0, 0.3)),
        )
        for k in range(types)
    )
    slowdowns = {
        f"r{data}": {
            vm.name: float(
                (1.0 if k % regions == data else random.uniform(1, 1.8)) * random.lognormal(0, 0.1) / speed[k]
            )
            for k, vm in enumerate(vm_types)
        }
        for data in range(regions)
    }
    pairs = [(a, b) for a in range(regions) for b in range(a, regions)]
    clouds = Clouds(
        tuple(Provider(f"p{k}", float(random.uniform(0.01, 0.12)), max_gpus) for k in range(providers)),
        tuple(Region(f"r{k}", f"p{k % providers}", max_vcpus=max_vcpus) for k in range(regions)),
        vm_types,
        slowdowns,
        {(f"r{a}", f"r{b}"): 0.7 if a == b else float(random.uniform(1, 6)) for a, b in pairs},
    )
    application = FlApplication(
        name="random",
        rounds=10,
        clients=tuple(
            Client(
                f"c{k}",
                f"r{int(random.integers(regions))}",
                train_samples=1000,
                test_samples=100,
                train_s=float(random.lognormal(5.5, 0.6)),
                test_s=float(random.uniform(10, 50)),
            )
            for k in range(clients)
        ),
        messages=Messages(0.54, 0.54, 0.54, 1e-6),
        communication_s=27.0,
        aggregation={f"p{k}": Aggregation(float(random.uniform(0.1, 0.4)), 0.01) for k in range(providers)},
    )
    return Federation(application, clouds)


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """The published case, and larger ones with and without quotas in the way."""
    yield from _time("50 clients x 78 VM types, as published", published_case(), PUBLISHED_BAR_S)
    sizes = ((50, 78, PUBLISHED_BAR_S), (200, 500, LARGE_BAR_S))
    for clients, types, bar in ((10, 26, PUBLISHED_BAR_S),) if smallest else sizes:
        for share in (None, 0.3):
            quotas = "no quotas" if share is None else "tight quotas"
            yield from _time(
                f"{clients} clients x {types} VM types, all different, {quotas}",
                random_case(clients, types, share),
                bar,
            )


def _time(name: str, federation: Federation, bar_s: float) -> Iterator[Measurement]:
    with one_core():
        began = time.perf_counter()
        found = map_initially(federation, time_limit_s=LARGE_BAR_S)
        seconds = time.perf_counter() - began
    proof = "proved optimal" if found.proved else f"proved within {found.gap:.2%}"
    yield at_most(f"initial mapping of {name}", seconds, "s", bar=bar_s, note=proof)
    yield Measurement(f"  proved gap of {name}", 100 * found.gap, "%", note="the large bar allows 1 %")
