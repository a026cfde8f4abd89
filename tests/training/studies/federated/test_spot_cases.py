"""Multi-FedLS's spot cases with policies that read observations: all printed rates, and every one ends."""

from __future__ import annotations

import dataclasses

import pytest

from agents.federated.schedulers.observing import Observing
from agents.named import named_rule
from envs.simulation.federations.episodes.world import OneApplication
from training.evaluation.episodes import find_suite
from training.studies.federated.playing import columns, play_all
from training.studies.federated.spot_cases import spot_cases


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
