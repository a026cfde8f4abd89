"""Every experiment in configs/ composes, is typed, and holds the numbers that the thesis prints."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotweave.agents.stored import RELEASED, released_names
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.market_data import market_data
from spotweave.envs.simulation.market.config import MarketWorldConfig
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.variety import Variety, vary
from spotweave.training.config import CONFIG_DIRECTORY, UsageError, compose_values, typed, world_config
from spotweave.training.evaluation.episodes import find_suite, suite_hash
from spotweave.training.studies.experiment import ExperimentSettings, read_experiment, scenario_env
from spotweave.training.studies.scenario import joined_hash
from spotweave.training.studies.search import TuneSettings
from spotweave.training.studies.trained import (
    RepeatSettings,
    Trained,
    WeightedRuns,
    find_policies,
    find_trained,
    planned_runs,
)

FOLDER = Path(CONFIG_DIRECTORY) / "experiment"
NAMES = sorted(
    path.relative_to(FOLDER).with_suffix("").as_posix()
    for path in FOLDER.rglob("*.yaml")
    if path.stem.startswith(("table_", "figure_"))
)


def market_names() -> list[str]:
    names = [path.stem for path in sorted(Path(CONFIG_DIRECTORY, "env", "markets").glob("*.yaml"))]
    return sorted(names, key=lambda name: (name != "default", name))


def market_config(name: str) -> MarketWorldConfig:
    values = compose_values("compare", ["+env=multicloud", f"+env/markets={name}"])
    config = world_config(values["env"])
    assert isinstance(config, MarketWorldConfig)
    return config


@cache
def experiment(name: str) -> ExperimentSettings:
    return read_experiment(compose_values("compare", [f"+experiment={name}"])["experiment"])


def environment_of(words: list[str]) -> str:
    return next(word for word in words if word.startswith("+env=")).removeprefix("+env=")


@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_composes(name: str) -> None:
    values = compose_values("compare", [f"+experiment={name}"])
    markets = name.startswith("markets/") or name.endswith("/table_markets")
    assert (values["suite"], values["episodes"]) == ("test", 100 if markets else 50)
    settings = experiment(name)
    assert f"{settings.study}/{settings.name}" == name
    assert settings.overview or settings.table != bool(settings.figures)
    for scenario in settings.by_world().scenarios.values():
        assert settings.agents or scenario.agents
        known = {*settings.agents, *scenario.agents, *settings.rules}
        assert set(scenario.published) <= known
        if environment_of(scenario.env) in ENVIRONMENTS:
            env = scenario_env(scenario)
            spec = ENVIRONMENTS[env["name"]].build(world_config(env), 1).spec
            assert {*settings.metrics, *settings.paired, *settings.ratios} <= set(spec.metrics)


PUBLISHED = Path(__file__).resolve().parents[3] / "docs" / "results"


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in NAMES if (PUBLISHED / f"{name}.json").is_file()])
def test_published_episodes_are_those_of_today(name: str) -> None:
    """Else no rule could be added to a table whose agents are no longer there (`experiment.stored`)."""
    published = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    suite = find_suite(published["suite"]["name"], published["suite"]["episodes"])
    settings = experiment(name)
    for scenario, held in published["scenarios"].items():
        hashes = []
        for part in settings.parts_of(scenario).values():
            env = scenario_env(part)
            hashes.append(suite_hash(ENVIRONMENTS[env["name"]].build(world_config(env), 1), suite))
        assert held["suite_hash"] == joined_hash(hashes), scenario


@pytest.mark.real
def test_the_table_of_markets_shows_every_published_market() -> None:
    shown = [scenario_env(scenario) for scenario in experiment("markets/table_released").scenarios.values()]
    configs = {name: market_config(name) for name in market_names()}
    assert next(iter(configs)) == "default"
    assert [world_config(env) for env in shown[:1]] == [configs["default"]]
    assert len(shown) == len(configs)
    for config in configs.values():
        assert config in [world_config(env) for env in shown]


@pytest.mark.parametrize(
    ("name", "scenario", "ours", "reference", "metric", "ratio"),
    [
        ("table_4_2", "bernoulli", "rl_fc", "sf_e", "tmdl", "5.40"),
        ("table_4_2", "bernoulli", "rl_fc", "sf_e", "ajdr", "1.78"),
        ("table_4_2", "uniform", "rl_fc", "sf_e", "tmdl", "7.55"),
        ("table_4_2", "uniform", "rl_fc", "sf_e", "ajdr", "2.08"),
        ("table_4_2", "beta", "rl_fc", "sf_e", "tmdl", "4.40"),
        ("table_4_2", "beta", "rl_fc", "sf_e", "ajdr", "1.79"),
        ("table_4_3", "eased", "rl_fc", "sf_e", "tmdl", "8.59"),
        ("table_4_3", "eased", "rl_fc", "sf_e", "ajdr", "1.56"),
        ("table_4_3", "stressed", "rl_fc", "sf_e", "tmdl", "2.93"),
        ("table_4_3", "stressed", "rl_fc", "sf_e", "ajdr", "1.45"),
        ("table_5_3", "b33", "rl_lsfc", "maf", "tmdl", "5.57"),
    ],
)
def test_published_means_have_the_published_ratios(
    name: str, scenario: str, ours: str, reference: str, metric: str, ratio: str
) -> None:
    published = experiment(f"liu2022/{name}").scenarios[scenario].published
    means: list[Any] = [published[reference][metric], published[ours][metric]]
    assert f"{means[0] / means[1]:.2f}" == ratio


@pytest.mark.real
def test_every_agent_of_an_experiment_is_one_of_the_trainings() -> None:
    patterns = {}
    for study in ("liu2022", "markets", "comparators"):
        words = [f"+experiment={study}/trainings"]
        settings = typed(RepeatSettings, compose_values("repeat", words), "")
        patterns[study] = {
            f"{settings.out}/{run.training}/seed{seeds}"
            for run in planned_runs(settings)
            for seeds in ("*", run.seed)
        }
        patterns[study] |= {*released_names(RELEASED)}
    # Agents that are gone; their last published episodes stay.
    gone = ["multicluster/cluster_scorer", "longer/cluster_scorer", "multicloud/outcomes"]
    gone += [f"multicluster/{name}" for name in ("qr_dqn", "recurrent_ppo", "rllib_ppo")]
    gone += [f"multicloud/{name}" for name in ("qr_dqn", "rllib_ppo")]
    patterns["comparators"] |= {f"runs/comparators/{name}/seed*" for name in gone}
    for name in ("multicluster", "multicloud"):
        found = typed(TuneSettings, compose_values("tune", [f"+experiment=comparators/{name}"]), "")
        patterns["comparators"] |= {f"{found.out}/{agent}/seed*" for agent in found.searches}
    for name in NAMES:
        shown = experiment(name)
        for scenario in shown.by_world().scenarios.values():
            for source in {**shown.agents, **scenario.agents}.values():
                pattern = source.runs if isinstance(source, WeightedRuns) else source
                assert isinstance(pattern, str)
                assert pattern in patterns[shown.study]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("experiment.reference=eft", "experiment.reference is 'eft'"),
        ("experiment.rules=[maf,tnued]", "experiment.rules names 'tnued'"),
        ("experiment.clairvoyant.base=rl_fc", "experiment.clairvoyant.base is 'rl_fc': expected a policy of"),
        (
            "+experiment.clairvoyant.skipped=[nowhere]",
            "experiment.clairvoyant.skipped names scenario 'nowhere'",
        ),
        ("experiment.clairvoyant.episodes=1", "experiment.clairvoyant.episodes is 1"),
        ("experiment.agents.rl_lsfc={runs: a, wieghts: [1]}", "agents.rl_lsfc.weighted.weights"),
        ("experiment.agents.rl_lsfc={runs: a, weights: []}", "agents.rl_lsfc.weighted.weights is "),
        ("experiment.agents.rl_lsfc={runs: a, weights: [1, x]}", "agents.rl_lsfc.weighted.weights.1 is 'x'"),
        (
            "+experiment.differences=[[maf,maf,s]]",
            r"experiment.differences names \['maf', 'maf', 's'\]: expected two policies of scenario b33 \(",
        ),
        ("+experiment.differences=[[rl_lsfc,eft,s]]", r"\(rl_lsfc, spotweave, maf, tuned\)"),
        ("+experiment.differences=[[rl_lsfc,maf,makespan]]", r"metric \(tmdl, ajer, s_log, s\)"),
    ],
)
def test_mistakes_are_one_line(words: str, message: str) -> None:
    values = compose_values("compare", ["+experiment=liu2022/table_5_3", words])
    with pytest.raises(UsageError, match=message) as refused:
        read_experiment(values["experiment"])
    assert "\n" not in str(refused.value)


def test_agents_whose_difference_is_shown_have_as_many_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = {"rl_lsfc": 5, "rl_fc": 2}
    monkeypatch.setattr(
        "spotweave.training.studies.experiment.find_trained", lambda name, *_: [name] * seeds[name]
    )
    with pytest.raises(
        UsageError, match="names rl_fc with 2 seeds and rl_lsfc with 5 in scenario here: train"
    ):
        experiment("liu2022/table_ablations_5_6").agents_of("here")


def test_chapter_5_says_what_is_possible_on_every_workload() -> None:
    for name in ("table_5_3", "table_5_4", "table_5_5"):
        bound = experiment(f"liu2022/{name}").clairvoyant
        assert bound is not None
        assert (bound.base, bound.episodes, bound.further) == ("tuned", 50, 300)


@pytest.mark.parametrize("name", ["table_5_6", "figure_5_10"])
def test_rl_lsfc_b_is_rl_lsfc_under_other_weights(name: str) -> None:
    agents = experiment(f"liu2022/{name}").agents
    assert agents["rl_lsfc_b"] == WeightedRuns("runs/liu2022/rl_lsfc/seed*", [1.0, 0.05, 1.0])
    assert agents["rl_lsfc"] == "runs/liu2022/rl_lsfc/seed*"
    spec = ENVIRONMENTS["multicluster"].build(world_config({"name": "multicluster"}), 1).spec
    assert spec.weights == (1.0, 0.05, 5.0)  # of which only the delay's is another


class TestFindPolicies:
    def finished(self, run: Path) -> Path:
        run.mkdir(parents=True)
        for name in ("policy.pt", "done.json"):
            (run / name).write_text("")
        return run

    def test_seeds_come_in_order(self, tmp_path: Path) -> None:
        for seed in (10, 2, 0):
            self.finished(tmp_path / f"seed{seed}")
        found = find_policies("a", f"{tmp_path}/seed*", "train it")
        assert [path.parent.name for path in found] == ["seed0", "seed2", "seed10"]

    def test_relative_patterns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.finished(tmp_path / "runs" / "seed0")
        monkeypatch.chdir(tmp_path)
        assert find_policies("a", ["runs/seed*", "runs/seed0"], "") == [Path("runs/seed0/policy.pt")] * 2

    def test_nothing_trained_names_the_command(self, tmp_path: Path) -> None:
        with pytest.raises(
            UsageError, match=r"agent a is not trained: nothing matches .*\. Train it: train it"
        ):
            find_policies("a", f"{tmp_path}/seed*", "train it")

    def test_an_unfinished_run_is_not_measured(self, tmp_path: Path) -> None:
        (self.finished(tmp_path / "seed0") / "done.json").unlink()
        with pytest.raises(UsageError, match=r"seed0 is not trained to its end\. Go on with: train it"):
            find_policies("a", f"{tmp_path}/seed*", "train it")

    def test_weights_belong_to_every_seed(self, tmp_path: Path) -> None:
        runs = [self.finished(tmp_path / f"seed{seed}") for seed in (0, 1)]
        found = find_trained("a", WeightedRuns(f"{tmp_path}/seed*", [1.0, 2.0]), "train it")
        assert found == [Trained(run / "policy.pt", (1.0, 2.0)) for run in runs]
        plain = find_trained("a", f"{tmp_path}/seed*", "train it")
        assert [trained.weights for trained in plain] == [None, None]
        assert len({trained.identity for trained in (plain[0], found[0])}) == 2


# The published markets say of themselves what the recording and the draws say.


SEED = 20_240


@pytest.mark.parametrize("number", range(4))
def test_drawn_markets_are_what_their_seed_gives(number: int) -> None:
    drawn_only = Variety(
        share=1.0, every_offer=0.0, small_jobs=0.0, one_owned=1.0, jobs_only=0.0, load=[1.0, 1.0]
    )
    rng = Streams(np.random.SeedSequence(SEED, spawn_key=(number,))).generator("markets")
    assert market_config(f"drawn_{number}") == vary(market_config("default"), drawn_only, rng)


def test_outages_has_the_zones_that_were_down_longest_in_training() -> None:
    data = market_data(market_config("default").market)
    start, end = data.splits["train"]
    moments = np.arange(start, end, 300)
    up = {}
    for offer, series in zip(data.offers, data.availability, strict=True):
        if offer.market == "spot" and series is not None:
            rows = np.searchsorted(series.times_s, moments, side="right") - 1
            up[offer.name] = float((series.values[rows] > 0.5).mean())
    worst = sorted(up, key=lambda name: up[name])[:3]
    spot = [name for name in market_config("outages").market.offers if name.endswith("/spot")]
    assert sorted(worst) == sorted(spot)
    assert max(up[name] for name in worst) < 0.43
