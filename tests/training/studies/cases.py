"""Small results with numbers that can be checked by hand."""

from __future__ import annotations

import dataclasses

from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.studies.evaluations import Played
from spotweave.training.studies.experiment import ExperimentSettings, ScenarioSettings
from spotweave.training.studies.scenario import Measured, ScenarioResult
from tests.training.fake_world import FakeWorld


def spec() -> WorldSpec:
    return dataclasses.replace(
        FakeWorld(1).spec,
        metrics=("s", "tmdl", "ajer", "ajdr", "s_log"),
        higher_is_better=(True, False, False, False, True),
    )


def played(tmdl: list[float], ajer: list[float]) -> Played:
    s = [-misses + 50 * (100 - ratio) for misses, ratio in zip(tmdl, ajer, strict=True)]
    metrics = {
        "s": s,
        "tmdl": tmdl,
        "ajer": ajer,
        "ajdr": [a - 100 for a in ajer],
        "s_log": [x / 100 for x in s],
    }
    return Played(metrics, [3] * len(tmdl))


def facts(seed: int, s: float) -> dict[str, object]:
    return {"path": f"runs/mine/seed{seed}", "sha256": "0" * 64, "seed": seed, "validation": {"s": s}}


def result() -> ScenarioResult:
    """`mine` has two seeds on three episodes; MAF and the tuned rule are rules."""
    mine = Measured(
        "mine",
        (played([10, 20, 30], [101, 104, 103]), played([20, 30, 40], [103, 104, 105])),
        (facts(0, -5.0), facts(1, 7.0)),
    )
    maf = Measured("maf", (played([40, 50, 30], [104, 103, 106]),))
    tuned = Measured("tuned", (played([5, 5, 5], [101, 101, 101]),))
    return ScenarioResult(spec(), {"name": "fake"}, "f" * 64, {"mine": mine, "maf": maf, "tuned": tuned})


def with_five_seeds(base: ScenarioResult, tmdl: list[list[float]], ajer: list[float]) -> ScenarioResult:
    """`ours`, which has more seeds than `mine`, before the others."""
    ours = Measured(
        "ours", tuple(played(of_seed, ajer) for of_seed in tmdl), tuple(facts(k, 0.0) for k in range(5))
    )
    return dataclasses.replace(base, policies={"ours": ours, **base.policies})


def settings(**changes: object) -> ExperimentSettings:
    published: dict[str, dict[str, float | list[float]]] = {
        "mine": {"tmdl": 61.7, "ajer": 90.3, "fsn": [46, 4, 0]},
        "maf": {"tmdl": 343.84},
    }
    given = ExperimentSettings(
        study="toy",
        name="table_1",
        title="Table 1",
        trainings="train it",
        scenarios={"base": ScenarioSettings("Base", ["+env=fake"], {}, published)},
        rules=["maf", "tuned"],
        reference="maf",
        metrics=["tmdl", "ajer"],
        agents={"mine": "runs/mine/seed*"},
        strongest="tuned",
        paired=["tmdl"],
        ratios=["tmdl"],
        scores="fsn",
        titles={"mine": "Mine"},
    )
    return dataclasses.replace(given, **changes)  # type: ignore[arg-type]
