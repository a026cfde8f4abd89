"""What the `strategy` of a Flower job may say; mistakes are one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from deploy.model.jobs import Flower, JobSpec
from deploy.model.strategies import FedAvg, FedSuda, selection
from deploy.yamlfile import first_mistake

CLIENTS = [{"name": "a", "epoch_s": 1.0}, {"name": "b", "epoch_s": 1.0}, {"name": "c", "epoch_s": 10.0}]
SUDA = {"kind": "fed_suda", "updates_per_round": 3, "slow_factor": 2.0}


def flower(strategy: Any, **more: Any) -> Flower:
    work = {"kind": "flower", "app": "x", "rounds": 3, "clients": CLIENTS} | more
    if strategy is not None:
        work["strategy"] = strategy
    spec = JobSpec.model_validate_json(json.dumps({"name": "x", "work": work}))
    assert isinstance(spec.work, Flower)
    return spec.work


def test_rounds_are_synchronous_where_nothing_is_said() -> None:
    assert flower(None).strategy == FedAvg()
    assert flower(None).synchronous
    assert not flower({"kind": "fed_async"}).synchronous


def test_slow_is_who_answers_at_most_so_many_times_as_often_as_the_slowest() -> None:
    """Speeds 10, 10 and 1 of the slowest: with L = 2 only c is slow. W_rp = 3 * 2 / 3 = 2, W_sp = 1."""
    strategy = flower(SUDA).strategy
    assert isinstance(strategy, FedSuda)
    assert selection(strategy, {"a": 1.0, "b": 1.0, "c": 10.0}).slow == {2}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({"kind": "hale_fed", "updates_per_round": 2, "brokers": 1}, "brokers: input should be greater than"),
        ({"kind": "fed_async", "staleness_most": -1}, "staleness_most: input should be greater than"),
        ({"kind": "fed_prox"}, "expected tags: 'fedavg', 'fed_async', 'hp_asgd', 'hale_fed', 'fed_suda'"),
        (
            {"kind": "hp_asgd", "updates_per_round": 2, "brokers": 2},
            "brokers: extra inputs are not permitted",
        ),
        ({"kind": "hp_asgd"}, "updates_per_round: field required"),
        ({"kind": "fed_async", "mixing": 1.5}, "mixing: input should be less than 1"),
        ({**SUDA, "slow_factor": 10.0}, "all clients are slow by their epoch_s"),
        ({**SUDA, "updates_per_round": 2}, "2 updates_per_round of 2 regular and 1 slow clients"),
        ({**SUDA, "updates_per_round": 1}, "updates_per_round: input should be greater than or equal to 2"),
    ],
)
def test_a_mistake_is_one_line(strategy: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        flower(strategy)
    line = first_mistake(caught.value)
    assert expected in line
    assert "\n" not in line


def test_fed_suda_has_to_know_how_fast_each_client_is() -> None:
    with pytest.raises(ValidationError, match="give epoch_s of client 'b', or of all"):
        flower(SUDA, clients=[{"name": "a", "epoch_s": 1.0}, {"name": "b"}, {"name": "c"}])
    assert flower({**SUDA, "slow_factor": 1.0}, clients=[*CLIENTS[:2], {"name": "c", "epoch_s": 2.0}])


def test_what_brokers_add_up_does_not_overflow() -> None:
    """2**20 is the largest sum of weights: two of 2**19 fit, and nothing more."""
    hale = {"kind": "hale_fed", "updates_per_round": 2}
    assert flower(hale, clients=[{"name": "a", "samples": 2**19}])
    with pytest.raises(ValidationError, match="count samples in a larger unit"):
        flower(hale, clients=[{"name": "a", "samples": 2**19 + 1}])
