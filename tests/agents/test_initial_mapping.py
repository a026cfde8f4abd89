"""The initial mapping: equal to enumeration, to the published optima, and clear about what is in the way."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from spotweave.agents.federated.mapping.initial import InfeasibleMappingError, map_initially, quota_shortfalls
from spotweave.agents.federated.mapping.problem import Candidate, MappingProblem, QuotaProgram, RoundLimits
from spotweave.agents.federated.mapping.search import Search
from spotweave.envs.federated_data.multi_fedls import load_application, load_clouds, published_placements
from spotweave.envs.simulation.federations.application import FederationError
from spotweave.envs.simulation.federations.model import Federation, Outcome, Placement
from tests.federation_cases import (
    enumerate_placements,
    published_federation,
    quotas_kept,
    random_federation,
)

ALPHAS = (0.0, 0.1, 0.5, 0.9, 1.0)


def brute_force(federation: Federation, alpha: float, limits: RoundLimits) -> list[Outcome]:
    """Outcomes of every placement of every single client, quotas counted by hand, best first."""
    clouds = federation.clouds
    outcomes = []
    types = range(len(clouds.vm_types))
    for server, *clients in product(types, repeat=1 + len(federation.application.clients)):
        if not all(clouds.vm_types[k].hosts_clients for k in clients):
            continue
        within = quotas_kept(clouds, [clouds.vm_types[k] for k in (server, *clients)])
        outcome = federation.outcome(Placement(server, tuple(clients)), alpha)
        if within and limits.allow(outcome.round_s, outcome.round_usd):
            outcomes.append(outcome)
    return sorted(outcomes, key=lambda outcome: (outcome.objective, outcome.round_usd))


def random_limits(random: np.random.Generator, candidates: list[Candidate]) -> RoundLimits:
    """Limits that some of the candidates keep exactly, or none."""
    if not candidates or random.random() < 0.4:
        return RoundLimits()
    seconds = [candidate.outcome.round_s for candidate in candidates]
    usd = [candidate.outcome.round_usd for candidate in candidates]
    return RoundLimits(
        float(random.choice(seconds)) if random.random() < 0.7 else math.inf,
        float(random.choice(usd)) if random.random() < 0.7 else math.inf,
    )


@pytest.mark.parametrize("seed", range(25))
def test_enumeration_equals_brute_force(seed: int) -> None:
    random = np.random.default_rng([1, seed])
    federation = random_federation(random, int(random.integers(1, 4)), int(random.integers(2, 5)))
    alpha = float(random.choice(ALPHAS))
    everything = enumerate_placements(MappingProblem(federation, alpha))
    limits = random_limits(random, everything)
    expected = brute_force(federation, alpha, limits)
    found = enumerate_placements(MappingProblem(federation, alpha, limits))
    # Exchanging equal clients gives several placements with one outcome: compare distinct objectives.
    distinct = sorted({round(outcome.objective, 12) for outcome in expected})
    assert sorted({round(item.outcome.objective, 12) for item in found}) == pytest.approx(distinct, abs=1e-11)
    assert bool(found) == bool(expected)
    if found:
        assert found[0].outcome.objective == pytest.approx(expected[0].objective, abs=1e-12)


@pytest.mark.parametrize("seed", range(200))
def test_the_search_equals_enumeration(seed: int) -> None:
    random = np.random.default_rng([2, seed])
    federation = random_federation(random, int(random.integers(1, 6)), int(random.integers(1, 6)))
    alpha = float(random.choice(ALPHAS))
    limits = random_limits(random, enumerate_placements(MappingProblem(federation, alpha)))
    problem = MappingProblem(federation, alpha, limits)
    expected = enumerate_placements(problem, 3)
    ranked: list[Candidate] = []
    while len(ranked) < 3:
        found = Search(problem, ranked).run()
        assert found.gap <= 1e-10
        if found.best is None:
            break
        ranked.append(found.best)
    objectives = [candidate.outcome.objective for candidate in ranked]
    assert objectives == pytest.approx([item.outcome.objective for item in expected], abs=1e-9)
    assert len({candidate.counts.tobytes() for candidate in ranked}) == len(ranked)
    if expected:
        assert ranked[0].outcome.round_usd == pytest.approx(expected[0].outcome.round_usd, abs=1e-9)


def tight_problem(seed: int) -> MappingProblem:
    """A problem whose quotas split groups of equal clients."""
    random = np.random.default_rng([3, seed])
    federation = random_federation(random, 6, 5, distinct=bool(seed % 2), tight=True)
    return MappingProblem(federation, float(random.choice([0.5, 0.9, 1.0])))


@pytest.mark.parametrize("seed", range(30))
def test_the_search_equals_enumeration_where_quotas_split_groups(seed: int) -> None:
    problem = tight_problem(seed)
    expected = enumerate_placements(problem, 1)
    found = Search(problem).run()
    assert (found.best is None) == (not expected)
    if found.best is not None:
        assert found.best.outcome.objective == pytest.approx(expected[0].outcome.objective, abs=1e-9)


def test_those_cases_reach_the_integer_program(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    exact = QuotaProgram.exact

    def counting(self: QuotaProgram, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return exact(self, *arguments, **options)

    monkeypatch.setattr(QuotaProgram, "exact", counting)
    for seed in range(30):
        Search(tight_problem(seed)).run()
    assert calls >= 10


# --- published optima (Tables 7.8 and 7.9) ---

OPTIMA = [setup for setup in published_placements()["tables_7_8_to_7_10"] if setup["setup"] == "optimal"]


@pytest.mark.parametrize("setup", OPTIMA, ids=lambda setup: setup["application"])
def test_the_published_optima(setup: dict[str, Any]) -> None:
    federation = published_federation(setup)
    # Table 7.8: 10,000 s and 30,000 USD per round, far from binding
    rounds = federation.application.rounds
    found = map_initially(federation, 0.5, 10_000 * rounds, 30_000 * rounds)
    printed = federation.placement(setup["server"], setup["clients"])
    assert found.proved
    assert found.best.outcome.objective == pytest.approx(federation.outcome(printed).objective, abs=1e-12)
    assert f"{found.best.outcome.round_usd:.2f}" == f"{setup['round_usd']:.2f}"
    if setup["application"] != "til_aws2_gcp2":
        assert found.best.placement == printed


def test_the_printed_map_that_is_one_of_several_optima_is_among_the_runners_up() -> None:
    setup = next(item for item in OPTIMA if item["application"] == "til_aws2_gcp2")
    federation = published_federation(setup)
    found = map_initially(federation, runners_up=4)
    printed = federation.placement(setup["server"], setup["clients"])
    problem = MappingProblem(federation, 0.5)
    plans, least = (found.best, *found.runners_up), found.best.outcome.objective
    equal = [plan.placement for plan in plans if abs(plan.outcome.objective - least) < 1e-12]
    # Which of the two equal clients is in vm111 makes no difference.
    assert len(equal) == 3
    assert sorted(printed.clients) in [sorted(placement.clients) for placement in equal]
    assert all(problem.servers[placement.server] for placement in equal)


def test_the_authors_map_on_cloudlab_is_optimal() -> None:
    federation = Federation(load_application("til_cloudlab"), load_clouds("cloudlab"))
    found = map_initially(federation)
    # Table 7.14's text: the clients start on vm326, the server on vm321
    assert federation.describe(found.best.placement) == ("vm321", "vm326", "vm326", "vm326", "vm326")
    assert found.best.outcome.total_s == pytest.approx(1357.5336, abs=1e-3)


def test_fifty_clients_are_one_group_each_place_of_data() -> None:
    federation = Federation(load_application("til_aws25_gcp25"), load_clouds("aws_gcp"))
    problem = MappingProblem(federation, 0.5)
    assert problem.sizes.tolist() == [25, 25, 1]


def test_limits_of_all_rounds_and_runners_up_are_those_of_enumeration(gcp4: Federation) -> None:
    found = map_initially(gcp4, 0.3, 3000, 11, runners_up=5)
    rounds = gcp4.application.rounds
    expected = enumerate_placements(MappingProblem(gcp4, 0.3, RoundLimits(3000 / rounds, 11 / rounds)), 6)
    assert [plan.outcome.objective for plan in (found.best, *found.runners_up)] == pytest.approx(
        [item.outcome.objective for item in expected], abs=1e-12
    )
    assert found.best.placement == expected[0].placement


# --- limits ---


@pytest.fixture(scope="module")
def gcp4() -> Federation:
    return Federation(load_application("til_gcp4"), load_clouds("aws_gcp"))


def infeasible(federation: Federation, deadline_s: float, budget_usd: float) -> tuple[str, str]:
    """The limit that is in the way, and the one line that tells it."""
    with pytest.raises(InfeasibleMappingError) as caught:
        map_initially(federation, 0.5, deadline_s, budget_usd)
    assert "\n" not in str(caught.value)
    return caught.value.limit, str(caught.value)


def test_a_deadline_that_is_too_short_is_named_with_what_it_lacks(gcp4: Federation) -> None:
    fastest_s = 10 * (233.01 * 0.42 + 27.26 * 0.34 + 0.2)
    limit, message = infeasible(gcp4, 1000.0, math.inf)
    assert limit == "deadline"
    assert "deadline of 1000 s is too short by 73.33 s" in message
    assert map_initially(gcp4, 0.5, fastest_s).best.outcome.total_s == pytest.approx(fastest_s)
    infeasible(gcp4, fastest_s - 0.001, math.inf)


def test_a_budget_that_is_too_small_is_named_with_what_it_lacks(gcp4: Federation) -> None:
    cheapest = map_initially(gcp4, 1.0).best.outcome.total_usd
    limit, message = infeasible(gcp4, math.inf, 8.0)
    assert limit == "budget"
    assert f"budget of 8 USD is too small by {cheapest - 8:.4f} USD" in message
    kept = map_initially(gcp4, 0.0, math.inf, cheapest).best.outcome
    assert kept.total_usd == pytest.approx(cheapest)


def test_limits_that_only_clash_with_each_other_are_both_named(gcp4: Federation) -> None:
    limit, message = infeasible(gcp4, 1100.0, 9.0)
    assert limit == "deadline and budget"
    fast = 10 * gcp4.outcome(gcp4.placement("vm214", ["vm213"] * 4)).round_usd
    assert f"costs {fast:.4f} USD ({fast - 9:.4f} USD more)" in message


def test_a_quota_without_room_is_named_with_what_it_lacks(gcp4: Federation) -> None:
    regions = tuple(replace(region, max_vcpus=8) for region in gcp4.clouds.regions)
    narrow = Federation(gcp4.application, replace(gcp4.clouds, regions=regions))
    limit, message = infeasible(narrow, math.inf, math.inf)
    assert limit == "quota"
    # One client of 8 vCPUs fits each of the four regions; the server's 4 vCPUs fit none.
    assert "allows 8 vCPUs, at least 12 are needed (4 more)" in message


@pytest.mark.parametrize("seed", range(40))
def test_raising_the_named_quota_by_the_named_amount_and_no_less_makes_room(seed: int) -> None:
    random = np.random.default_rng([4, seed])
    federation = random_federation(random, 5, 4, tight=True)
    short = quota_shortfalls(federation)
    feasible = bool(enumerate_placements(MappingProblem(federation, 0.5)))
    assert feasible == (not short)

    def raised(less: int) -> Federation:
        clouds = federation.clouds
        for item in short:
            field = {"GPUs": "max_gpus", "vCPUs": "max_vcpus"}[item.what]
            kind, _, name = item.owner.partition(" ")
            owners: Any = getattr(clouds, f"{kind}s")
            quota = {field: item.needed - less}
            found = tuple(replace(one, **quota) if repr(one.name) == name else one for one in owners)
            change: dict[str, Any] = {f"{kind}s": found}
            clouds = replace(clouds, **change)
        return Federation(federation.application, clouds)

    if short:
        assert enumerate_placements(MappingProblem(raised(0), 0.5))
        assert not enumerate_placements(MappingProblem(raised(1), 0.5))


def test_a_slower_first_round_counts_against_the_limits(gcp4: Federation) -> None:
    federation = Federation(replace(gcp4.application, first_round_slowdown=4.0), gcp4.clouds)
    free = map_initially(federation, 0.5).best.outcome
    assert free.total_s == pytest.approx(free.round_s * 10 + 3 * 233.01 * 0.42)
    # Enough for ten steady rounds but not for the first
    infeasible(federation, free.round_s * 10 + 1, math.inf)
    kept = map_initially(federation, 1.0, free.total_s).best.outcome
    assert kept.total_s <= free.total_s * (1 + 1e-9)
    assert map_initially(federation, 0.0, math.inf, 9.5).best.outcome.total_usd <= 9.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.5}, "alpha is 1.5, expected 0"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"deadline_s": 0.0}, "the deadline is 0.0, expected a number > 0"),
        ({"budget_usd": -1.0}, "the budget is -1.0, expected a number > 0"),
        ({"runners_up": -1}, "runners_up is -1"),
        ({"gap": 1.0}, "gap is 1.0"),
    ],
)
def test_arguments_out_of_range_get_one_line(options: dict[str, Any], message: str, gcp4: Federation) -> None:
    with pytest.raises(FederationError, match=message):
        map_initially(gcp4, **options)


def test_an_unfinished_proof_reports_a_bound_below_the_optimum() -> None:
    federation = random_federation(np.random.default_rng([5, 1]), 6, 5, distinct=True)
    problem = MappingProblem(federation, 0.5)
    optimum = Search(problem).run()
    assert optimum.best is not None
    loose = Search(problem, gap=0.5).run()
    assert loose.best is not None
    assert loose.lower_bound <= optimum.best.outcome.objective + 1e-12
    assert loose.best.outcome.objective >= optimum.best.outcome.objective - 1e-12
    assert loose.gap <= 0.5
    none = Search(problem, time_limit_s=0.0).run()
    assert none.best is None
    assert none.lower_bound <= optimum.best.outcome.objective
    with pytest.raises(FederationError, match="allow more time"):
        map_initially(federation, time_limit_s=0.0)


def test_more_runners_up_than_placements_gives_all_of_them() -> None:
    drawn = random_federation(np.random.default_rng([6, 2]), 2, 2)
    federation = Federation(drawn.application, drawn.clouds.without_quotas())
    everything = enumerate_placements(MappingProblem(federation, 0.5))
    assert 1 + len(map_initially(federation, runners_up=1000).runners_up) == len(everything)
