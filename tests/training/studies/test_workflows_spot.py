"""The table of workflows on spot offers: its bound, worked by hand, and what is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agents.named import named_rule, question_rules
from envs.simulation.world import EpisodeKey
from envs.workflows_episodes import DrawnWorkflows, WorkflowsConfig, build_workflows
from tests.envs.offers_cases import SPOT_B, case_of, chain
from training.evaluation.episodes import Suite, run_suite
from training.studies.workflows import spot


def test_the_bound_by_hand() -> None:
    # The owned cluster has time for all 900 s.
    assert spot.lower_bound_usd(case_of(chain(deadline_s=10_000))) == pytest.approx(0.0)
    # It has time for 500 of the 600 and 240 s that the steps take in truth; the rest costs 0.0005 USD/s.
    slow = case_of(chain(deadline_s=500), actual=[1.0, 0.8])
    assert spot.lower_bound_usd(slow) == pytest.approx(340 * 0.0005)
    # The cheap spot offer comes too late, and the other one costs twice as much.
    late = case_of(chain(deadline_s=500), ends_s=[(SPOT_B, 0, 500)])
    assert spot.lower_bound_usd(late) == pytest.approx(400 * 0.001)


@pytest.mark.parametrize("family", ["montage", "blast"])
def test_no_rule_undercuts_the_bound(family: str) -> None:
    config, suite = WorkflowsConfig(family=family, steps=20), Suite("any", "validation", seed=9, episodes=4)
    bounds = [spot.lower_bound_usd(DrawnWorkflows(config).case(key)) for key in suite.episode_keys()]
    assert any(bounds)
    for rule in question_rules("workflows"):
        for bound, result in zip(
            bounds, run_suite(build_workflows(config, 4), named_rule(rule), suite), strict=True
        ):
            assert bound <= result.metrics["cost_usd"] + 1e-9


def test_the_test_episodes_are_of_other_days_than_those_on_which_anything_was_chosen() -> None:
    assert spot.TEST.split == "test"
    source = DrawnWorkflows(WorkflowsConfig())
    prints = [source.case(EpisodeKey(spot.TEST.seed, split, 0)).quotes[2] for split in ("test", "validation")]
    assert prints[0].digest() != prints[1].digest()


@pytest.mark.real
def test_the_released_policy_pays_less_than_all_rules_and_keeps_the_deadlines() -> None:
    world, suite = build_workflows(WorkflowsConfig(), 16), Suite("some", "test", seed=31, episodes=16)
    learned = run_suite(world, spot._learned(world.spec), suite)
    usd = sum(one.metrics["cost_usd"] for one in learned)
    assert not any(one.metrics["missed"] for one in learned)
    for rule in question_rules("workflows"):
        assert usd < sum(one.metrics["cost_usd"] for one in run_suite(world, named_rule(rule), suite))


def cell_of(cost_usd: dict[str, float], missed: int = 0) -> dict[str, Any]:
    """Three episodes a policy, with a cost of their own each."""
    columns = {
        name: {
            metric: [value * (k + 1) if metric == "cost_usd" else 1.0 for k in range(3)]
            for metric in spot.METRICS
        }
        for name, value in cost_usd.items()
    }
    for mine in columns.values():
        mine["missed"] = [float(k < missed) for k in range(3)]
    return spot._measured(columns)


def test_the_table_says_what_was_measured() -> None:
    usd = dict.fromkeys((*spot.RULES, spot.LEARNED), 4.0) | {spot.LEARNED: 3.0, "workflow_cost": 3.5}
    cell = cell_of(usd, missed=2)
    text = spot.body({"episodes": 3, "families": {"montage": {**cell, "bound_usd": 1.25}}, "all": cell})
    # Means of 1, 2 and 3 times the cost; ours is a quarter cheaper in each episode.
    quarter = "-25.0 % [-25.0, -25.0]"
    assert f"| montage | 8.00 | 8.00 | 8.00 | 7.00 | 6.00 | 1.25 | {quarter} | {quarter} |" in text
    assert "| HEFT on spot | 2 | 0.00 | 1.00 | 1.0 |" in text
    assert "| `workflow_cost` | -12.5 % [-12.5, -12.5] | -12.5 % [-12.5, -12.5] |  |" in text
    assert np.isclose(cell["against"][spot.LEARNED]["workflow_cost"]["mean"], -100 / 7)
