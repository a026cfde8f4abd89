"""Tables 7.14 to 7.18 of Brum 2023 in simulation: what is printed next to what many sets of three runs give.

The thesis prints means of three runs. Each row is simulated with many seeds, three runs each; a printed mean
is inside if it lies within the middle 95 % of our means of three. The time on demand, to which the scenarios
are calibrated, is such a mean, too, so runs vary here by the deviation of a difference of two means (the
scenario's `run_cv` times the square root of two). Two readings of each row are simulated:

- "stated": every spot VM that is ready is revoked at the stated rate, once per task, as in the authors'
  simulator;
- "counted": as many revocations as the thesis counted in its three runs, of randomly chosen clients, at times
  drawn evenly over the training that the run would have had without any.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from spotweave.agents.federated.multi_fedls import MultiFedLS
from spotweave.envs.federated_data.multi_fedls import (
    MultiFedlsScenario,
    PublishedRow,
    PublishedTable,
    parse_multi_fedls,
)
from spotweave.envs.federated_data.rounds_scenarios import bundled_scenarios, read_json, scenario_path
from spotweave.envs.simulation.federations.rounds.application import SERVER, Application, Interruption, Market
from spotweave.envs.simulation.federations.rounds.decisions import Outcome
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.envs.simulation.streams import episode_sequence
from spotweave.training.progress import clock

RUNS = 3  # runs whose mean the thesis prints
METRICS = ("revocations", "time_s", "cost_usd")
HALF_PRINTED = {"revocations": 0.005, "time_s": 0.5, "cost_usd": 0.005}
"""Half of the last digit that is printed."""
STATED = (
    "Stated rate: a VM that trains for two hours is revoked with probability 1 - 1/e at k_r = 7,200 s, and "
    "with 40 % at 14,400 s. The thesis counted far fewer revocations, at 14,400 s none in 18 runs, so times "
    "and costs at the stated rate are those of other runs than the printed ones."
)
"""Why most printed numbers are outside where revocations come at the stated rate."""
COLUMNS = (
    *("table", "scenario", "label", "server", "clients"),
    *("revocation_mean_s", "reading", "why", "figures"),
)
Row = dict[str, Any]
"""A row of a table under one reading, as JSON holds it: COLUMNS, and among them the figures by metric."""


def multi_fedls_tables(seeds: int, tables: Sequence[str]) -> list[Row]:
    """Simulate the printed tables of these numbers, e.g. "7.14"; `seeds` sets of three runs per row.

    Raises:
        ValueError: for fewer than 2 seeds, or a table that does not exist.
    """
    if seeds < 2:
        raise ValueError(f"seeds is {seeds}: expected at least 2 sets of three runs")
    scenarios = [(name, read_scenario(name)) for name in bundled_scenarios("multi_fedls")]
    found = {
        table.number: (name, scenario, table) for name, scenario in scenarios for table in scenario.published
    }
    rows = []
    for number in sorted(tables):
        if number not in found:
            raise ValueError(f"there is no table {number!r}: expected some of {', '.join(sorted(found))}")
        name, scenario, table = found[number]
        rows.append(_on_demand(name, scenario, table))
        for published in table.rows:
            rows += _simulate(name, scenario, table, published, seeds)
    return rows


def read_scenario(name: str) -> MultiFedlsScenario:
    """A bundled scenario. Raises ScenarioError for another name."""
    path = scenario_path(name)
    return parse_multi_fedls(read_json(path), str(path))


def _on_demand(name: str, scenario: MultiFedlsScenario, table: PublishedTable) -> Row:
    """All tasks on demand without checkpoints and without noise: one exact run."""
    application = dataclasses.replace(scenario.unchecked, run_cv=0.0, spin_up_cv=0.0, epoch_cv=0.0)
    outcome = play(application, _policy(scenario, Market.ON_DEMAND, Market.ON_DEMAND, True), 0)
    printed = {"revocations": 0.0, "time_s": table.on_demand_time_s, "cost_usd": table.on_demand_usd}
    numbers = _numbers(outcome)
    # The scenario was calibrated to it: whether the printed mean is inside says nothing.
    figures = {key: _figure(key, [numbers[key]], printed[key]) | {"inside": None} for key in METRICS}
    return _row(table.number, name, "", "on_demand", "on_demand", None, "on demand", "", figures)


def _row(*cells: object) -> Row:
    return dict(zip(COLUMNS, cells, strict=True))


def _policy(scenario: MultiFedlsScenario, server: Market, clients: Market, exclude: bool) -> MultiFedLS:
    return MultiFedLS(
        scenario.deployment,
        server,
        clients,
        alpha=scenario.alpha,
        exclude_revoked=exclude,
        placement=scenario.placement,
    )


def _simulate(
    name: str, scenario: MultiFedlsScenario, table: PublishedTable, row: PublishedRow, seeds: int
) -> list[Row]:
    policy = _policy(scenario, row.server, row.clients, table.exclude_revoked)
    conditions = scenario.deployment.conditions
    conditions = dataclasses.replace(conditions, run_cv=math.sqrt(2) * conditions.run_cv)
    calm, revoked = (
        scenario.deployment.with_conditions(
            dataclasses.replace(conditions, revocation_mean_s=mean_s)
        ).application
        for mean_s in (None, row.revocation_mean_s)
    )
    readings: dict[str, list[list[Outcome]]] = {"stated": []}
    if row.runs is not None:
        readings["counted"] = []
    for seed in range(seeds):
        roots = [episode_sequence(seed, "test", run) for run in range(RUNS)]
        readings["stated"].append([play(revoked, policy, root) for root in roots])
        if row.runs is not None:
            outcomes = []
            for root, counts in zip(roots, row.runs, strict=True):
                outcome = play(calm, policy, root)
                if counts != (0, 0):
                    given = _revocations(calm, outcome, counts, root)
                    outcome = play(dataclasses.replace(calm, interruptions=given), policy, root)
                outcomes.append(outcome)
            readings["counted"].append(outcomes)
    return [
        _row(
            table.number,
            name,
            row.label,
            row.server.name.lower(),
            row.clients.name.lower(),
            row.revocation_mean_s,
            reading,
            row.why,
            {metric: _figure(metric, _means(metric, sets), getattr(row, metric)) for metric in METRICS},
        )
        for reading, sets in readings.items()
    ]


def _revocations(
    application: Application, calm: Outcome, counts: tuple[int, int], root: np.random.SeedSequence
) -> tuple[Interruption, ...]:
    """This many revocations of the server and of different clients, evenly over a calm run's training."""
    begin_s, end_s = calm.rounds[0][0], calm.rounds[-1][1]
    generator = np.random.default_rng(np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, 7)))
    clients = generator.choice(len(application.clients), counts[1], replace=False)
    tasks = [*[SERVER] * counts[0], *clients.tolist()]
    return tuple(Interruption(task, int(generator.integers(begin_s + 1, end_s))) for task in tasks)


def _numbers(outcome: Outcome) -> dict[str, float]:
    return {
        "revocations": float(len(outcome.interruptions)),
        "time_s": float(outcome.time_s),
        "cost_usd": outcome.cost_usd,
    }


def _means(metric: str, sets: Sequence[Sequence[Outcome]]) -> list[float]:
    return [float(np.mean([_numbers(outcome)[metric] for outcome in runs])) for runs in sets]


def _figure(metric: str, means: Sequence[float], published: float | None) -> dict[str, Any]:
    """The mean of all our runs, the middle 95 % of our means of three, and what is printed, if anything.

    `inside`: whether the printed mean is in that range, but for its rounding.
    """
    low, high = (float(end) for end in np.quantile(means, [0.025, 0.975]))
    half = HALF_PRINTED[metric]
    inside = None if published is None else low - half <= published <= high + half
    figure = {"mean": float(np.mean(means)), "low": low, "high": high}
    return {**figure, "published": published, "inside": inside}


def render_multi_fedls(document: Mapping[str, Any]) -> str:
    """The rows of all tables as Markdown: one table per table of the thesis.

    Each cell is our mean [the middle 95 % of our means of three]; what is printed, in bold where outside.
    """
    lines: list[str] = []
    tables = sorted({row["table"] for row in document["rows"]})
    for number in tables:
        rows = [row for row in document["rows"] if row["table"] == number]
        lines += [
            f"### Table {number} ({rows[0]['scenario']})",
            "",
            "| server, clients | k_r (s) | reading | revocations | time | cost (USD) |",
            "|---|---|---|---|---|---|",
        ]
        for row in rows:
            who = f"{row['server']}, {row['clients']}".replace("_", " ")
            if row["label"]:
                who += f"; {row['label']}"
            rate = "-" if row["revocation_mean_s"] is None else f"{row['revocation_mean_s']:g}"
            cells = [_cell(metric, row["figures"][metric]) for metric in METRICS]
            lines.append(f"| {who} | {rate} | {row['reading']} | {' | '.join(cells)} |")
        counted = [row for row in rows if row["reading"] == "counted" and _outside(row)]
        reasons = dict.fromkeys(row["why"] for row in counted if row["why"])
        lines += ["", *(f"- {why.rstrip('.')}." for why in reasons), *([""] if reasons else [])]
    if any(row["reading"] == "stated" and _outside(row) for row in document["rows"]):
        lines.append(STATED)
    return "\n".join(lines).rstrip() + "\n"


def _outside(row: Mapping[str, Any]) -> bool:
    return any(figure["inside"] is False for figure in row["figures"].values())


def _cell(metric: str, figure: Mapping[str, Any]) -> str:
    show = _SHOWN[metric]
    text = show(figure["mean"])
    if figure["low"] != figure["high"]:
        text += f" [{show(figure['low'])}, {show(figure['high'])}]"
    if figure["published"] is None:
        return f"{text}; -"
    printed = show(figure["published"])
    return f"{text}; **{printed}**" if figure["inside"] is False else f"{text}; {printed}"


_SHOWN: dict[str, Callable[[float], str]] = {
    "revocations": "{:.2f}".format,
    "time_s": clock,
    "cost_usd": "{:.2f}".format,
}
