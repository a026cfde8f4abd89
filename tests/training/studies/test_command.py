"""An experiment from end to end on the fake world: files, the cache, and how mistakes are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotweave.agents.policy import Policy
from spotweave.envs.environments import ENVIRONMENTS, Environment
from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.config import UsageError
from spotweave.training.evaluation import episodes
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.evaluation.statistics import clustered_interval
from spotweave.training.studies import measuring, trained
from spotweave.training.studies.command import run_experiment
from spotweave.training.studies.evaluations import EvaluationCache, Played
from tests.training.fake_world import Clairvoyant, FakeWorld, Fixed
from tests.training.federated.commands import rows_of
from tests.training.test_compare import FakeConfig, build


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fake world; seed 0 of the trained agent always picks the best cluster, seed 1 the first."""
    entry = Environment("fake", FakeConfig, build, "rl_lsfc", rules=("maf",))
    monkeypatch.setitem(ENVIRONMENTS, "fake", entry)
    monkeypatch.setattr(measuring, "scenario_env", lambda scenario: {"name": "fake"})
    monkeypatch.setattr(trained, "load_policy", load_policy)
    monkeypatch.setattr(trained, "load_policy_state", load_state)
    monkeypatch.chdir(tmp_path)
    for seed in range(2):
        run = tmp_path / "runs" / f"seed{seed}"
        run.mkdir(parents=True)
        (run / "policy.pt").write_text(str(seed))
        (run / "done.json").write_text("{}")


def load_policy(path: Path, spec: WorldSpec, weights: tuple[float, ...] | None, device: str) -> Any:
    """Weights choose the cluster."""
    if weights is not None:
        return Fixed(int(weights[0]), "weighted")
    return Clairvoyant() if path.read_text() == "0" else Fixed(0)


def load_state(path: Path) -> dict[str, Any]:
    seed = int(path.read_text())
    return {"training": {"seed": seed, "episodes": 10, "validation": {"score": -float(seed)}}}


def values(**changes: Any) -> dict[str, Any]:
    experiment = {
        "study": "toy",
        "name": "table_1",
        "title": "Table 1",
        "trainings": "train it",
        "scenarios": {"base": {"title": "Base", "env": ["+env=fake"]}},
        "agents": {"mine": "runs/seed*"},
        "rules": ["maf", "random"],
        "reference": "maf",
        "metrics": ["score", "tmdl"],
        "paired": ["score"],
        "scores": "fsn",
        "figures": {
            "lines": {
                "kind": "sorted_episodes",
                "caption": "Lines.",
                "metrics": ["score"],
                "sort_policy": "maf",
                "sort_metric": "score",
            },
            "points": {"kind": "job_scatter", "caption": "Points.", "policies": ["mine", "maf"]},
        },
        **changes.pop("experiment", {}),
    }
    given = {"suite": "validation", "episodes": 5, "lanes": 2, "device": "cpu", "out": None}
    return {**given, "experiment": experiment, **changes}


def written(table: str = "table_1") -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The summary and the episodes of an experiment."""
    folder = Path("results", "toy", table)
    return json.loads((folder / "summary.json").read_text()), rows_of(folder / "episodes.csv")


@pytest.mark.real
def test_everything_is_measured_for_every_seed_and_written(tmp_path: Path) -> None:
    assert run_experiment(values(), "the command") == 0
    out = tmp_path / "results" / "toy" / "table_1"
    assert sorted(path.name for path in out.iterdir()) == [
        "config.yaml",
        "episodes.csv",
        "lines.png",
        "points.png",
        "shown.csv",
        "summary.json",
        "table.md",
    ]
    summary, rows = written()
    mine = summary["scenarios"]["base"]["policies"]["mine"]
    assert [facts["seed"] for facts in mine["checkpoints"]] == [0, 1]
    assert mine["metrics"]["score"]["per_seed"][0] > mine["metrics"]["score"]["per_seed"][1]
    assert len(rows) == (2 + 1 + 1) * 5
    scores = [float(row["score"]) for row in rows if row["policy"] == "mine"]
    assert mine["metrics"]["score"]["mean"] == pytest.approx(sum(scores) / 10)
    assert summary["command"] == "the command"


@pytest.mark.real
def test_draws_are_one_scenario_and_each_has_its_own_policy() -> None:
    run_experiment(values(), "the command")
    drawn = {"title": "Two", "env": ["+env=fake"], "agents": {"own": "runs/seed{draw}"}, "draws": [1, 0]}
    both = {"scenarios": {"two": drawn}, "agents": {}, "figures": {}, "name": "table_2"}
    run_experiment(values(experiment=both), "the command")
    scores: dict[tuple[str, str], list[float]] = {}
    for table in ("table_1", "table_2"):
        for row in written(table)[1]:
            scores.setdefault((row["policy"], row["seed"]), []).append(float(row["score"]))
    assert scores["own", "1"] == scores["mine", "1"] + scores["mine", "0"]
    assert scores["maf", ""] == 3 * scores["maf", ""][:5]  # once in the first table, twice in the second
    own = written("table_2")[0]["scenarios"]["two"]["policies"]["own"]
    assert [facts["seed"] for facts in own["checkpoints"][0]["draws"]] == [1, 0]
    interval = clustered_interval([scores["own", "1"]], [0] * 5 + [1] * 5)
    assert own["metrics"]["score"]["interval"] == [interval.low, interval.high]


@pytest.mark.real
def test_one_training_is_measured_under_several_weights() -> None:
    agents = {
        "mine": "runs/seed*",
        "first": {"runs": "runs/seed*", "weights": [1.0]},
        "second": {"runs": "runs/seed*", "weights": [2.0]},
    }
    run_experiment(values(experiment={"agents": agents}), "the command")
    policies = written()[0]["scenarios"]["base"]["policies"]
    means = {name: policies[name]["metrics"]["score"]["per_seed"] for name in agents}
    # Weights decide everything in this fake: both seeds play alike, and neither as without weights.
    assert means["first"][0] == means["first"][1] != means["second"][0] == means["second"][1]
    assert means["mine"][0] > max(means["first"][0], means["second"][0])
    assert [facts.get("weights") for facts in policies["second"]["checkpoints"]] == [[2.0], [2.0]]
    assert "weights" not in policies["mine"]["checkpoints"][0]


@pytest.mark.real
def test_a_killed_command_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    played: list[str] = []

    def killed(world: Any, policy: Any, suite: Any, progress: Any) -> Any:
        played.append(policy.name)
        if len(played) == 3:
            raise KeyboardInterrupt
        return run_suite(world, policy, suite, progress)

    monkeypatch.setattr(episodes, "run_suite", killed)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(values(), "the command")
    run_experiment(values(), "the command")
    assert played == ["clairvoyant", "fixed", "maf", "maf", "random"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": {"name": "fake"}}, r"give either \+env= or \+experiment="),
        ({"policies": ["maf"]}, "policies= cannot be given with"),
        ({"episodes": 1}, "at least 2 episodes"),
        ({"experiment": {"agents": {"mine": "runs/none*"}}}, "agent mine is not trained"),
        ({"experiment": {"metrics": ["tmld"]}}, "shows 'tmld'"),
        ({"experiment": {"clairvoyant": {"base": "mine"}}}, r"\+env=fake has no bound"),
        (
            {"experiment": {"scenarios": {"two": {"title": "Two", "env": ["+env=fake"], "draws": [0, 1]}}}},
            "scenarios.two has draws: expected no figures",
        ),
        (
            {"experiment": {"figures": {"f": {"kind": "dominance", "caption": "", "policies": ["eft"]}}}},
            "shows 'eft', which scenario base does not measure",
        ),
    ],
)
def test_mistakes_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        run_experiment(values(**changes), "the command")
    assert "\n" not in str(refused.value)


# Played episodes are kept by everything they depend on.


SUITE = Suite("small", "validation", seed=5, episodes=6)
FACTS = {"name": "fake"}


def not_again() -> Policy:
    raise AssertionError("played again")


def play(cache: EvaluationCache, make: Callable[[], Policy] = Clairvoyant, **changes: Any) -> Played:
    given = {"world_facts": FACTS, "suite": SUITE, "identity": "clairvoyant", **changes}
    return cache.play(FakeWorld(3), **given, play=lambda: run_suite(FakeWorld(3), make(), given["suite"]))


def test_what_was_played_is_the_suite_exactly_and_is_not_played_again(tmp_path: Path) -> None:
    cache = EvaluationCache(tmp_path, "v1")
    first = play(cache)
    expected = run_suite(FakeWorld(1), Clairvoyant(), SUITE)
    assert first.values("score").tolist() == [result.metrics["score"] for result in expected]
    assert list(first.decisions) == [result.decisions for result in expected]
    again = play(EvaluationCache(tmp_path, "v1"), not_again)
    assert again.metrics == first.metrics


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("v1", {"identity": "fixed"}),
        ("v1", {"suite": Suite("small", "validation", seed=5, episodes=7)}),
        ("v1", {"suite": Suite("small", "test", seed=5, episodes=6)}),
        ("v1", {"world_facts": {"name": "fake", "n_jobs": 3}}),
        ("v2", {}),
    ],
)
def test_anything_else_is_played(code: str, changes: dict[str, object], tmp_path: Path) -> None:
    play(EvaluationCache(tmp_path, "v1"))
    with pytest.raises(AssertionError, match="played again"):
        play(EvaluationCache(tmp_path, code), not_again, **changes)


def test_a_failed_evaluation_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="action mask"):
        play(EvaluationCache(tmp_path / "cache", "v1"), lambda: Fixed(3))
    assert list((tmp_path / "cache").glob("*")) == []
