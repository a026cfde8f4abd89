"""Asynchronous trainings on rented instances: the same world as synchronous rounds, but for the pace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.federated.rules.always_on import AlwaysOn
from agents.federated.rules.fed_cost_aware import FedCostAware
from agents.federated.schedulers.observing import Observing
from agents.named import named_rule
from envs.simulation.federations.rounds.application import Application, Client, Market
from envs.simulation.federations.rounds.decisions import RoundScheduler
from envs.simulation.federations.rounds.history import Outcome
from envs.simulation.federations.rounds.world import play
from envs.traces.images import Images
from tests.envs.rounds_cases import two_offers
from training.federated.asynchronous.scenario import Band, Method, Scenario
from training.federated.asynchronous.virtual_time import RentedTraining, VirtualTime

CLIENTS = 5
NEVER = 1.1
"""An accuracy that is never reached."""


def images() -> Images:
    generator = np.random.default_rng(0)
    labels = np.tile(np.arange(10), 20)
    shown = generator.normal(size=(200, 1, 28, 28)).astype(np.float32)
    return Images(shown, labels, shown[:20], labels[:20], "noise")


def training(method: Method, updates: int) -> RentedTraining:
    scenario = Scenario(
        title="five clients",
        partition="random_groups",
        bands=(Band(CLIENTS, 1.0, 1.0),),
        methods={"only": method},
        reference="only",
        slow=(4,),
        updates=updates,
        round_updates=2,
        batch_size=4,
        local_steps=1,
    )
    return RentedTraining(VirtualTime(scenario, images(), 0), method, NEVER)


def application(rounds: int, epochs_s: tuple[int, ...], **changes: object) -> Application:
    clients = tuple(Client(f"client {k}", s, s + 50, 100, (0, 1)) for k, s in enumerate(epochs_s))
    given = Application("five clients", rounds, clients, two_offers(), start_together=False)
    return replace(given, **changes)  # type: ignore[arg-type]


def course(outcome: Outcome) -> object:
    return outcome.time_s, outcome.rounds, outcome.bills, outcome.spans, outcome.interruptions


@pytest.mark.parametrize("scheduler", [FedCostAware, lambda: Observing(named_rule("round_cost"))])
@pytest.mark.parametrize("seed", range(3))
def test_an_aggregator_that_waits_for_all_is_the_synchronous_application(
    scheduler: type[RoundScheduler], seed: int
) -> None:
    """FedAvg of all clients, 6 rounds of 5 updates, interrupted about every 20 minutes."""
    offers = (replace(two_offers()[0], mean_time_to_interruption_s=1200.0), two_offers()[1])
    given = application(6, (60, 100, 200, 400, 900), offers=offers, epoch_cv=0.1, aggregation_s=7)
    paced = play(given, scheduler(), seed, training(Method("fed_avg", round_updates=CLIENTS), 30))
    assert course(paced) == course(play(given, scheduler(), seed))


def test_who_waits_for_nobody_is_never_idle() -> None:
    """Instances are ready at 100 s; cold epochs take 50 s longer, once.

    Of clients with epochs of 100 s (four) and 1000 s, four deliver at 250, 350, 450, ...: 4 k results until
    150 + 100 k s; the fifth at 1150 s. The 40th result is one of those at 1150 s.
    """
    given = application(1000, (100, 100, 100, 100, 1000))
    asked = training(Method("asyn_da"), 40)
    outcome = play(given, AlwaysOn(Market.SPOT), 0, asked)
    assert outcome.time_s == 1150
    assert [epoch.end_s for epoch in outcome.epochs if epoch.client == 0] == list(range(250, 1151, 100))
    assert [point.time_slices for point in asked.training.points[:4]] == [250, 250, 350, 350]
    for spans in outcome.spans:
        assert {span.state.name for span in spans} == {"SPIN_UP", "TRAINING"}


def test_regular_clients_wait_for_a_slow_one_whose_shadow_is_too_old_and_are_released() -> None:
    """Fed-SUDA with T = 1 and W = 3: two of four regular clients, and the slow one in every other model."""
    fed_suda = Method("fed_suda", staleness_bound=1, round_updates=3)
    given = application(1000, (50, 50, 50, 50, 2000))
    kept = play(given, AlwaysOn(Market.SPOT), 0, training(fed_suda, 20))
    released = play(given, Observing(named_rule("round_cost")), 0, training(fed_suda, 20))
    # Nobody makes a model before the slow client has delivered at 100 + 2050 s.
    assert kept.rounds[0][1] == released.rounds[0][1] == 2150
    assert released.cost_usd < 0.6 * kept.cost_usd
    assert released.time_s <= 1.05 * kept.time_s


def test_asynchronous_applications_rent_no_server_and_have_no_budgets() -> None:
    clients = (Client("one", 60, 100, 100, (0, 1), budget_usd=1.0),)
    given = Application("rich", 1, clients, two_offers())
    with pytest.raises(ValueError, match="'rich' is asynchronous: expected no rented server and no budgets"):
        play(given, FedCostAware(), 0, training(Method("asyn_da"), 1))
