"""The numbers behind a table, computed by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.training.studies.cases import facts, played, result
from training.evaluation.statistics import bootstrap_interval, hierarchical_interval
from training.studies.evaluations import Played
from training.studies.measuring import best_on_validation
from training.studies.scenario import Measured, ScenarioResult, mean_interval, policy_summary


def summary(policy: str) -> dict[str, Any]:
    return policy_summary(result(), policy, ["tmdl", "s"], ["maf", "tuned"])


def test_means_over_seeds_and_episodes() -> None:
    tmdl = summary("mine")["metrics"]["tmdl"]
    assert tmdl["mean"] == 25.0
    assert tmdl["per_seed"] == [20.0, 30.0]
    assert summary("mine")["seeds"] == 2
    assert summary("mine")["trained"] is True
    assert summary("maf")["trained"] is False


def test_differences_are_paired_and_know_their_direction() -> None:
    against = summary("mine")["against"]
    # Episode by episode: -30 -30 0 and -20 -20 +10.
    assert against["maf"]["difference"]["tmdl"]["mean"] == pytest.approx(-15.0)
    interval = hierarchical_interval([[-30, -30, 0], [-20, -20, 10]])
    assert against["maf"]["difference"]["tmdl"]["interval"] == [interval.low, interval.high]
    # Against the tuned rule more misses and a lower S in every episode: worse in both, whatever the sign.
    assert against["tuned"]["difference"]["tmdl"]["mean"] == pytest.approx(20.0)
    assert against["tuned"]["difference"]["tmdl"]["verdict"] == "worse"
    assert against["tuned"]["difference"]["s"]["mean"] < 0
    assert summary("maf")["against"].keys() == {"tuned"}


def test_agents_are_paired_seed_by_seed() -> None:
    base = result()
    other = Measured("other", (played([1, 2, 3], [99, 98, 99]), played([4, 5, 9], [99, 98, 99])))
    both = ScenarioResult(base.spec, base.env, base.hash, {**base.policies, "other": other})
    found: dict[str, Any] = policy_summary(both, "mine", ["tmdl"], ["other"])
    against = found["against"]["other"]
    difference = base.policies["mine"].table("tmdl") - np.array([[1, 2, 3], [4, 5, 9]])
    interval = hierarchical_interval(difference)
    assert against["difference"]["tmdl"]["mean"] == pytest.approx(25.0 - 4.0)
    assert against["difference"]["tmdl"]["interval"] == [interval.low, interval.high]
    assert "fsn" not in against


def test_the_ratio_is_the_mean_of_the_baseline_over_the_mean_of_the_policy() -> None:
    ratios = summary("mine")["against"]["maf"]["ratio"]
    assert ratios["tmdl"] == pytest.approx(40.0 / 25.0)
    assert ratios["s"] is None  # a negative mean has no such ratio


def test_dominance_per_seed() -> None:
    # Seed 0: both, misses only, delay only. Seed 1: both, misses only, delay only.
    assert summary("mine")["against"]["maf"]["fsn"] == {"mean": [1.0, 2.0, 0.0], "per_seed": [[1, 2, 0]] * 2}


def test_scores_per_seed_where_no_delay_is_negative() -> None:
    scores = summary("mine")["against"]["maf"]["scores"]
    assert scores["a"] == {"mean": pytest.approx(100 / 3), "per_seed": [pytest.approx(100 / 3)] * 2}
    assert scores["b"]["mean"] == pytest.approx(100 * (1 + 0.5 + 0.5) / 3)
    faster = Measured("fast", (played([1, 1, 1], [99, 100, 101]),))
    base = result()
    mixed = ScenarioResult(base.spec, base.env, base.hash, {**base.policies, "fast": faster})
    assert policy_summary(mixed, "fast", ["tmdl"], ["maf"])["against"]["maf"]["scores"] is None  # type: ignore[index]


def test_one_seed_has_the_interval_of_its_episodes() -> None:
    table = np.array([[1.0, 2.0, 6.0]])
    assert mean_interval(table) == bootstrap_interval(table[0])


def test_the_seed_that_is_drawn_is_the_best_on_validation() -> None:
    assert best_on_validation(result().policies["mine"], "s", True) == 1
    assert best_on_validation(result().policies["mine"], "s", False) == 0


def test_published_episodes_without_the_delay_of_a_score_give_no_score() -> None:
    whole = result()
    metrics = dict(played([1, 2, 3], [101, 102, 103]).metrics)
    del metrics["ajdr"]
    stored = Measured("stored", (Played(metrics, [3] * 3),), (facts(0, 1.0),))
    both = dataclasses.replace(whole, policies={**whole.policies, "stored": stored})
    against: Any = policy_summary(both, "mine", ["tmdl"], ["stored", "maf"])["against"]
    assert "scores" not in against["stored"]
    assert {"fsn", "difference"} <= set(against["stored"])
    assert "scores" in against["maf"]
