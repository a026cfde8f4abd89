"""Several policies on one suite and the files that keep them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.training.fake_world import Clairvoyant, FakeWorld, Fixed, Wanderer
from training.evaluation.episodes import Suite, suite_hash
from training.evaluation.runs import (
    Comparison,
    compare_policies,
    comparison_summary,
    liu_measures,
    write_episodes,
    write_summary,
)

SUITE = Suite("small", "test", seed=7, episodes=12)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare_policies(FakeWorld(4), [Clairvoyant(), Wanderer(), Fixed(1, "one")], SUITE)


def test_the_reference_is_first_and_the_ranking_by_objective(comparison: Comparison) -> None:
    assert comparison.reference.name == "clairvoyant"
    assert comparison.objective == "score"
    assert comparison.ranking[0] == "clairvoyant"
    means = [comparison.summaries[name]["score"].mean for name in comparison.ranking]
    assert means == sorted(means, reverse=True)
    assert comparison.hash == suite_hash(FakeWorld(1), SUITE)


def test_pairs_are_the_same_episodes(comparison: Comparison) -> None:
    keys = [[result.key for result in run.results] for run in comparison.runs]
    assert keys[0] == keys[1] == keys[2] == SUITE.episode_keys()
    by_hand = np.mean(
        [FakeWorld.draw(k).max(axis=1).sum() - FakeWorld.draw(k)[:, 1].sum() for k in SUITE.episode_keys()]
    )
    paired = comparison.paired["one"]
    assert paired["score"].difference == pytest.approx(by_hand)
    assert {paired[m].verdict for m in ("score", "tmdl", "ajer")} == {"better"}  # directions are respected
    assert paired["score"].win_probability == 1.0


def test_summary_holds_every_number_and_is_json(comparison: Comparison, tmp_path: Path) -> None:
    write_summary(comparison, tmp_path / "summary.json", {"commit": "abc"})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == comparison_summary(comparison, {"commit": "abc"})
    assert summary["commit"] == "abc"
    assert summary["suite"]["hash"] == comparison.hash
    assert summary["reference"] == "clairvoyant"
    assert set(summary["policies"]) == {"clairvoyant", "wanderer", "one"}
    metric = summary["policies"]["one"]["metrics"]["tmdl"]
    assert set(metric) >= {"mean", "sd", "p95", "p99", "interval", "iqm"}
    assert metric["interval"][0] <= metric["mean"] <= metric["interval"][1]
    assert set(summary["policies"]["one"]["decision_latency"]) == {"p50_ms", "p99_ms", "decisions"}
    assert set(summary["paired"]) == {"wanderer", "one"}
    assert set(summary["paired"]["one"]["score"]) >= {"difference", "interval", "win_probability", "ratio"}


def test_csv_has_a_row_per_policy_and_episode_that_reads_back(comparison: Comparison, tmp_path: Path) -> None:
    write_episodes(comparison, tmp_path / "episodes.csv")
    with (tmp_path / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 12
    assert list(rows[0]) == [
        "policy",
        "episode",
        "seed",
        "split",
        "decisions",
        "return",
        "score",
        "tmdl",
        "ajer",
    ]
    for policy in ("clairvoyant", "wanderer", "one"):
        read = [float(row["score"]) for row in rows if row["policy"] == policy]
        assert read == comparison.values(policy, "score").tolist()


def test_dominance_uses_both_metrics_and_scores_need_ajdr(comparison: Comparison) -> None:
    measures = liu_measures(comparison)
    assert set(measures) == {"wanderer", "one"}
    counts = [int(count) for count in str(measures["one"]["fsn"]).split("/")]
    assert sum(counts) == 12
    ours, theirs = (comparison.values(name, "tmdl") for name in ("clairvoyant", "one"))
    # The clairvoyant's AJER is lower in every episode, so full dominance is fewer misses.
    assert counts[0] == (ours < theirs).sum()
    assert measures["one"]["scores"] is None


def test_names_must_be_unique_and_episodes_enough() -> None:
    with pytest.raises(ValueError, match="'fixed' is named twice"):
        compare_policies(FakeWorld(2), [Fixed(0), Fixed(1)], SUITE)
    with pytest.raises(ValueError, match="no policy to measure"):
        compare_policies(FakeWorld(2), [], SUITE)
    with pytest.raises(ValueError, match="at least 2 episodes, got episodes=1"):
        compare_policies(FakeWorld(2), [Fixed(0)], Suite("s", "test", 1, 1))


def test_progress_names_the_policy() -> None:
    seen: list[tuple[str, int, int]] = []
    compare_policies(FakeWorld(2), [Clairvoyant()], SUITE, lambda *step: seen.append(step))
    assert seen[-1] == ("clairvoyant", 12, 12)
