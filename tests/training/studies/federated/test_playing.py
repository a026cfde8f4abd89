"""What is played is what the simulation says; estimates by hand; results are kept; the scheduler on zones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agents.federated.rules.always_on import AlwaysOn
from agents.federated.schedulers.multi_fedls import ZoneScheduler
from agents.federated.schedulers.observing import Observing
from agents.named import named_rule
from envs.federated_episodes import FederatedConfig, federated_source
from envs.simulation.federations.episodes.world import FederatedWorld, OneApplication
from envs.simulation.federations.rounds.application import Application, Client, Interruption, Market, Offer
from envs.simulation.federations.rounds.tariff import Tariff
from envs.simulation.federations.rounds.world import play
from training.evaluation.episodes import Suite, find_suite, run_suite
from training.studies.evaluations import SOURCES, Keeper, code_hash
from training.studies.federated.markdown import sensitivity_body
from training.studies.federated.playing import METRICS, columns, estimate, paired, play_all, savings
from training.studies.federated.spot_cases import spot_cases
from training.studies.federated.table_one import VARIED, data_sets, varied_application

SUITE = Suite("two", "test", 3003, 2)
ON_DEMAND = Offer("on demand", "a", Market.ON_DEMAND, Tariff.constant(3600.0))


def zone(name: str, usd_hour: float) -> Offer:
    return Offer(name, name, Market.SPOT, Tariff.constant(usd_hour))


def test_metrics_by_hand() -> None:
    """A client that pays a dollar a second: 10 s of spin-up, epochs of 110 and 100 s; its budget lasts."""
    source = OneApplication(
        Application("one", 2, (Client("c", 100, 110, 10, (0,), budget_usd=500.0),), (ON_DEMAND,))
    )
    played = columns(play_all(source, lambda _: AlwaysOn(Market.ON_DEMAND), SUITE))
    assert list(played) == list(METRICS)
    assert played["cost_usd"] == [220.0, 220.0]
    assert played["time_min"] == [pytest.approx(220 / 60)] * 2
    assert played["cost_percent"] == [pytest.approx(100.0)] * 2
    assert played["delay_percent"] == [pytest.approx(0.0)] * 2
    for metric in ("interruptions", "left", "rounds_lost", "work_lost", "budgets_exceeded"):
        assert played[metric] == [0.0, 0.0]


def test_a_client_that_cannot_pay_leaves_and_its_round_is_lost() -> None:
    """150 dollars pay for 10 + 110 s and 30 s of the second epoch: nobody is left to end that round."""
    source = OneApplication(
        Application("one", 2, (Client("c", 100, 110, 10, (0,), budget_usd=150.0),), (ON_DEMAND,))
    )
    played = columns(play_all(source, lambda _: AlwaysOn(Market.ON_DEMAND), SUITE))
    assert played["cost_usd"] == [150.0, 150.0]
    assert played["left"] == played["work_lost"] == played["rounds_lost"] == [1.0, 1.0]
    assert played["budgets_exceeded"] == [0.0, 0.0]


def test_observers_are_measured_as_the_environment_measures_them() -> None:
    source = federated_source(FederatedConfig(market="zones", clients_most=3, rounds_most=7))
    rule = named_rule("round_cost")
    ours = columns(play_all(source, lambda _: Observing(rule), SUITE))
    theirs = run_suite(FederatedWorld(source, 2), rule, SUITE)
    for metric in ("cost_usd", "time_min", "cost_percent", "delay_percent", "interruptions", "left"):
        assert ours[metric] == pytest.approx([result.metrics[metric] for result in theirs])


def test_estimates_by_hand() -> None:
    assert savings({"cost_usd": [30.0, 50.0]}, {"cost_usd": [100.0, 100.0]}) == [70.0, 50.0]
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


def test_results_are_kept_by_code_and_identity(tmp_path: Path) -> None:
    calls = []

    def make() -> dict[str, object]:
        calls.append(1)
        return {"value": [0.1, len(calls)]}

    keeper = Keeper(tmp_path, "code 1")
    assert keeper.keep({"case": "a"}, make) == keeper.keep({"case": "a"}, make) == {"value": [0.1, 1]}
    assert keeper.keep({"case": "b"}, make) == {"value": [0.1, 2]}
    assert Keeper(tmp_path, "code 2").keep({"case": "a"}, make) == {"value": [0.1, 3]}
    assert len(calls) == 3


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
    assert [offers[bill.offer].name for bill in outcome.bills] == [
        "cheap",
        "middle",
        "dear",
        "cheap",
        "middle",
    ]
    assert [bill.end_s for bill in outcome.bills[:-1]] == list(times)
    assert len(outcome.rounds) == 3


# Table I where times vary more: what is varied, and what the page shows of it.


def test_one_coefficient_is_raised_at_a_time() -> None:
    for application, _ in data_sets().values():
        assert (application.epoch_cv, application.spin_up_cv) == (0.01, 0.1)
        for varied in VARIED:
            changed = varied_application(application, varied, 0.5)
            assert getattr(changed, varied) == 0.5
            assert dataclasses.replace(changed, **{varied: getattr(application, varied)}) == application


def test_the_page_has_a_table_for_epochs_and_one_for_spin_ups() -> None:
    gain = {"mean": 4.0, "interval": [3.0, 5.0]}
    slower = {"mean": 0.5, "interval": [-1.0, 2.0]}
    document = {
        "cases": [
            {
                "data_set": "MNIST",
                "varied": varied,
                "level": level,
                "saving": {"mean": 60.0 + level, "interval": [59.0, 61.5]},
                "ours": {"learned": {"title": "Ours", "saving_percent": gain, "time_min": slower}},
            }
            for varied, level in (("epoch_cv", 0.05), ("spin_up_cv", 0.5))
        ],
        "checkpoint": "0" * 64,
        "command": "make it",
        "commit": "c" * 40,
    }
    lines = sensitivity_body(document).splitlines()
    assert lines[0] == (
        "| variation of epochs |  | FedCostAware saves (%) | **Ours**: points more, 95 % | time (%), 95 % |"
    )
    assert lines[2] == "| MNIST | 0.05 | 60.05 [59.00, 61.50] | +4.00 [3.00, 5.00] * | +0.50 [-1.00, 2.00] |"
    assert lines[4].startswith("| variation of spin-ups |")
    assert lines[6].startswith("| MNIST | 0.5 | 60.50 ")


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
