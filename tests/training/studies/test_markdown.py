"""Tables as they stand on the page."""

from __future__ import annotations

import json
from typing import Any

from tests.training.studies.cases import facts, played, result, settings
from tests.training.studies.test_bounds import bounded
from training.evaluation.episodes import Suite
from training.studies.experiment import FigureSettings
from training.studies.markdown import closed_table, fragment, means_table, paired_table
from training.studies.scenario import Measured, ScenarioResult, experiment_summary

SUITE = Suite("test", "test", seed=3003, episodes=3)


def summary(measured: ScenarioResult | None = None, **changes: Any) -> dict[str, Any]:
    """As it comes back from its file."""
    results = {"base": measured or result()}
    made = experiment_summary(settings(**changes), SUITE, results, "python training/compare.py x")
    read: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return read


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_published_numbers_stand_below_measured_ones() -> None:
    given = summary()
    table = rows(means_table(given, given["scenarios"]["base"]))
    assert table[0] == ["policy", "seeds", "TMDL ↓", "AJER ↓", "F/S/N against MAF"]
    assert table[2] == [
        "**Mine**",
        "2",
        "25.00 (20.00 to 30.00)",
        "103.3 (102.7 to 104.0)",
        "1/2/0 (F 1 to 1)",
    ]
    assert table[3] == ["*Mine, published*", "", "*61.7*", "*90.3*", "*46/4/0*"]
    assert table[4] == ["MAF", "", "40.00", "104.3", ""]
    assert table[5] == ["*MAF, published*", "", "*343.84*", "", ""]
    assert [row[0] for row in table[6:]] == ["Tuned rule"]


def test_differences_and_ratios_stand_beside_published_ratios() -> None:
    given = summary()
    table = rows(paired_table(given, given["scenarios"]["base"]))
    assert table[0] == [
        "policy",
        "TMDL: policy − MAF, 95 %",
        "TMDL: policy − Tuned rule, 95 %",
        "TMDL: MAF / policy",
    ]
    mine, tuned = table[2:]
    assert mine[1].startswith("-15.00 [")
    assert mine[2].endswith("] *")
    # 343.84 / 61.70 = 5.57, as the thesis prints it.
    assert mine[3] == "1.60 (*published 5.57*)"
    assert tuned[2] == ""
    assert tuned[3] == "8.00"


def test_scores_of_chapter_4_have_a_column_each() -> None:
    given = summary(scores="abcd")
    table = rows(means_table(given, given["scenarios"]["base"]))
    assert table[0][-4:] == [f"Score-{letter} against MAF" for letter in "ABCD"]
    assert table[2][-4] == "33.33 (33.33 to 33.33)"
    assert table[4][-4:] == [""] * 4


def test_bounds_stand_below_the_means_and_say_what_is_closed() -> None:
    given = summary(bounded(), metrics=["tmdl", "s"])
    scenario = given["scenarios"]["base"]
    table = rows(means_table(given, scenario))
    assert table[-2] == ["Clairvoyant plan (bound from below), 2 episodes", "", "5.00", "-5.00", ""]
    assert table[-1] == ["No waiting, no misses (bound from above)", "", "", "10.00", ""]
    closed = rows(closed_table(given, scenario))
    assert closed[0] == [
        "the first 2 episodes",
        "S ↑",
        "share of the gap from MAF to the clairvoyant plan that is closed, 95 %",
        "share of the gap from Tuned rule to the clairvoyant plan that is closed, 95 %",
    ]
    # 50 of 215, and -115 of 50, see test_bounds.
    assert closed[2][:2] == ["**Mine**", "-170.0 (-200.0 to -140.0)"]
    assert closed[2][2].startswith("23.3 % [")
    assert closed[2][3].startswith("-230.0 % [")
    assert closed[3][:3] == ["MAF", "-220.0", "0 %"]
    assert closed[4][3] == "0 %"
    assert closed[5:] == [
        ["Clairvoyant plan (bound from below)", "-5.00", "100 %", "100 %"],
        ["No waiting, no misses (bound from above)", "5.00", "", ""],
    ]
    assert closed_table(given, scenario) in fragment(given)


def test_bounds_of_a_cost_are_from_the_other_side() -> None:
    given = summary(bounded(), metrics=["tmdl", "s"])
    scenario = given["scenarios"]["base"]
    scenario["higher_is_better"]["s"] = False
    titles = [row[0] for row in rows(means_table(given, scenario))[-2:]]
    assert titles == [
        "Clairvoyant plan (bound from above), 2 episodes",
        "No waiting, no misses (bound from below)",
    ]


def test_a_share_that_cannot_be_told_is_not_printed() -> None:
    given = summary(bounded(), metrics=["tmdl", "s"])
    scenario = given["scenarios"]["base"]
    policies = scenario["bounds"]["policies"]
    policies["mine"]["closed"]["interval"] = None
    policies["tuned"]["closed"] = None
    closed = rows(closed_table(given, scenario))
    assert [row[2] for row in closed[2:5]] == ["23.3 %", "0 %", "not defined"]


def test_an_overview_has_a_table_of_bounds() -> None:
    given = summary(bounded(), metrics=["s", "tmdl"], paired=["s"], overview=True)
    found = [rows(part) for part in fragment(given).split("\n\n") if part.startswith("|")]
    assert [table[0][0] for table in found] == ["S ↑", "S ↑, the first episodes", "TMDL ↓"]
    assert found[1][0][2:] == [
        "MAF",
        "**Mine**",
        "clairvoyant plan",
        "clairvoyant plan − MAF, 95 %",
        "share of that gap closed by Mine, 95 %",
    ]
    (row,) = found[1][2:]
    # By hand in test_bounds: S of MAF -220, of mine -170, of the plan -5.
    assert row[:5] == ["Base", "2", "-220.0", "-170.0", "-5.00"]
    assert row[5].startswith("+215.0 [")
    assert row[5].endswith("] * (-97.7 %)")
    assert row[6].startswith("23.3 % [")


def test_an_overview_is_higher_than_wide() -> None:
    given = summary(metrics=["tmdl"], paired=["tmdl"], overview=True)
    # Three policies in one scenario: a row each, then the agent's difference.
    found = rows(fragment(given).split("\n\n")[0])
    assert found[0] == ["TMDL ↓", "Base"]
    assert found[2:5] == [["**Mine**", "25.00"], ["MAF", "40.00"], ["Tuned rule", "5.00"]]
    assert found[5][0] == "Mine − MAF, 95 %"
    assert found[5][1].startswith("-15.00 [")
    # The same scenario four times: a row each.
    given["scenarios"] |= dict.fromkeys(("2", "3", "4"), given["scenarios"]["base"])
    found = rows(fragment(given).split("\n\n")[0])
    assert found[0] == ["TMDL ↓", "**Mine**", "MAF", "Tuned rule", "Mine − MAF, 95 %"]
    assert [row[0] for row in found[2:]] == ["Base"] * 4


def test_a_share_of_a_gap_that_may_be_none_is_not_printed() -> None:
    given = summary(bounded(), metrics=["s"], overview=True)
    given["scenarios"]["base"]["bounds"]["room"]["clear"] = False
    assert "| no gap told from 0 |" in fragment(given)


def test_an_overview_shows_the_differences_that_are_named() -> None:
    named = [("mine", "tuned", "tmdl"), ("maf", "tuned", "ajer")]
    given = summary(metrics=["tmdl", "ajer"], paired=[], overview=True, strongest=None, differences=named)
    last = rows(fragment(given).split("\n\n")[-2])
    assert last[0] == ["paired differences, 95 %", "TMDL: Mine − Tuned rule", "AJER: MAF − Tuned rule"]
    # By hand: 25 - 5 and (104 + 103 + 106) / 3 - 101.
    assert last[2][0] == "Base"
    assert last[2][1].startswith("+20.00 [")
    assert last[2][2].startswith("+3.33 [")


def test_an_overview_without_plans_has_no_table_of_bounds() -> None:
    assert "clairvoyant" not in fragment(summary(metrics=["s"], overview=True))


def test_agents_may_have_different_numbers_of_seeds() -> None:
    base = bounded()
    five = Measured(
        "ours",
        tuple(played([k, k, k], [100, 100, 100]) for k in range(5)),
        tuple(facts(k, 0.0) for k in range(5)),
    )
    more = ScenarioResult(base.spec, base.env, base.hash, {"ours": five, **base.policies}, base.bounds)
    given = summary(more, metrics=["tmdl", "s"])
    scenario = given["scenarios"]["base"]
    for made in (means_table, paired_table, closed_table):
        table = rows(made(given, scenario))
        assert len({len(row) for row in table}) == 1
    table = rows(means_table(given, scenario))
    assert [row[:2] for row in table[2:4]] == [["**ours**", "5"], ["**Mine**", "2"]]
    assert table[2][2] == "2.00 (0 to 4.00)"
    assert table[2][4] == "3/0/0 (F 3 to 3)"


def test_nothing_paired_gives_no_second_table() -> None:
    given = summary(paired=[], ratios=[])
    assert paired_table(given, given["scenarios"]["base"]) == ""


def test_a_fragment_names_its_command_and_suite_and_shows_pictures() -> None:
    figure = FigureSettings(
        "sorted_episodes", "What is drawn.", metrics=["tmdl"], sort_policy="maf", sort_metric="s"
    )
    text = fragment(summary(table=False, figures={"figure_1": figure}))
    assert "| policy" not in text
    assert "![figure_1](toy/figure_1.png)\n\nWhat is drawn." in text
    assert text.splitlines()[-1].startswith(
        "`python training/compare.py x`; suite `test`, 3 episodes, suite hash ffffffffffff, commit "
    )
