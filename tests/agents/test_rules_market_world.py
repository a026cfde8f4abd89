"""The market rules in the market world on recorded traces: what must hold whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest

from agents.rules import RULES, make_rule
from envs.multicloud import build_market
from envs.simulation.market.world import MarketWorld
from training.evaluation.episodes import EpisodeResult, run_suite
from training.evaluation.suite import Suite

EPISODES = 8


@pytest.fixture(scope="module")
def world() -> MarketWorld:
    return build_market(None, EPISODES)


@pytest.fixture(scope="module")
def results(world: MarketWorld) -> dict[str, list[EpisodeResult]]:
    """Every rule on the same validation episodes; `run_suite` refuses an action that the mask forbids."""
    suite = Suite("rules", "validation", seed=77, episodes=EPISODES)
    return {name: run_suite(world, make_rule(name), suite) for name in RULES}


def usd(results: list[EpisodeResult], metric: str = "cost_usd_eq") -> np.ndarray:
    return np.array([result.metrics[metric] for result in results])


@pytest.mark.real
@pytest.mark.parametrize("name", RULES)
def test_every_rule_finishes_every_job(name: str, results: dict[str, list[EpisodeResult]]) -> None:
    assert usd(results[name], "unfinished").sum() == 0


def test_on_demand_only_is_never_interrupted(results: dict[str, list[EpisodeResult]]) -> None:
    assert usd(results["on_demand"], "interruptions").sum() == 0
    assert usd(results["on_demand"], "spot_usd").sum() == 0


@pytest.mark.parametrize(
    "name", ["cheapest", "spot_fallback", "uniform_progress", "price_capacity", "expected_cost"]
)
def test_spot_saves_money_against_on_demand(name: str, results: dict[str, list[EpisodeResult]]) -> None:
    saved = usd(results["on_demand"]) - usd(results[name])
    assert saved.mean() > 3 * saved.std(ddof=1) / np.sqrt(EPISODES)


def test_rules_that_know_no_prices_pay_for_it(results: dict[str, list[EpisodeResult]]) -> None:
    for name in ("random", "maf", "tuned"):
        assert (usd(results[name]) > usd(results["expected_cost"])).all()


def test_the_safety_net_saves_the_deadlines(results: dict[str, list[EpisodeResult]]) -> None:
    for name in ("spot_fallback", "uniform_progress", "price_capacity"):
        assert usd(results[name], "miss_tc").mean() <= 0.25
