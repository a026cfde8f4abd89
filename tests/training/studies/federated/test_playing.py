"""What is played is what the simulation says; estimates by hand; results are kept; the scheduler on zones."""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from spotweave.agents.federated.multi_fedls import ZoneScheduler
from spotweave.agents.federated.observing import Observing
from spotweave.agents.federated.rules.always_on import AlwaysOn
from spotweave.agents.federated.rules.fed_cost_aware import FedCostAware
from spotweave.agents.named import named_rule
from spotweave.envs.federated_episodes import FederatedConfig, federated_source
from spotweave.envs.simulation.federations.rounds.application import (
    Application,
    Client,
    Interruption,
    Market,
    Offer,
    Tariff,
)
from spotweave.envs.simulation.federations.rounds.decisions import NEVER, Answer, Cause, Placement, Question
from spotweave.envs.simulation.federations.rounds.draws import Draws
from spotweave.envs.simulation.federations.rounds.running import RunningApplication
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.envs.simulation.federations.world import FederatedWorld, OneApplication
from spotweave.envs.simulation.streams import episode_sequence
from spotweave.training.evaluation.episodes import Suite, find_suite, run_suite
from spotweave.training.evaluation.statistics import estimate
from spotweave.training.studies.evaluations import SOURCES, code_hash
from spotweave.training.studies.federated.brum import spot_cases
from spotweave.training.studies.federated.cheapest import Schedule, cheapest_schedule, least_cost_usd
from spotweave.training.studies.federated.playing import METRICS, columns, paired, play_all, with_savings
from spotweave.training.studies.federated.sinha import VARIED, data_sets, varied_application, when_ready

SUITE = Suite("two", "test", 3003, 2)
ON_DEMAND = Offer("on demand", "a", Market.ON_DEMAND, Tariff.constant(3600.0))


def zone(name: str, usd_hour: float) -> Offer:
    return Offer(name, name, Market.SPOT, Tariff.constant(usd_hour))


NONE_LOST = dict.fromkeys(("interruptions", "left", "rounds_lost", "work_lost", "budgets_exceeded"), 0.0)


@pytest.mark.parametrize(
    ("budget_usd", "expected"),
    [
        # Its budget lasts: 10 s of spin-up, epochs of 110 and 100 s.
        (500.0, {"cost_usd": 220.0, "time_min": 220 / 60, "cost_percent": 100.0, "delay_percent": 0.0}),
        # 150 dollars pay for 10 + 110 s and 30 s of the second epoch; then the only client leaves.
        (150.0, {"cost_usd": 150.0, "left": 1.0, "work_lost": 1.0, "rounds_lost": 1.0}),
    ],
)
def test_metrics_by_hand(budget_usd: float, expected: dict[str, float]) -> None:
    """A client that pays a dollar a second."""
    client = Client("c", 100, 110, 10, (0,), budget_usd=budget_usd)
    source = OneApplication(Application("one", 2, (client,), (ON_DEMAND,)))
    played = columns(play_all(source, lambda _: AlwaysOn(Market.ON_DEMAND), SUITE))
    assert list(played) == list(METRICS)
    for metric, value in {**NONE_LOST, **expected}.items():
        assert played[metric] == pytest.approx([value, value]), metric


def test_observers_are_measured_as_the_environment_measures_them() -> None:
    source = federated_source(FederatedConfig(market="zones", clients_most=3, rounds_most=7))
    rule = named_rule("round_cost")
    ours = columns(play_all(source, lambda _: Observing(rule), SUITE))
    theirs = run_suite(FederatedWorld(source, 2), rule, SUITE)
    for metric in ("cost_usd", "time_min", "cost_percent", "delay_percent", "interruptions", "left"):
        assert ours[metric] == pytest.approx([result.metrics[metric] for result in theirs])


def test_estimates_by_hand() -> None:
    full = with_savings({"ours": {"cost_usd": [30.0, 50.0]}, "on_demand": {"cost_usd": [100.0, 100.0]}})
    assert full["ours"]["saving_percent"] == [70.0, 50.0]
    constant = estimate([4.0, 4.0, 4.0])
    assert constant == {"mean": 4.0, "interval": [4.0, 4.0]}
    ours = {"usd": [1.0, 3.0], "time": [5.0, 7.0]}
    theirs = {"usd": [2.0, 4.0], "time": [5.0, 5.0]}
    found = paired(ours, theirs, {"usd": "percent", "time": "difference"})
    # -1 of 3 on average; both episodes alone give -50 % and -25 %.
    assert found["usd"]["mean"] == pytest.approx(-100 / 3)
    assert found["usd"]["interval"] == pytest.approx([-50.0, -25.0])
    assert found["time"]["mean"] == 1.0
    with pytest.raises(ValueError, match="the same episodes: got 2 and 1"):
        paired(ours, {"usd": [1.0], "time": [1.0]}, {"usd": "percent"})


def test_the_code_hash_sees_every_source(tmp_path: Path) -> None:
    for name in SOURCES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.write_text("x")
        else:
            path.mkdir(exist_ok=True)
            (path / "one.json").write_text("x")
    hashes = {code_hash(root=tmp_path)}
    for name in SOURCES:
        path = tmp_path / name
        (path if path.suffix else path / "one.json").write_text(f"changed {name}")
        hashes.add(code_hash(root=tmp_path))
    assert len(hashes) == len(SOURCES) + 1
    assert code_hash() == code_hash()


def test_on_zones_the_cheapest_that_was_not_revoked_and_all_again_after_the_last() -> None:
    offers = (zone("dear", 3.0), zone("cheap", 1.0), zone("middle", 2.0), ON_DEMAND)
    times = (100, 500, 900, 1300)
    given = Application(
        "zones",
        3,
        (Client("c", 600, 650, 10, (0, 1, 2, 3)),),
        offers,
        interruptions=tuple(Interruption(0, time_s) for time_s in times),
    )
    outcome = play(given, ZoneScheduler(), 0)
    rented = [offers[bill.offer].name for bill in outcome.bills]
    assert rented == ["cheap", "middle", "dear", "cheap", "middle"]
    assert [bill.end_s for bill in outcome.bills[:-1]] == list(times)
    assert len(outcome.rounds) == 3


def test_one_coefficient_is_raised_at_a_time() -> None:
    for application, _ in data_sets().values():
        assert (application.epoch_cv, application.spin_up_cv) == (0.01, 0.1)
        for varied in VARIED:
            changed = varied_application(application, varied, 0.5)
            assert getattr(changed, varied) == 0.5
            assert dataclasses.replace(changed, **{varied: getattr(application, varied)}) == application


# Multi-FedLS's spot cases with policies that read observations: all printed rates, and every one ends.


def test_every_printed_rate_is_a_case() -> None:
    rates = [(case.partition(",")[0].partition(":")[0], rate) for case, (_, rate) in spot_cases().items()]
    assert sorted(rates) == [
        ("FEMNIST on CloudLab", 3600),
        ("FEMNIST on CloudLab", 7200),
        ("Proof of concept", 7200),
        ("Shakespeare on CloudLab", 3600),
        ("Shakespeare on CloudLab", 7200),
        ("TIL on CloudLab", 7200),
        ("TIL on CloudLab", 14400),
    ]


@pytest.mark.parametrize("title", [case for case in spot_cases() if case.startswith("TIL")])
def test_nobody_waits_for_ever_where_types_differ(title: str) -> None:
    """Clients that would all be first on a fast type once waited for each other, each on a slow one."""
    scenario, rate = spot_cases()[title]
    conditions = dataclasses.replace(scenario.deployment.conditions, revocation_mean_s=rate)
    application = dataclasses.replace(
        scenario.deployment.with_conditions(conditions).application, start_together=False
    )
    rule = named_rule("round_cost")
    played = columns(
        play_all(OneApplication(application), lambda _: Observing(rule, True), find_suite("test", 2))
    )
    assert played["rounds_lost"] == [0, 0]
    assert max(played["time_min"]) < 24 * 60


# The cheapest schedule: by hand, by trying requests in every second, and carried out in the simulation.


USD_A_SECOND = (Offer("spot", "zone", Market.SPOT, Tariff.constant(3600.0)),)


def application(
    clients: list[tuple[float, float, float]],
    rounds: int,
    cv: float = 0.0,
    aggregation_s: int = 0,
    offers: tuple[Offer, ...] = USD_A_SECOND,
) -> Application:
    """Clients of (warm, cold, spin-up) seconds; a second costs a dollar."""
    return Application(
        "small",
        rounds,
        tuple(Client(f"c{k}", *times, tuple(range(len(offers)))) for k, times in enumerate(clients)),
        offers,
        aggregation_s=aggregation_s,
        start_together=False,
        epoch_cv=cv,
        spin_up_cv=cv,
        billing_minimum_s=0,
    )


class Script:
    """Carries out a schedule."""

    name = "script"

    def __init__(self, schedule: Schedule, offer: int = 0) -> None:
        self._instances = schedule.instances
        self._offer = offer

    def start(self, view: RunningApplication) -> None:
        """Nothing is remembered."""

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """Keep an instance to its last round, request the next one at its second."""
        client = view.clients[question.client]
        mine = [item for item in self._instances if item.client == question.client]
        if client.running:
            now = next(item for item in mine if item.launch_s == client.launched_s)
            if question.cause is not Cause.FINISHED or view.round_index < now.last_round:
                return Placement(self._offer)
            mine = [item for item in mine if item.launch_s > now.launch_s]
        following = next((item for item in mine if item.launch_s >= view.now_s), None)
        if following is None:
            return Placement(self._offer, NEVER)
        if following.launch_s == view.now_s and view.round_index < following.requested:
            return Placement(self._offer, NEVER)  # asked again when the next round begins in this second
        return Placement(self._offer, following.launch_s)


def test_by_hand_two_epochs_share_a_start() -> None:
    """The slow client pays 30 + 110 + 100 + 100, the fast one 30 + 20 + 10 for two and 30 + 20 for one."""
    small = application([(100, 110, 30), (10, 20, 30)], 3)
    schedule = cheapest_schedule(small, 0)
    assert schedule.time_s == 340
    assert schedule.cost_usd == pytest.approx(340 + 60 + 50)
    assert least_cost_usd(small, 0) == pytest.approx(450)
    outcome = play(small, Script(schedule), 0)
    assert outcome.time_s == 340
    assert outcome.cost_usd == pytest.approx(450)


def test_by_hand_a_cold_epoch_that_fits_no_round_keeps_its_client_on() -> None:
    """Cold 90 is longer than the second round of 60, so both stay on; the first round takes 50 + 110."""
    small = application([(60, 110, 50), (30, 90, 50)], 2)
    schedule = cheapest_schedule(small, 0)
    assert schedule.time_s == 220
    # The other one starts 20 s late in round 1 and delivers round 2 30 s early.
    assert schedule.cost_usd == pytest.approx(220 + 220 - 20 - 30)
    assert least_cost_usd(small, 0) == pytest.approx(220 + 50 + 90 + 30)


def brute_force(small: Application, root: int) -> tuple[float, int]:
    """(USD, seconds): every set of rounds with a new instance, every second of every request."""
    draws = Draws(small, root)
    clients, rounds = range(len(small.clients)), range(small.rounds)
    ends: list[int] = []
    begins = [0]
    for r in rounds:
        lasting = max(
            draws.spin_up_s(k, 0, 0) + draws.cold_s[k][0] if r == 0 else draws.warm_s[k][r] for k in clients
        )
        ends.append(begins[-1] + lasting)
        begins.append(ends[-1] + small.aggregation_s)
    total = 0.0
    for k in clients:
        best = math.inf
        for n in range(small.rounds):
            for more in combinations(rounds[1:], n):
                starts = (0, *more)
                for launches in product(range(begins[-1] + 1), repeat=len(starts)):
                    best = min(best, paid(draws, k, starts, launches, begins, ends))
        total += best
    return total, begins[-1]


def paid(
    draws: Draws,
    k: int,
    starts: tuple[int, ...],
    launches: tuple[int, ...],
    begins: list[int],
    ends: list[int],
) -> float:
    """Seconds paid; inf where a round is late or an instance requested while its predecessor runs."""
    rounds = len(ends)
    # At the second that ends one round and begins the next, a request belongs to either.
    during = [
        [r for r in range(first + 1) if begins[r] <= launch_s <= begins[r + 1]]
        for first, launch_s in zip(starts, launches, strict=True)
    ]
    best = math.inf
    for places in product(*during):
        total, free_s = 0.0, -1
        for at, (first, launch_s) in enumerate(zip(starts, launches, strict=True)):
            last = (starts[at + 1] if at + 1 < len(starts) else rounds) - 1
            attempt = places[:at].count(places[at])
            ready_s = launch_s + draws.spin_up_s(k, places[at], attempt)
            late = launch_s <= free_s
            for r in range(first, last + 1):
                ready_s = max(begins[r], ready_s) + (draws.cold_s if r == first else draws.warm_s)[k][r]
                late |= ready_s > ends[r]
            if late:
                total = math.inf
                break
            free_s = ready_s
            total += ready_s - launch_s
        best = min(best, total)
    return best


@pytest.mark.real
@pytest.mark.parametrize("seed", range(24))
def test_no_request_in_any_second_is_cheaper(seed: int) -> None:
    random = np.random.default_rng([5, seed])
    clients = []
    for _ in range(int(random.integers(1, 4))):
        warm_s = float(random.integers(1, 7))
        clients.append((warm_s, warm_s + float(random.integers(0, 4)), float(random.integers(0, 5))))
    small = application(clients, 3, cv=0.3, aggregation_s=int(random.integers(0, 2)))
    schedule = cheapest_schedule(small, seed)
    usd, seconds = brute_force(small, seed)
    assert schedule.time_s == seconds
    assert schedule.cost_usd == pytest.approx(usd)
    assert least_cost_usd(small, seed) <= usd + 1e-9


@pytest.mark.parametrize("name", list(data_sets()))
@pytest.mark.parametrize("episode", range(2))
def test_the_schedule_can_be_carried_out_and_nobody_who_must_guess_is_cheaper(
    name: str, episode: int
) -> None:
    given = when_ready(data_sets()[name][0])
    root = episode_sequence(3003, "test", episode)
    schedule = cheapest_schedule(given, root)
    outcome = play(given, Script(schedule), root)
    assert outcome.time_s == schedule.time_s
    assert outcome.cost_usd == pytest.approx(schedule.cost_usd)
    assert least_cost_usd(given, root) <= schedule.cost_usd
    assert play(given, FedCostAware(), root).cost_usd > schedule.cost_usd


@pytest.mark.parametrize(
    ("offers", "interruptions"),
    [
        ((Offer("spot", "zone", Market.SPOT, Tariff([0, 50], [1.0, 2.0])),), ()),
        ((Offer("spot", "zone", Market.SPOT, Tariff.constant(1.0), 3600.0),), ()),
        (USD_A_SECOND, (Interruption(0, 5),)),
    ],
)
def test_what_it_does_not_hold_for_is_refused(
    offers: tuple[Offer, ...], interruptions: tuple[Interruption, ...]
) -> None:
    small = Application("odd", 2, (Client("c", 5, 6, 1, (0,)),), offers, interruptions=interruptions)
    with pytest.raises(ValueError, match="'odd' has no schedule that this can compute"):
        cheapest_schedule(small, 0)
