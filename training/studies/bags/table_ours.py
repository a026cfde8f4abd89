"""Spotweave's policies against HADS and Burst-HADS (Teylo 2021), in the same worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from spotweave.agents.bags.ils import plan_with_bursts
from spotweave.agents.bags.schedulers import POLICIES
from spotweave.envs.simulation.bags.cases import SCENARIOS, Scenario
from spotweave.envs.simulation.bags.fleet import Outcome, fitness_scales
from spotweave.envs.simulation.bags.model import Environment
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.training.bags import OnePlan, execute, play, policy_named
from spotweave.training.studies.bags import chapter_7, chapter_9
from spotweave.training.studies.cells import interval_cell, table
from spotweave.training.studies.federated.playing import paired

SEEDS, FIRST_SEED = 30, 100  # fresh seeds: we had looked at those of Tables 7.5 and 9.6 before
THEIRS = {"hads": "HADS", "burst-hads": "Burst-HADS"}


@dataclass(frozen=True)
class Setting:
    """One job of one chapter: its environment, the plans that the literature's schedulers carry out."""

    environment: Environment
    plans: Mapping[str, Plan]
    scenarios: Sequence[str]


def settings_of(name: str) -> dict[str, Setting]:
    """By chapter; Burst-HADS is left out where its planner cannot keep the deadline."""
    nine = chapter_9.plans_of(name)
    seven = chapter_7.starting_plan(name)
    plans = {"hads": seven}
    with suppress(ImpossibleDeadlineError):
        plans["burst-hads"] = plan_with_bursts(seven.bag, chapter_7.ENVIRONMENT, chapter_7.DEADLINE_S)
    return {
        "9": Setting(
            chapter_9.ENVIRONMENT,
            {"hads": nine.hads, "burst-hads": nine.burst},
            [f"s_{number}" for number in range(1, 6)],
        ),
        "7": Setting(chapter_7.ENVIRONMENT, plans, [f"sc_{number}" for number in range(1, 8)]),
    }


def make() -> dict[str, Any]:
    """All jobs and scenarios of chapters 9 and 7."""
    found: dict[str, Any] = {"9": {}, "7": {}}
    for name in chapter_9.JOBS:
        for chapter, setting in settings_of(name).items():
            found[chapter][name] = {
                scenario: _cell(setting, SCENARIOS[scenario]) for scenario in setting.scenarios
            }
    return {"seeds": SEEDS, "chapters": found}


def _cell(setting: Setting, scenario: Scenario) -> dict[str, Any]:
    """Means of every player, and how ours lie against the better of the literature's in the objective."""
    launch_s = setting.environment.migration_overhead_s
    start = setting.plans["hads"]
    source = OnePlan(replace(start, vms=()), setting.environment, scenario, launch_s, FIRST_SEED)
    columns = {}
    for name, plan in setting.plans.items():
        outcomes = execute(plan, setting.environment, scenario, name, SEEDS, launch_s, FIRST_SEED)
        columns[name] = _columns(outcomes, setting, start)
    better = min(columns, key=lambda name: fmean(columns[name]["objective"]))
    for name in POLICIES:
        columns[name] = _columns(play(policy_named(name, source), source, SEEDS), setting, start)
    return {
        "better": better,
        "players": {
            name: {metric: fmean(values) for metric, values in mine.items()} for name, mine in columns.items()
        },
        "against": {
            name: paired(columns[name], columns[better], {"objective": "percent"})["objective"]
            for name in POLICIES
        },
    }


def _columns(outcomes: Sequence[Outcome], setting: Setting, start: Plan) -> dict[str, list[float]]:
    cost_scale, time_scale = fitness_scales(setting.environment, start.d_spot_s)
    return {
        "cost_usd": [one.cost_usd for one in outcomes],
        "makespan_s": [one.makespan_s for one in outcomes],
        "objective": [cost_scale * one.cost_usd + time_scale * one.makespan_s for one in outcomes],
        "missed": [float(one.missed) for one in outcomes],
    }


def body(document: Mapping[str, Any]) -> str:
    """A table per chapter, and below each the means over its rows."""
    return "\n\n".join(_chapter(jobs) for jobs in document["chapters"].values())


def _chapter(jobs: Mapping[str, Any]) -> str:
    ours = list(next(iter(next(iter(jobs.values())).values()))["against"])
    names = [*THEIRS, *ours]
    header = ["job, scenario"]
    header += [text for name in names for text in (f"{_title(name)} USD", "s")]
    header += [text for name in ours for text in (f"{_title(name)} against the better", "missed")]
    rows = []
    for job, cells in jobs.items():
        for scenario, cell in cells.items():
            players, against = cell["players"], cell["against"]
            row = [f"{job} {scenario}"]
            for name in names:
                player = players.get(name)
                row += [f"{player['cost_usd']:.3f}", f"{player['makespan_s']:.0f}"] if player else ["", ""]
            for name in ours:
                row += [interval_cell(against[name]), str(round(players[name]["missed"] * SEEDS))]
            rows.append(row)
    return table(header, rows) + "\n\n" + _means(jobs, names, ours)


def _title(name: str) -> str:
    return THEIRS.get(name, f"`{name}`")


def _means(jobs: Mapping[str, Any], names: Sequence[str], ours: Sequence[str]) -> str:
    cells = [cell for scenarios in jobs.values() for cell in scenarios.values()]
    shared = [cell["players"] for cell in cells if all(name in cell["players"] for name in names)]
    means = [
        f"{_title(name)} {fmean(players[name]['cost_usd'] for players in shared):.3f} USD and "
        f"{fmean(players[name]['makespan_s'] for players in shared):.0f} s"
        for name in names
    ]
    against = []
    for name in ours:
        changes = [cell["against"][name]["mean"] for cell in cells]
        against.append(f"{_title(name)} {fmean(changes):+.1f} % (worst row {max(changes):+.1f} %)")
    return (
        f"Means over the {len(shared)} rows in which all play: {', '.join(means)}. Objective against the "
        f"better of HADS and Burst-HADS, mean over all {len(cells)} rows: {', '.join(against)}."
    )
