"""Tables as they stand on no page of docs/results yet; tests/training/studies/test_page.py has the others."""

from __future__ import annotations

import json
from typing import Any

from spotweave.training.evaluation.episodes import Suite
from spotweave.training.studies.markdown import closed_table, fragment, means_table, paired_table
from spotweave.training.studies.scenario import ScenarioResult, experiment_summary
from tests.training.studies.cases import result, settings, with_five_seeds
from tests.training.studies.test_bounds import bounded

SUITE = Suite("test", "test", seed=3003, episodes=3)


def summary(measured: ScenarioResult | None = None, **changes: Any) -> dict[str, Any]:
    """As it comes back from its file."""
    results = {"base": measured or result()}
    made = experiment_summary(settings(**changes), SUITE, results, "python training/compare.py x")
    read: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return read


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


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


def test_agents_may_have_different_numbers_of_seeds() -> None:
    more = with_five_seeds(bounded(), [[k, k, k] for k in range(5)], [100, 100, 100])
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
