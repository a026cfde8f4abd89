"""The rules in the world of slices and in the market, against figures and against each other."""

from __future__ import annotations

import numpy as np
import pytest

from agents.rules import RULES, make_rule
from envs.multicloud import build_market
from envs.simulation.market.world import MarketWorld
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import EpisodeKey
from training.evaluation.episodes import EpisodeResult, Suite, run_suite

# The rules in the chapter 5 world against the figures of the prototype that the tuned rule was found on.


EPISODES = 50


def play(name: str) -> dict[str, np.ndarray]:
    """(EPISODES,) of each metric: the rule on validation episodes of the default world (Uniform b=33)."""
    world = SliceWorld(n_lanes=EPISODES)
    world.reset([EpisodeKey(0, "validation", index) for index in range(EPISODES)])
    rule = make_rule(name)
    for lane in range(EPISODES):
        rule.begin(lane, lane)
    active = np.ones(EPISODES, np.bool_)
    actions = np.zeros(EPISODES, np.int64)
    while active.any():
        lanes = np.flatnonzero(active)
        actions[lanes] = rule.act_lanes(world.observation, lanes)
        _, done = world.step(actions, active)
        active &= ~done
    episodes = [world.metrics(lane) for lane in range(EPISODES)]
    return {metric: np.array([episode[metric] for episode in episodes]) for metric in episodes[0]}


@pytest.mark.parametrize(
    ("name", "tmdl", "ajer"),
    [("maf", 342.0, 93.38), ("eft", 66.7, 85.77), ("tuned", 20.7, 85.25), ("ih_filter", 6.2, 93.49)],
)
def test_rules_land_on_the_prototypes_figures(name: str, tmdl: float, ajer: float) -> None:
    metrics = play(name)
    for metric, expected in (("tmdl", tmdl), ("ajer", ajer)):
        values = metrics[metric]
        # Both means come from 50 episodes, other ones, so the difference has sqrt(2) standard errors.
        band = 3 * np.sqrt(2) * values.std(ddof=1) / np.sqrt(EPISODES)
        assert values.mean() == pytest.approx(expected, abs=band)


def test_deadline_safe_is_near_the_prototypes_figures() -> None:
    # The prototype's rule is known by its figures only, 24.0 / 87.70: ours is a reading of its name.
    metrics = play("deadline_safe")
    assert metrics["tmdl"].mean() == pytest.approx(24.0, abs=10.0)
    assert metrics["ajer"].mean() == pytest.approx(87.70, abs=0.5)


@pytest.mark.real
def test_the_tuned_rule_is_the_rule_to_beat() -> None:
    tuned, eft, random = play("tuned"), play("eft"), play("random")
    # The prototype's S of the tuned rule is 717, of EFT 645.
    band = 3 * np.sqrt(2) * tuned["s"].std(ddof=1) / np.sqrt(EPISODES)
    assert tuned["s"].mean() == pytest.approx(717.0, abs=band)
    gain = tuned["s"] - eft["s"]
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(EPISODES)
    # "RAN and RR at b=33: about 1800 / 140."
    assert random["tmdl"].mean() > 1500
    assert random["ajer"].mean() > 130


# The market rules in the market world on recorded traces: what must hold whatever the numbers are.


SUITE_EPISODES = 8


@pytest.fixture(scope="module")
def world() -> MarketWorld:
    return build_market(None, SUITE_EPISODES)


@pytest.fixture(scope="module")
def results(world: MarketWorld) -> dict[str, list[EpisodeResult]]:
    """Every rule on the same validation episodes; `run_suite` refuses an action that the mask forbids."""
    suite = Suite("rules", "validation", seed=77, episodes=SUITE_EPISODES)
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
    assert saved.mean() > 3 * saved.std(ddof=1) / np.sqrt(SUITE_EPISODES)


def test_rules_that_know_no_prices_pay_for_it(results: dict[str, list[EpisodeResult]]) -> None:
    for name in ("random", "maf", "tuned"):
        assert (usd(results[name]) > usd(results["expected_cost"])).all()


def test_the_safety_net_saves_the_deadlines(results: dict[str, list[EpisodeResult]]) -> None:
    for name in ("spot_fallback", "uniform_progress", "price_capacity"):
        assert usd(results[name], "miss_tc").mean() <= 0.25
