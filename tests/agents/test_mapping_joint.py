"""Several applications on shared quotas: in order, and jointly against the enumeration of all placements."""

from __future__ import annotations

import dataclasses
import math
from itertools import product

import numpy as np
import pytest

from agents.federated.mapping.enumeration import count_placements, enumerate_placements
from agents.federated.mapping.initial import map_initially
from agents.federated.mapping.joint import Task, beside, map_in_order, map_jointly
from agents.federated.mapping.limits import InfeasibleMappingError
from agents.federated.mapping.problem import MappingProblem
from envs.federated_data.multi_fedls import load_application, load_clouds
from envs.simulation.federations.clouds import Clouds
from envs.simulation.federations.errors import FederationError
from envs.simulation.federations.model import Federation, Placement
from tests.federation_cases import random_federation


def til(clouds: Clouds, clients: int, name: str = "TIL") -> Federation:
    application = load_application("til_gcp4")
    return Federation(
        dataclasses.replace(application, name=name, clients=application.clients[:clients]), clouds
    )


def on_gcp(max_gpus: int) -> Clouds:
    """GCP only, with this many GPUs: vm211 (T4), vm213 and vm222 (V100), vm212 (P4), vm221 (T4)."""
    clouds = load_clouds("aws_gcp")
    kept = tuple(region for region in clouds.regions if region.provider == "GCP")
    return dataclasses.replace(
        clouds,
        providers=tuple(
            dataclasses.replace(item, max_gpus=max_gpus, max_vcpus=80)
            for item in clouds.providers
            if item.name == "GCP"
        ),
        regions=kept,
        vm_types=tuple(vm for vm in clouds.vm_types if vm.region in {region.name for region in kept}),
        compute_slowdowns={
            "us-central1": {
                name: slowdown
                for name, slowdown in clouds.compute_slowdowns["us-central1"].items()
                if name.startswith("vm2")
            }
        },
        communication_slowdowns={
            pair: slowdown
            for pair, slowdown in clouds.communication_slowdowns.items()
            if all(name in {region.name for region in kept} for name in pair)
        },
    )


def several(random: np.random.Generator, number: int) -> list[Task]:
    """Applications of different clients, messages and rounds on the same random clouds with tight quotas."""
    first = random_federation(random, n_clients=int(random.integers(2, 5)), n_types=5, tight=True)
    tasks = []
    for _ in range(number):
        application = first.application
        size = int(random.integers(1, 3 if number > 2 else min(3, len(application.clients)) + 1))
        chosen = random.choice(len(application.clients), size, replace=False)
        application = dataclasses.replace(
            application,
            clients=tuple(application.clients[k] for k in chosen),
            communication_s=float(random.choice([0, 5, 27])),
            rounds=int(random.integers(1, 5)),
            first_round_slowdown=float(random.choice([1.0, 1.5])),
        )
        tasks.append(Task(Federation(application, first.clouds), float(random.choice([0, 0.3, 0.5, 1]))))
    return tasks


def limited(random: np.random.Generator, task: Task) -> Task:
    """The task with a deadline or budget somewhat above what its optimum takes; none if it has none."""
    try:
        outcome = map_initially(task.federation, task.alpha).best.outcome
    except InfeasibleMappingError:
        return task
    deadline_s = outcome.total_s * random.uniform(1, 1.5) if random.random() < 0.5 else math.inf
    budget_usd = outcome.total_usd * random.uniform(1, 1.5) if random.random() < 0.5 else math.inf
    return dataclasses.replace(task, deadline_s=deadline_s, budget_usd=budget_usd)


def taken(clouds: Clouds, placement: Placement) -> list[int]:
    """GPUs and vCPUs in each region and of each provider, counted VM by VM."""
    vms = [clouds.vm_types[k] for k in (placement.server, *placement.clients)]
    counts = []
    for region in clouds.regions:
        here = [vm for vm in vms if vm.region == region.name]
        counts += [sum(vm.gpus for vm in here), sum(vm.vcpus for vm in here)]
    for provider in clouds.providers:
        here = [vm for vm in vms if clouds.region[vm.region].provider == provider.name]
        counts += [sum(vm.gpus for vm in here), sum(vm.vcpus for vm in here)]
    return counts


def allowed(clouds: Clouds) -> list[float]:
    """The quotas in the same order; infinite where there is none."""
    limits: list[int | None] = []
    for region in clouds.regions:
        limits += [region.max_gpus, region.max_vcpus]
    for provider in clouds.providers:
        limits += [provider.max_gpus, provider.max_vcpus]
    return [math.inf if limit is None else limit for limit in limits]


def fits(tasks: list[Task], placements: tuple[Placement, ...]) -> bool:
    """Whether placements keep the quotas together."""
    clouds = tasks[0].federation.clouds
    used = np.sum([taken(clouds, placement) for placement in placements], axis=0)
    return bool((used <= allowed(clouds)).all())


def enumerated(tasks: list[Task]) -> float:
    """The smallest sum of objectives over all combinations of all placements; infinite if none fits."""
    clouds = tasks[0].federation.clouds
    limits = np.array(allowed(clouds))
    objectives, used = [], []
    for task in tasks:
        federation = Federation(task.federation.application, clouds.without_quotas())
        problem = MappingProblem(federation, task.alpha)
        found = [
            item
            for item in enumerate_placements(problem, count_placements(problem))
            if item.outcome.total_s <= task.deadline_s * (1 + 1e-12)
            and item.outcome.total_usd <= task.budget_usd * (1 + 1e-12)
        ]
        objectives.append(np.array([item.outcome.objective for item in found]))
        used.append(np.array([taken(clouds, item.placement) for item in found]).reshape(-1, len(limits)))
    best = math.inf
    last = np.array([np.inf]) if not len(objectives[-1]) else objectives[-1]
    for numbers in product(*(range(len(row)) for row in objectives[:-1])):
        objective = sum(row[k] for row, k in zip(objectives, numbers, strict=False))
        if objective + last.min() < best:
            left = limits - sum(row[k] for row, k in zip(used, numbers, strict=False))
            good = last[(used[-1] <= left).all(axis=1)] if len(used[-1]) else last[:0]
            best = min(best, float(objective + good.min(initial=np.inf)))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_the_joint_mapping_is_the_enumerated_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    tasks = several(random, 3 if seed % 4 == 0 else 2)
    best = enumerated(tasks)
    if math.isinf(best):
        with pytest.raises(InfeasibleMappingError, match=r"no room|even alone"):
            map_jointly(tasks)
        return
    found = map_jointly(tasks)
    assert found.objective == pytest.approx(best, abs=1e-9)
    assert fits(tasks, tuple(plan.placement for plan in found.plans))
    assert found.objective == pytest.approx(sum(plan.outcome.objective for plan in found.plans), abs=1e-12)


@pytest.mark.parametrize("seed", range(60, 90))
def test_with_deadlines_and_budgets_as_well(seed: int) -> None:
    """Without a slower first round, whose seconds are taken off the others' limits a little too carefully."""
    random = np.random.default_rng(seed)
    tasks = []
    for task in several(random, 2):
        application = dataclasses.replace(task.federation.application, first_round_slowdown=1.0)
        tasks.append(limited(random, Task(Federation(application, task.federation.clouds), task.alpha)))
    best = enumerated(tasks)
    if math.isinf(best):
        with pytest.raises(InfeasibleMappingError):
            map_jointly(tasks)
        return
    found = map_jointly(tasks)
    assert found.objective == pytest.approx(best, abs=1e-9)
    for task, plan in zip(tasks, found.plans, strict=True):
        assert plan.outcome.total_s <= task.deadline_s * (1 + 1e-9)
        assert plan.outcome.total_usd <= task.budget_usd * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_in_order_is_never_better_and_keeps_the_quotas(seed: int) -> None:
    tasks = several(np.random.default_rng(seed), 2)
    try:
        ordered = map_in_order(tasks)
    except InfeasibleMappingError:
        return
    assert fits(tasks, tuple(item.best.placement for item in ordered))
    alone = map_initially(tasks[0].federation, tasks[0].alpha).best.outcome
    assert ordered[0].best.outcome.objective == pytest.approx(alone.objective, abs=1e-12)
    total = sum(item.best.outcome.objective for item in ordered)
    assert map_jointly(tasks).objective <= total + 1e-9


def test_some_of_the_random_cases_are_better_planned_jointly() -> None:
    """Otherwise the comparison would compare nothing."""
    better = 0
    for seed in range(40):
        tasks = several(np.random.default_rng(seed), 2)
        try:
            total = sum(item.best.outcome.objective for item in map_in_order(tasks))
        except InfeasibleMappingError:
            continue
        better += map_jointly(tasks).objective < total - 1e-6
    assert better >= 3


def test_quotas_are_reduced_by_what_others_hold() -> None:
    federation = til(on_gcp(4), 2)
    placement = federation.placement("vm214", ["vm213", "vm222"])
    left = beside(federation, [(federation, placement)]).clouds
    # Server: 4 vCPUs in us-central1; clients: 8 vCPUs and a GPU each in us-central1 and us-west1.
    assert (left.provider["GCP"].max_gpus, left.provider["GCP"].max_vcpus) == (2, 80 - 20)
    assert (left.region["us-central1"].max_gpus, left.region["us-central1"].max_vcpus) == (3, 40 - 12)
    assert (left.region["us-west1"].max_gpus, left.region["us-west1"].max_vcpus) == (3, 40 - 8)


def test_the_one_that_does_not_fit_is_named_with_the_quota() -> None:
    """GCP has 4 GPUs in all; two clients each take 2, a third application finds none."""
    clouds = on_gcp(4)
    tasks = [Task(til(clouds, 2, f"TIL {k}")) for k in range(3)]
    with pytest.raises(InfeasibleMappingError) as error:
        map_in_order(tasks)
    assert str(error.value) == (
        "application 3 (TIL 2) does not fit with those before it (TIL 0, TIL 1): of the 4 GPUs of "
        "provider 'GCP' 4 are taken, at least 2 are needed (2 more)"
    )
    with pytest.raises(InfeasibleMappingError) as error:
        map_jointly(tasks)
    assert str(error.value) == (
        "the quotas have no room for all applications together (TIL 0, TIL 1, TIL 2): provider 'GCP' "
        "allows 4 GPUs, at least 6 are needed (2 more)"
    )
    with pytest.raises(InfeasibleMappingError, match=r"application 2 \(big\) cannot be placed even alone"):
        map_in_order([Task(til(on_gcp(3), 1)), Task(til(on_gcp(3), 4, "big"))])


def test_a_deadline_that_the_others_make_impossible_is_named() -> None:
    """The region of the fast vm213 allows one GPU: the second application keeps its deadline only alone."""
    clouds = on_gcp(4)
    regions = tuple(
        dataclasses.replace(item, max_gpus=1) if item.name == "us-central1" else item
        for item in clouds.regions
    )
    one = til(dataclasses.replace(clouds, regions=regions), 1)
    fast_s = map_initially(one, 0.0).best.outcome.total_s
    with pytest.raises(InfeasibleMappingError) as error:
        map_in_order([Task(one, 0.0), Task(one, 0.0, fast_s)])
    assert str(error.value).startswith(
        "application 2 (TIL) does not fit with those before it (TIL): the deadline of"
    )
    with pytest.raises(InfeasibleMappingError, match="can keep their deadlines and budgets at once"):
        map_jointly([Task(one, 0.0, fast_s), Task(one, 0.0, fast_s)])


def test_clouds_must_agree_on_what_they_share() -> None:
    with pytest.raises(FederationError, match="provider 'GCP' allows 4 GPUs in one file and 3 in another"):
        map_in_order([Task(til(on_gcp(4), 1)), Task(til(on_gcp(3), 1))])


def test_too_large_a_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.federated.mapping.joint_program.MAX_COLUMNS", 10)
    clouds = on_gcp(4)
    regions = tuple(dataclasses.replace(item, max_gpus=2) for item in clouds.regions)
    tight = dataclasses.replace(clouds, regions=regions)
    tasks = [Task(til(tight, 2)), Task(til(tight, 2))]
    with pytest.raises(FederationError, match="columns, at most 10 are practical: plan them one after"):
        map_jointly(tasks)
