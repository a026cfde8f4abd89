"""Published episodes of agents next to rules that are played again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotweave.training.config import UsageError
from spotweave.training.evaluation.episodes import Suite
from spotweave.training.evaluation.statistics import (
    bootstrap_interval,
    clustered_interval,
    hierarchical_interval,
)
from spotweave.training.files import write_json
from spotweave.training.studies.bounds import Bounds
from spotweave.training.studies.evaluations import Played
from spotweave.training.studies.experiment import ClairvoyantSettings, ExperimentSettings, FigureSettings
from spotweave.training.studies.markdown import fragment, origin
from spotweave.training.studies.measuring import best_seed
from spotweave.training.studies.scenario import (
    Measured,
    ScenarioResult,
    experiment_summary,
    mean_interval,
    policy_summary,
    write_experiment_episodes,
)
from spotweave.training.studies.stored import read_stored
from tests.training.studies.cases import facts, played, result, settings
from tests.training.studies.test_bounds import bounded


def summarised(asked: ExperimentSettings, scenario: ScenarioResult) -> dict[str, Any]:
    """The summary of an experiment with this one scenario."""
    return experiment_summary(asked, Suite("test", "test", 1, 3), {"base": scenario}, "c")


def publish(folder: Path, asked: ExperimentSettings, scenario: ScenarioResult) -> None:
    """What the page of a study keeps of an experiment."""
    write_json(folder / f"{asked.name}.json", summarised(asked, scenario))
    file = folder / f"{asked.name}.csv"
    write_experiment_episodes(asked, {"base": scenario}, file, every_metric=False)


@pytest.fixture
def asked(tmp_path: Path) -> ExperimentSettings:
    """An experiment whose agents were published."""
    asked = settings(stored="agents")
    publish(tmp_path, asked, result())
    return asked


def rules_alone(**changes: Measured) -> ScenarioResult:
    """The scenario as it is played without agents."""
    whole = result()
    policies = {name: whole.policies[name] for name in ("maf", "tuned")} | changes
    return dataclasses.replace(whole, policies=policies)


def test_published_agents_stand_next_to_a_rule_that_is_new(tmp_path: Path, asked: ExperimentSettings) -> None:
    stored = read_stored(tmp_path, asked)
    eft = Measured("eft", (played([1, 2, 3], [101, 102, 103]),))
    added = stored.added_to(rules_alone(eft=eft), "base", asked)
    assert list(added.policies) == ["mine", "maf", "tuned", "eft"]
    mine = added.policies["mine"]
    assert mine.table("tmdl").tolist() == [[10, 20, 30], [20, 30, 40]]
    assert [facts["seed"] for facts in mine.checkpoints] == [0, 1]
    # Against the new rule: (9 + 18 + 27 + 19 + 28 + 37) / 6 = 23 misses more.
    asked = dataclasses.replace(asked, rules=["maf", "tuned", "eft"], strongest="eft")
    against = summarised(asked, added)["scenarios"]["base"]["policies"]["mine"]["against"]["eft"]
    assert against["difference"]["tmdl"]["mean"] == pytest.approx(23.0)


def test_the_page_says_which_commit_played_the_agents(tmp_path: Path, asked: ExperimentSettings) -> None:
    stored = read_stored(tmp_path, asked)
    summary = summarised(asked, result())
    assert "as measured at commit" not in origin(summary)
    summary["stored"] = {"mine": "0123456789abcdef"}
    assert origin(summary).endswith("; `mine` as measured at commit 0123456789ab")
    # Published a second time, the agent is still that of the first; the rules are of the second.
    write_json(tmp_path / "table_1.json", summary)
    again = read_stored(tmp_path, asked)
    assert again.commit("mine") == "0123456789abcdef" != stored.commit("mine")
    assert again.commit("maf") == stored.commit("maf")


def test_an_agent_that_was_played_now_is_not_the_published_one(
    tmp_path: Path, asked: ExperimentSettings
) -> None:
    trained_again = dataclasses.replace(
        result().policies["mine"], seeds=(played([7, 8, 9], [101, 102, 103]),) * 2
    )
    now = rules_alone(mine=trained_again)
    added = read_stored(tmp_path, asked).added_to(now, "base", asked)
    assert added.policies["mine"].table("tmdl").tolist() == [[7, 8, 9]] * 2
    assert list(added.policies) == ["mine", "maf", "tuned"]


def test_rules_by_name_are_taken_if_their_first_episodes_are_as_published(
    tmp_path: Path, asked: ExperimentSettings
) -> None:
    """The rule `tuned` has changed and is measured again, as is the agent that corrects it."""
    asked = dataclasses.replace(asked, stored=["maf"])
    asked.check()
    stored = read_stored(tmp_path, asked)
    changed = {name: Measured(name, (played([1, 2, 3], [101, 102, 103]),)) for name in ("mine", "tuned")}
    first = Measured("maf", (played([40, 50], [104, 103]),))
    added = stored.added_to(rules_alone(**changed, maf=first), "base", asked)
    assert list(added.policies) == ["mine", "maf", "tuned"]
    assert added.policies["maf"].table("tmdl").tolist() == [[40, 50, 30]]
    assert added.policies["tuned"].table("tmdl").tolist() == [[1, 2, 3]]
    other = Measured("maf", (played([40, 51], [104, 103]),))
    with pytest.raises(UsageError, match=r"the rule maf no longer plays"):
        stored.added_to(rules_alone(**changed, maf=other), "base", asked)
    with pytest.raises(UsageError, match=r"experiment.stored names 'unknown': expected none \| agents"):
        dataclasses.replace(asked, stored=["unknown"]).check()
    with pytest.raises(UsageError, match=r"experiment.stored names policies, and table_1 has draws or plans"):
        dataclasses.replace(asked, clairvoyant=ClairvoyantSettings("maf")).check()


def test_a_metric_that_was_not_published_is_told(tmp_path: Path, asked: ExperimentSettings) -> None:
    more = dataclasses.replace(asked, metrics=[*asked.metrics, "s_log"])
    with pytest.raises(UsageError, match=r"table_1.csv has no s_log of mine in base: measure it"):
        read_stored(tmp_path, more).added_to(rules_alone(), "base", more)


def test_everything_is_computed_again_from_what_was_published(tmp_path: Path) -> None:
    asked = settings(metrics=["tmdl", "ajer", "s"], stored="all")
    publish(tmp_path, asked, bounded())
    whole = bounded()
    empty = dataclasses.replace(whole, policies={}, bounds=None)
    again = read_stored(tmp_path, asked).added_to(empty, "base", asked)
    first = summarised(asked, whole)
    assert fragment(summarised(asked, again)) == fragment(first)
    # Two of the three episodes start on one day: intervals say so, means stay.
    days = summarised(asked, dataclasses.replace(again, groups=(7, 7, 8)))
    before, after = (
        found["scenarios"]["base"]["policies"]["mine"]["against"]["maf"]["difference"]["tmdl"]
        for found in (first, days)
    )
    assert before["mean"] == after["mean"]
    interval = clustered_interval([[-30, -30, 0], [-20, -20, 10]], [7, 7, 8])
    assert after["interval"] == [interval.low, interval.high] != before["interval"]


def test_plans_of_the_same_rule_are_not_made_again_and_others_are_refused(tmp_path: Path) -> None:
    made = Bounds({"policy": "maf"}, 40, played([4, 6], [100, 100]), (0.0, 10.0, 20.0))
    planned = dataclasses.replace(result(), bounds=made)
    plan = ClairvoyantSettings("maf", episodes=2, further=40)
    asked = settings(metrics=["tmdl", "ajer", "s"], stored="agents", clairvoyant=plan)
    publish(tmp_path, asked, planned)
    found = read_stored(tmp_path, asked).added_to(rules_alone(), "base", asked).bounds
    assert found is not None
    assert found.planned.metrics["s"] == made.planned.metrics["s"]
    for other in ({"base": "tuned"}, {"further": 39}, {"episodes": 3}, {"skipped": ["base"]}):
        changed = dataclasses.replace(asked, clairvoyant=dataclasses.replace(plan, **other))
        with pytest.raises(UsageError, match=r"other plans in base .* measure it without experiment.stored"):
            read_stored(tmp_path, changed).added_to(rules_alone(), "base", changed)
    # Nothing was planned: a table that asks for it does not go without.
    publish(tmp_path, asked, result())
    with pytest.raises(UsageError, match="other plans in base"):
        read_stored(tmp_path, asked).added_to(rules_alone(), "base", asked)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (
            dataclasses.replace(rules_alone(), hash="e" * 64),
            "suite hash ffffffffffff for base, whose suite hash is e",
        ),
        (
            rules_alone(maf=Measured("maf", (played([40, 50, 31], [104, 103, 106]),))),
            r"the rule maf no longer plays .*\(base, tmdl\): the world has changed",
        ),
    ],
)
def test_episodes_of_another_world_are_refused(
    tmp_path: Path, asked: ExperimentSettings, scenario: ScenarioResult, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_stored(tmp_path, asked).added_to(scenario, "base", asked)


def test_what_was_not_published_is_told(tmp_path: Path) -> None:
    asked = settings(stored="agents")
    with pytest.raises(UsageError, match=r"table_1.json does not exist: nothing was published of table_1"):
        read_stored(tmp_path, asked)
    publish(tmp_path, asked, result())
    more = dataclasses.replace(asked, agents={**asked.agents, "other": "runs/other/seed*"})
    with pytest.raises(UsageError, match=r"has no policy other in base"):
        read_stored(tmp_path, more).added_to(rules_alone(), "base", more)
    drawn = dataclasses.replace(asked, figures={"lines": FigureSettings("training_curves", "")})
    with pytest.raises(UsageError, match="lines shows the trained policies themselves"):
        read_stored(tmp_path, drawn)
    planned = dataclasses.replace(asked, clairvoyant=ClairvoyantSettings("mine"))
    with pytest.raises(UsageError, match="base is 'mine', and stored agents cannot play"):
        read_stored(tmp_path, planned)


# The numbers behind a table, computed by hand.


def summary(policy: str) -> dict[str, Any]:
    return policy_summary(result(), policy, ["tmdl", "s"], ["maf", "tuned"])


def test_what_a_table_says_of_a_policy_by_hand() -> None:
    mine, maf = summary("mine"), summary("maf")
    assert (mine["seeds"], mine["trained"], maf["trained"]) == (2, True, False)
    assert mine["metrics"]["tmdl"]["mean"] == 25.0
    assert mine["metrics"]["tmdl"]["per_seed"] == [20.0, 30.0]
    against, tuned = mine["against"]["maf"], mine["against"]["tuned"]["difference"]
    assert maf["against"].keys() == {"tuned"}
    # Episode by episode: -30 -30 0 and -20 -20 +10.
    assert against["difference"]["tmdl"]["mean"] == pytest.approx(-15.0)
    interval = hierarchical_interval([[-30, -30, 0], [-20, -20, 10]])
    assert against["difference"]["tmdl"]["interval"] == [interval.low, interval.high]
    # Against the tuned rule more misses and a lower S in every episode: worse in both, whatever the sign.
    assert tuned["tmdl"]["mean"] == pytest.approx(20.0)
    assert tuned["tmdl"]["verdict"] == "worse"
    assert tuned["s"]["mean"] < 0
    assert against["ratio"]["tmdl"] == pytest.approx(40.0 / 25.0)
    assert against["ratio"]["s"] is None  # a negative mean has no such ratio
    # Seed 0: both, misses only, delay only. Seed 1: both, misses only, delay only.
    assert against["fsn"] == {"mean": [1.0, 2.0, 0.0], "per_seed": [[1, 2, 0]] * 2}
    scores = against["scores"]
    assert scores["a"] == {"mean": pytest.approx(100 / 3), "per_seed": [pytest.approx(100 / 3)] * 2}
    assert scores["b"]["mean"] == pytest.approx(100 * (1 + 0.5 + 0.5) / 3)


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


def test_where_a_delay_is_negative_there_are_no_scores() -> None:
    faster = Measured("fast", (played([1, 1, 1], [99, 100, 101]),))
    base = result()
    mixed = ScenarioResult(base.spec, base.env, base.hash, {**base.policies, "fast": faster})
    assert policy_summary(mixed, "fast", ["tmdl"], ["maf"])["against"]["maf"]["scores"] is None  # type: ignore[index]


def test_one_seed_has_the_interval_of_its_episodes() -> None:
    table = np.array([[1.0, 2.0, 6.0]])
    assert mean_interval(table) == bootstrap_interval(table[0])


def test_the_seed_that_is_drawn_is_the_best_on_validation() -> None:
    given = result()
    assert best_seed(given, "mine") == 1
    cost = dataclasses.replace(given.spec, higher_is_better=(False,) * 5)
    assert best_seed(dataclasses.replace(given, spec=cost), "mine") == 0


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
