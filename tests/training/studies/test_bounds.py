"""Bounds of the objective, measured in a tiny world, and the share of a gap that is closed, by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotweave.agents.rules import make_rule
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.training.config import UsageError, compose_values, world_config
from spotweave.training.evaluation.clairvoyant import ClairvoyantPlanner, unhindered_score
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.evaluation.statistics import hierarchical_ratio_interval
from spotweave.training.studies import bounds as bounds_module
from spotweave.training.studies import trained
from spotweave.training.studies.bounds import Base, Bounds, measure_bounds
from spotweave.training.studies.evaluations import EvaluationCache
from spotweave.training.studies.experiment import ClairvoyantSettings, ScenarioSettings
from spotweave.training.studies.measuring import Player
from spotweave.training.studies.scenario import ScenarioResult, bounds_summary, closed_share
from spotweave.training.studies.trained import Trained
from tests.training.studies.cases import played, result, settings

ASKED = ClairvoyantSettings("tuned", episodes=2, further=5)
SUITE = Suite("small", "validation", seed=5, episodes=3)
WORDS = ["+env=multicluster", "env.n_jobs=12", "env.window=3"]


def env(*words: str) -> dict[str, Any]:
    values: dict[str, Any] = compose_values("evaluate", [*WORDS, *words])["env"]
    return values


def rule_base(name: str) -> Base:
    return Base(f"rule {name}", {"policy": name}, lambda world: make_rule(name))


def no_base() -> Base:
    def make(world: object) -> Any:
        raise AssertionError("planned again")

    return Base("rule tuned", {"policy": "tuned"}, make)


def test_the_first_episodes_are_planned_and_all_are_bounded(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    cache = EvaluationCache(tmp_path, "v1")
    measured = measure_bounds(cache, env(), SUITE, ASKED, rule_base("tuned"), lambda *n: told.append(n))
    config = world_config(env())
    keys = SUITE.episode_keys()
    world = SliceWorld(config, ClairvoyantPlanner.lanes_needed(5))
    expected = [ClairvoyantPlanner(world, make_rule("tuned"), 5).play(key) for key in keys[:2]]
    assert measured.planned.metrics["s"] == [episode.metrics["s"] for episode in expected]
    assert measured.unhindered == tuple(unhindered_score(world, key) for key in keys)
    assert all(
        plan <= best for plan, best in zip(measured.planned.metrics["s"], measured.unhindered, strict=False)
    )
    assert (measured.episodes, told) == (2, [(0, 2), (1, 2), (2, 2)])
    again = measure_bounds(EvaluationCache(tmp_path, "v1"), env(), SUITE, ASKED, no_base())
    assert again == measured


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["env.workload.arrivals.b=40"], ASKED),
        ([], dataclasses.replace(ASKED, further=6)),
        ([], dataclasses.replace(ASKED, episodes=3)),  # the third episode
    ],
)
def test_anything_else_is_planned(words: list[str], asked: ClairvoyantSettings, tmp_path: Path) -> None:
    cache = EvaluationCache(tmp_path, "v1")
    measure_bounds(cache, env(), SUITE, ASKED, rule_base("tuned"))
    with pytest.raises(AssertionError, match="planned again"):
        measure_bounds(cache, env(*words), SUITE, asked, no_base())


def test_a_suite_with_fewer_episodes_is_planned_whole(tmp_path: Path) -> None:
    asked = dataclasses.replace(ASKED, episodes=10)
    measured = measure_bounds(EvaluationCache(tmp_path, "v1"), env(), SUITE, asked, rule_base("maf"))
    assert measured.unhindered is not None
    assert measured.episodes == len(measured.unhindered) == 3


def test_a_killed_plan_goes_on_with_the_episode_that_it_was_at(tmp_path: Path) -> None:
    def kill(done: int, of: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    asked = dataclasses.replace(ASKED, episodes=3)
    with pytest.raises(KeyboardInterrupt):
        measure_bounds(EvaluationCache(tmp_path, "v1"), env(), SUITE, asked, rule_base("tuned"), kill)
    assert len(list(tmp_path.iterdir())) == 1
    whole = measure_bounds(EvaluationCache(tmp_path, "v1"), env(), SUITE, asked, rule_base("tuned"))
    assert whole.episodes == 3
    first = dataclasses.replace(asked, episodes=2)
    again = measure_bounds(EvaluationCache(tmp_path, "v1"), env(), SUITE, first, no_base())
    assert again.planned.metrics["s"] == whole.planned.metrics["s"][:2]


@pytest.mark.real
def test_foresight_in_a_market_costs_less_than_its_base(tmp_path: Path) -> None:
    market = compose_values("evaluate", ["+env=multicloud", "+env/markets=two_v100", "env.workload.jobs=6"])[
        "env"
    ]
    asked = ClairvoyantSettings("expected_cost", episodes=2, further=6)
    found = measure_bounds(EvaluationCache(tmp_path, "v1"), market, SUITE, asked, rule_base("expected_cost"))
    world = ENVIRONMENTS["multicloud"].build(world_config(market), 3)
    base = run_suite(world, make_rule("expected_cost"), SUITE)
    assert found.unhindered is None
    for plan, played_by_rule in zip(found.planned.metrics["cost_usd_eq"], base[:2], strict=True):
        assert plan <= played_by_rule.metrics["cost_usd_eq"] + 1e-9


def test_a_world_without_a_bound_is_refused(tmp_path: Path) -> None:
    rounds = compose_values("evaluate", ["+env=federated"])["env"]
    with pytest.raises(UsageError, match=r"\+env=federated has no bound"):
        measure_bounds(EvaluationCache(tmp_path, "v1"), rounds, SUITE, ASKED, rule_base("on_demand"))


class TestPlayer:
    """Which policy the planner follows."""

    def player(self, tmp_path: Path, **changes: Any) -> Player:
        scenario = ScenarioSettings("Base", WORDS)
        given = {"clairvoyant": ASKED, "scenarios": {"base": scenario}, "metrics": ["tmdl", "s"], **changes}
        return Player(settings(agents={}, **given), SUITE, EvaluationCache(tmp_path / "cache", "v1"), lanes=2)

    def agents(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, list[Trained]]:
        """Three seeds that all follow MAF; the second is the best on validation."""

        def load_state(path: Path) -> dict[str, Any]:
            seed = int(path.read_text())
            return {"training": {"seed": seed, "episodes": 10, "validation": {"s": -abs(seed - 1.0)}}}

        monkeypatch.setattr(trained, "load_policy_state", load_state)
        monkeypatch.setattr(trained, "load_policy", lambda *_: make_rule("maf"))
        found = []
        for seed in range(3):
            (tmp_path / f"policy{seed}.pt").write_text(str(seed))
            found.append(Trained(tmp_path / f"policy{seed}.pt"))
        return {"mine": found}

    def test_an_agent_by_its_best_seed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        player = self.player(tmp_path, clairvoyant=dataclasses.replace(ASKED, base="mine"))
        followed: list[Base] = []

        def spy(*given: Any) -> Bounds:
            followed.append(given[4])
            return measure_bounds(*given)

        monkeypatch.setattr("spotweave.training.studies.measuring.measure_bounds", spy)
        agents = self.agents(tmp_path, monkeypatch)
        found = player.measure("base", agents).bounds
        assert found is not None
        assert found.base["policy"] == "mine"
        assert (found.base["seed"], found.base["path"]) == (1, str(tmp_path / "policy1.pt"))
        assert followed[0].identity == agents["mine"][1].identity
        following_maf = measure_bounds(player.cache, env(), SUITE, ASKED, rule_base("maf"))
        assert found.planned == following_maf.planned

    def test_a_rule(self, tmp_path: Path) -> None:
        found = self.player(tmp_path).measure("base", {}).bounds
        assert found is not None
        assert found.base == {"policy": "tuned"}

    def test_figures_ask_for_no_plan(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bounds_module, "ClairvoyantPlanner", partial(pytest.fail, "planned"))
        assert self.player(tmp_path, table=False).measure("base", {}).bounds is None
        assert self.player(tmp_path, clairvoyant=None).measure("base", {}).bounds is None

    def test_the_bounded_metric_must_be_shown(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="its metrics must show 's', which they bound"):
            self.player(tmp_path, metrics=["tmdl"]).measure("base", {})


def bounded(**changes: Any) -> ScenarioResult:
    """`cases.result` with a plan of its first two episodes: S = -4 and -6."""
    plan = played([4, 6], [100, 100])
    return dataclasses.replace(
        result(), bounds=Bounds({"policy": "mine"}, 40, plan, (0.0, 10.0, 20.0)), **changes
    )


def test_the_share_of_the_gap_is_a_ratio_of_means() -> None:
    found = bounds_summary(bounded(), "maf", ["tmdl", "s"])
    assert found is not None
    policies: Any = found["policies"]
    # S on the first two episodes. MAF: -40 - 200 = -240 and -50 - 150 = -200; the plan gains 236 and 194.
    # Mine: -10 - 50 = -60 and -20 - 200 = -220, so +180 and -20; -20 - 150 = -170 and -30 - 200 = -230,
    # so +70 and -30.
    assert policies["maf"] == {"mean": -220.0, "per_seed": [-220.0], "closed": None}
    assert policies["mine"]["mean"] == pytest.approx(-170.0)
    closed = policies["mine"]["closed"]
    assert closed["share"] == pytest.approx(50.0 / 215.0)
    assert closed["per_seed"] == [pytest.approx(80.0 / 215.0), pytest.approx(20.0 / 215.0)]
    interval = hierarchical_ratio_interval([[180.0, -20.0], [70.0, -30.0]], [236.0, 194.0])
    assert interval is not None
    assert closed["interval"] == [pytest.approx(interval.low), pytest.approx(interval.high)]
    # The tuned rule has -55 twice, of which the plan gains 51 and 49; mine -5, -165, -115 and -175.
    strongest: Any = bounds_summary(bounded(), "maf", ["s"], "tuned")
    from_tuned = {name: policy["closed_from_strongest"] for name, policy in strongest["policies"].items()}
    assert from_tuned["mine"]["share"] == pytest.approx(-115.0 / 50.0)
    assert from_tuned["tuned"] is None
    assert found["planned"]["tmdl"]["mean"] == 5.0  # type: ignore[index]
    room: Any = found["room"]
    assert (room["mean"], room["clear"]) == (215.0, True)
    unhindered: Any = found["unhindered"]
    assert (unhindered["mean"], unhindered["first_mean"]) == (10.0, 5.0)


def test_where_lower_is_better_the_share_is_the_same() -> None:
    """With S as a cost of the opposite sign, every policy closes exactly as much of the gap."""
    given = bounded()

    def negated(name: str) -> Any:
        measured = given.policies[name]
        seeds = tuple(
            dataclasses.replace(seed, metrics={**seed.metrics, "s": [-s for s in seed.metrics["s"]]})
            for seed in measured.seeds
        )
        return dataclasses.replace(measured, seeds=seeds)

    assert given.bounds is not None
    plan = dataclasses.replace(
        given.bounds.planned, metrics={**given.bounds.planned.metrics, "s": [4.0, 6.0]}
    )
    cost = dataclasses.replace(
        given,
        spec=dataclasses.replace(given.spec, higher_is_better=(False, *given.spec.higher_is_better[1:])),
        policies={name: negated(name) for name in given.policies},
        bounds=dataclasses.replace(given.bounds, planned=plan),
    )
    score, flipped = bounds_summary(given, "maf", ["s"]), bounds_summary(cost, "maf", ["s"])
    assert score is not None
    assert flipped is not None
    assert score["policies"]["mine"]["closed"] == flipped["policies"]["mine"]["closed"]  # type: ignore[index]


def test_no_gap_no_share() -> None:
    assert closed_share(np.ones((1, 2)), np.array([1.0, -3.0])) is None
    uncertain = closed_share(np.ones((2, 2)), np.array([3.0, -1.0]))
    assert uncertain == {"share": 1.0, "interval": None, "per_seed": [1.0, 1.0]}


def test_without_a_plan_nothing_is_said() -> None:
    assert bounds_summary(result(), "maf", ["s"]) is None
