"""Multi-FedLS: Algorithms 1-3 as printed, the successors that the thesis reports, and proactive moves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spotweave.agents.federated.mapping.initial import InfeasibleMappingError
from spotweave.agents.federated.multi_fedls import MultiFedLS
from spotweave.agents.federated.observing import moved, select_instance
from spotweave.agents.federated.rules.dynamic_scheduler import DynamicScheduler
from spotweave.envs.federated_data.multi_fedls import load_application, load_clouds
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.federations.model import Federation, Placement
from spotweave.envs.simulation.federations.rounds.application import (
    SERVER,
    Checkpoints,
    Degradation,
    Interruption,
    Market,
)
from spotweave.envs.simulation.federations.rounds.decisions import Outcome
from spotweave.envs.simulation.federations.rounds.deployment import Conditions, Deployment, keep_types
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.envs.simulation.snapshot import Category, Observation, empty_observation
from tests.envs.checks import decided
from tests.federation_cases import quotas_kept, random_federation


def algorithm_1(federation: Federation, current: Placement, t: int, vm: int) -> float:
    """Makespan Re-calculation, as the listing goes."""
    region, max_makespan = federation.region, -math.inf
    if t == SERVER:
        for c, current_vm in enumerate(current.clients):
            total_time = (
                federation.exec_s[c, current_vm]
                + federation.comm_s[region[current_vm], region[vm]]
                + federation.aggregation_s[vm]
            )
            max_makespan = max(max_makespan, total_time)
        return float(max_makespan)
    server = current.server
    max_makespan = (
        federation.exec_s[t, vm]
        + federation.comm_s[region[vm], region[server]]
        + federation.aggregation_s[server]
    )
    for c, current_vm in enumerate(current.clients):
        if c != t:
            total_time = (
                federation.exec_s[c, current_vm]
                + federation.comm_s[region[current_vm], region[server]]
                + federation.aggregation_s[server]
            )
            max_makespan = max(max_makespan, total_time)
    return float(max_makespan)


def algorithm_2(federation: Federation, current: Placement, makespan: float, t: int, vm: int) -> float:
    """The cost of a round: every VM for the makespan, and every client's messages."""
    server = vm if t == SERVER else current.server
    cost = makespan * federation.server_usd_s[server]
    for c, current_vm in enumerate(current.clients):
        its_vm = vm if c == t else current_vm
        cost += makespan * federation.client_usd_s[its_vm]
        cost += federation.message_usd[federation.provider[its_vm], federation.provider[server]]
    return float(cost)


def algorithm_3(
    federation: Federation, current: Placement, t: int, instances: list[int], old: int, alpha: float
) -> int | None:
    """Instance Selection, as the listing goes."""
    instances = [vm for vm in instances if vm != old]
    min_value, new_instance = math.inf, None
    for vm in instances:
        makespan = algorithm_1(federation, current, t, vm)
        cost = algorithm_2(federation, current, makespan, t, vm)
        value = alpha * (cost / federation.cost_max) + (1 - alpha) * (makespan / federation.t_max)
        if value < min_value:
            new_instance, min_value = vm, value
    return new_instance


def usable(federation: Federation, task: int) -> list[int]:
    rates = federation.server_usd_s if task == SERVER else federation.client_usd_s
    can = np.isfinite(rates) if task == SERVER else np.isfinite(federation.exec_s[task]) & np.isfinite(rates)
    return [int(k) for k in np.flatnonzero(can)]


@pytest.mark.parametrize("seed", range(60))
def test_algorithms_1_to_3_are_the_printed_listings(seed: int) -> None:
    random = np.random.default_rng(seed)
    federation = random_federation(random, int(random.integers(1, 5)), int(random.integers(2, 7)))
    clients = tuple(int(random.choice(usable(federation, c))) for c in range(len(federation.exec_s)))
    current = Placement(int(random.choice(usable(federation, SERVER))), clients)
    alpha = float(random.choice([0.0, 0.3, 0.5, 1.0]))
    for task in (SERVER, *range(len(clients))):
        old = current.server if task == SERVER else clients[task]
        for vm in usable(federation, task):
            outcome = federation.outcome(moved(current, task, vm), alpha)
            makespan = algorithm_1(federation, current, task, vm)
            assert outcome.round_s == pytest.approx(makespan, rel=1e-12)
            expected_usd = algorithm_2(federation, current, makespan, task, vm)
            assert outcome.round_usd == pytest.approx(expected_usd, rel=1e-12)
        candidates = [vm for vm in usable(federation, task) if vm != old]
        ours = select_instance(federation, current, task, candidates, alpha)
        printed = algorithm_3(federation, current, task, usable(federation, task), old, alpha)
        assert (ours is None) == (printed is None)
        if ours is not None and printed is not None:
            values = [federation.outcome(moved(current, task, vm), alpha).objective for vm in (ours, printed)]
            assert values[0] == pytest.approx(values[1], rel=1e-12)


PROOF_OF_CONCEPT = ("vm111", "vm112", "vm113", "vm211", "vm213", "vm214", "vm222", "vm223")
"""Section 7.7: the types that could be rented."""


def names(outcome: Outcome, task: int) -> list[str]:
    """VM types that a task was on, in their order."""
    offers = outcome.application.offers
    bills = sorted((bill for bill in outcome.bills if bill.client == task), key=lambda bill: bill.start_s)
    return [offers[bill.offer].name.split()[0] for bill in bills]


KEPT = Checkpoints(every_rounds=10, on_clients=True)


def played(deployment: Deployment, seed: int = 0, **options: Any) -> Outcome:
    return play(deployment.application, MultiFedLS(deployment, **options), seed)


def til(*interruptions: tuple[int, int], **conditions: Any) -> Deployment:
    """TIL on CloudLab with 50 rounds (Tables 7.14 and 7.15)."""
    application = replace(load_application("til_cloudlab"), rounds=50)
    given = tuple(Interruption(task, time_s) for task, time_s in interruptions)
    under = Conditions(checkpoints=KEPT, interruptions=given, **conditions)
    return Deployment(application, load_clouds("cloudlab"), under)


def test_til_is_placed_and_replaced_as_the_thesis_reports() -> None:
    """Section 7.6.1: clients from vm326 to vm338, the server from vm321 to vm412."""
    deployment = til((0, 900), (SERVER, 1900))
    outcome = played(deployment)
    assert names(outcome, SERVER) == ["vm321", "vm412"]
    assert names(outcome, 0) == ["vm326", "vm338"]
    assert [names(outcome, k) for k in (1, 2, 3)] == [["vm326"]] * 3
    same = played(deployment, exclude_revoked=False)
    assert names(same, SERVER) == ["vm321", "vm321"]
    assert names(same, 0) == ["vm326", "vm326"]


def test_the_proof_of_concept_is_placed_and_replaced_as_the_thesis_reports() -> None:
    """Section 7.7: server vm113, clients vm111; a client goes to vm211, the server to vm214."""
    application = load_application("til_aws2_gcp2")
    application = replace(application, clients=(application.clients[0], application.clients[2]), rounds=30)
    given = (Interruption(0, 900), Interruption(SERVER, 3900))
    clouds = keep_types(load_clouds("aws_gcp"), PROOF_OF_CONCEPT)
    deployment = Deployment(application, clouds, Conditions(checkpoints=KEPT, interruptions=given))
    outcome = played(deployment, server_market=Market.ON_DEMAND, client_market=Market.ON_DEMAND)
    assert names(outcome, SERVER) == ["vm113", "vm214"]
    assert names(outcome, 0) == ["vm111", "vm211"]
    assert names(outcome, 1) == ["vm111"]


def test_without_revocations_the_world_plays_what_the_model_computes() -> None:
    for name in ("til_cloudlab", "shakespeare", "femnist"):
        deployment = Deployment(load_application(name), load_clouds("cloudlab"))
        policy = MultiFedLS(deployment)
        outcome = play(deployment.application, policy, 0)
        expected = policy.federation.outcome(policy.initial)
        # What rounding to whole seconds takes off one round, it adds to the next.
        assert outcome.time_s == pytest.approx(expected.total_s, abs=2)
        rate_usd_s = (expected.round_usd - outcome.messages_usd / len(outcome.rounds)) / expected.round_s
        assert outcome.cost_usd - outcome.messages_usd == pytest.approx(rate_usd_s * outcome.time_s)


def test_types_come_back_where_every_type_was_revoked() -> None:
    clouds = keep_types(load_clouds("cloudlab"), ("vm326", "vm338"))
    given = tuple(Interruption(0, time_s) for time_s in (200, 400, 600))
    application = load_application("til_cloudlab")
    deployment = Deployment(application, clouds, Conditions(checkpoints=KEPT, interruptions=given))
    assert names(played(deployment), 0) == ["vm326", "vm338", "vm326", "vm338"]


def test_the_markets_of_server_and_clients_are_chosen_separately() -> None:
    deployment = til(revocation_mean_s=7200.0)
    outcome = played(deployment, 3, server_market=Market.ON_DEMAND, client_market=Market.SPOT)
    markets = {bill.client: deployment.application.offers[bill.offer].market for bill in outcome.bills}
    assert markets == {SERVER: Market.ON_DEMAND, **dict.fromkeys(range(4), Market.SPOT)}
    assert not [task for task, _ in outcome.interruptions if task == SERVER]
    steady = played(deployment, 3, server_market=Market.ON_DEMAND, client_market=Market.ON_DEMAND)
    assert not steady.interruptions


def test_a_quota_sends_the_successor_elsewhere() -> None:
    clouds = load_clouds("cloudlab")
    regions = tuple(
        replace(region, max_gpus=0) if region.name == "clemson" else region for region in clouds.regions
    )
    deployment = replace(til((0, 900)), clouds=replace(clouds, regions=regions))
    # vm338 in Clemson has GPUs; the best of the others is r650 there, which has none.
    assert names(played(deployment), 0)[1] not in ("vm326", "vm338")


@pytest.mark.parametrize("seed", range(25))
def test_quotas_hold_at_every_moment_whatever_is_revoked(seed: int) -> None:
    random = np.random.default_rng(seed)
    federation = random_federation(random, 3, 6, tight=True)
    # These clouds have no spot prices; revocations that are given hit any VM.
    given = tuple(Interruption(int(random.integers(-1, 3)), int(random.integers(1, 3000))) for _ in range(12))
    conditions = Conditions(checkpoints=KEPT, spin_up_s={"p0": 30.0, "p1": 60.0}, interruptions=given)
    deployment = Deployment(federation.application, federation.clouds, conditions)
    try:
        policy = MultiFedLS(deployment, Market.ON_DEMAND, Market.ON_DEMAND, exclude_revoked=bool(seed % 2))
    except InfeasibleMappingError:
        pytest.skip("no placement keeps the quotas")
    outcome = play(deployment.application, policy, seed)
    assert len(outcome.rounds) == federation.application.rounds
    clouds = federation.clouds
    for now_s in {bill.start_s for bill in outcome.bills}:
        used = [
            clouds.vm_types[deployment.places[bill.offer][0]]
            for bill in outcome.bills
            if bill.start_s <= now_s < bill.end_s
        ]
        assert quotas_kept(clouds, used)


def slow(deployment: Deployment, **degradation: Any) -> Deployment:
    degradations = (Degradation(**degradation),)
    return deployment.with_conditions(replace(deployment.conditions, degradations=degradations))


def test_a_client_leaves_a_vm_that_has_become_slow_if_that_pays() -> None:
    calm = til()
    types = [vm.name for vm in calm.clouds.vm_types]
    offer = calm.offer_of[types.index("vm326"), Market.SPOT]
    # Forty times slower: 4,948 s of computation instead of 124.
    degraded = slow(calm, slowdown=40.0, from_s=1000, offer=offer)
    waits, moves = played(degraded), played(degraded, move_factor=1.5)
    assert names(waits, 0) == ["vm326"]
    others = keep_types(calm.clouds, [name for name in types if name != "vm326"])
    best = MultiFedLS(replace(calm, clouds=others))
    server, *clients = best.federation.describe(best.initial)
    assert names(moves, SERVER)[-1] == server
    assert [names(moves, k) for k in range(4)] == [["vm326", name] for name in clients]
    assert moves.time_s < 0.5 * waits.time_s
    assert moves.cost_usd < 0.5 * waits.cost_usd
    # Twice as slow is more than the factor, but still the fastest type by far.
    mild = slow(calm, slowdown=2.0, from_s=1000, offer=offer)
    assert names(played(mild, move_factor=1.5), 0) == ["vm326"]
    # Nothing degraded, nothing moved.
    assert names(played(calm, move_factor=1.5), 0) == ["vm326"]


def test_the_server_leaves_a_region_whose_link_has_become_slow_if_that_pays() -> None:
    # Messages within Wisconsin from 9 s to 354 s; between Wisconsin and APT they take 24 s.
    degraded = slow(til(), slowdown=40.0, from_s=1000, link=("wisconsin", "wisconsin"))
    waits, moves = played(degraded), played(degraded, move_factor=1.5)
    region = {vm.name: vm.region for vm in degraded.clouds.vm_types}
    assert names(waits, SERVER) == ["vm321"]
    assert region[names(moves, SERVER)[0]] == "wisconsin"
    assert region[names(moves, SERVER)[1]] != "wisconsin"
    assert moves.time_s < 0.5 * waits.time_s
    assert not moves.server_losses
    # A spin-up of five hours costs more than the rounds that are left would gain.
    spin_up_s = dict.fromkeys(("Cloud A", "Cloud B"), 18_000.0)
    far = slow(til(spin_up_s=spin_up_s), slowdown=40.0, link=("wisconsin",) * 2)
    assert names(played(far, move_factor=1.5), SERVER) == ["vm321"]


def test_one_slow_round_is_not_a_degradation() -> None:
    # Round 3 lasts from about 285 s to 421 s; only that one is slow.
    short = slow(til(), slowdown=40.0, from_s=200, until_s=290, link=("wisconsin", "wisconsin"))
    outcome = played(short, move_factor=1.5)
    assert names(outcome, SERVER) == ["vm321"]
    assert outcome.time_s > played(til()).time_s + 300


def test_a_move_factor_must_mean_something() -> None:
    with pytest.raises(ValueError, match=r"move_factor is 1\.0"):
        MultiFedLS(til(), move_factor=1.0)


def lost(*offers: tuple[float, float, bool]) -> Observation:
    """A client without an instance, 600 s before the others have delivered, which cost 2 USD an hour.

    `offers`: USD an hour, seconds of its epoch after a launch of 100 s, whether on spot.
    """
    seen = empty_observation(1, len(offers), (1,))
    job, clusters, pairs = seen["jobs"][0, 0], seen["clusters"][0], seen["pairs"][0, 0]
    job[[col.PRESENT, col.OWES, col.EXECUTIONS]] = 1
    job[col.CATEGORY] = Category.FEDERATED
    job[[col.ROUND_LEFT_S, col.ROUND_S]] = 600
    job[col.OTHERS_USD_HOUR] = 2
    clusters[:, col.LAUNCH_S] = 100
    clusters[:, [col.CAPACITY_MAX, col.CAPACITY_NOW]] = 1
    pairs[:, col.REQUEST] = 1
    for number, (usd_hour, epoch_s, spot) in enumerate(offers):
        clusters[number, [col.PRICE_USD_HOUR, col.IS_SPOT]] = usd_hour, spot
        pairs[number, col.EXECUTION_S] = epoch_s
    seen["action_mask"][:] = 1
    return seen


def chosen(seen: Observation, alpha: float = 0.5) -> int:
    return decided(DynamicScheduler(alpha), seen)


def test_from_an_observation_it_weighs_the_rounds_time_and_cost() -> None:
    # The round takes 1,000 s at 3 USD an hour or 600 s at 5: 0.833 USD both.
    assert chosen(lost((1, 900, True), (3, 500, True))) == 1
    assert chosen(lost((1, 900, True), (3.1, 500, True)), alpha=1) == 0
    assert chosen(lost((1, 900, True), (30, 500, True)), alpha=0) == 1
    # 0.833 USD in 1,000 s or 2 USD in 600 s: 0.5 * 0.417 + 0.5 * 1 against 0.5 * 1 + 0.5 * 0.6.
    assert chosen(lost((1, 900, True), (10, 500, True))) == 0
    # Faster than the others is worth nothing.
    assert chosen(lost((1, 500, True), (3, 100, True)), alpha=0.01) == 0


def test_from_an_observation_it_keeps_what_runs_and_prefers_spot() -> None:
    seen = lost((1, 500, True), (0.1, 500, False), (2, 500, True))
    assert chosen(seen) == 0
    seen["action_mask"][0, [0, 2]] = 0
    assert chosen(seen) == 1
    seen["action_mask"][0, 1] = 0
    assert chosen(seen) == 3
    seen["action_mask"][0, 2] = seen["pairs"][0, 0, 2, col.HERE] = 1
    assert chosen(seen) == 2
    with pytest.raises(ValueError, match=r"alpha=1\.5: expected 0"):
        DynamicScheduler(1.5)
