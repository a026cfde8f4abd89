"""docs/results/spot.md: what policies pay on the recorded spot zones, as a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from agents.stored import policy_file
from envs.simulation.streams import Split
from envs.spot_episodes import RecordedJobs, RulesName, SpotConfig, build_spot
from envs.traces.bundle import load_bundle
from training.checkpoint import load_policy
from training.evaluation.statistics import bootstrap_interval
from training.files import prepare_directory, replacing, write_text
from training.studies.spot.measuring import CLAIRVOYANT, ZONE_SETS, Cell, joined, measure, score

WORK_H = 48.0
NAMES = {
    "on_demand": "on demand",
    "spot_fallback": "greedy spot with fallback",
    "uniform_progress, first zone": "Uniform Progress, first zone",
    "uniform_progress": "Uniform Progress, cheapest zone",
    "UP(S)": "Uniform Progress, UP(S)",
    "UP(A)": "Uniform Progress, UP(A)",
    "UP(AP)": "Uniform Progress, UP(AP)",
    "SkyNomad": "SkyNomad",
    "spot_values": "**spot_values (ours)**",
    CLAIRVOYANT: "clairvoyant",
}


def _cells(rules: RulesName, checkpoint: str, split: Split) -> list[Cell]:
    config = SpotConfig(rules=rules)
    source = RecordedJobs(config, load_bundle())
    ours = load_policy(policy_file(checkpoint), build_spot(config).spec)
    sets = {zone: (zone,) for zone in source.recorded} if rules == "adrs_single" else ZONE_SETS
    cells = []
    for title, zones in sets.items():
        for deadline_s in source.rules.deadlines_s:
            cells.append(measure(source, rules, title, zones, deadline_s, ours, split))
            above = cells[-1].above_percent("spot_values")
            print(f"{title}, {cells[-1].deadline_h} h: spot_values {above:.1f} % above the clairvoyant")
    return cells


def _table(cells: Sequence[Cell], first: str) -> str:
    rows = [
        f"| {first} | deadline | policy | mean cost, USD [95 %] | score | late runs | above clairvoyant |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        for name in (name for name in NAMES if name in cell.cost_usd):
            costs = cell.cost_usd[name]
            interval = bootstrap_interval(costs)  # resampled starts
            rows.append(
                f"| {cell.title} | {cell.deadline_h} h | {NAMES[name]} | "
                f"{costs.mean():.2f} [{interval.low:.2f}, {interval.high:.2f}] | "
                f"{score(float(costs.mean()), WORK_H):.1f} | {cell.late[name]} of {cell.runs} | "
                f"{cell.above_percent(name):.1f} % |"
            )
    return "\n".join(rows)


def _plot(cells: Sequence[Cell], path: Path) -> None:
    """Per cent above the clairvoyant, a group of bars per cell."""
    names = ("spot_fallback", "uniform_progress", "SkyNomad", "spot_values")
    figure = Figure(figsize=(8, 10), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(cells))
    for k, name in enumerate(names):
        # SkyNomad chooses among regions: with one zone it is not played.
        percent = [cell.above_percent(name) if name in cell.cost_usd else np.nan for cell in cells]
        axes.barh(places + (k - 1.5) * 0.2, percent, 0.2, label=NAMES[name].strip("*"))
    axes.set_yticks(places, [f"{cell.title}, {cell.deadline_h} h" for cell in cells])
    axes.invert_yaxis()
    axes.set_xlabel("cost above the clairvoyant, % (shorter is better)")
    axes.legend()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)


DAYS: dict[Split, str] = {
    "train": "training days",
    "validation": "validation days (with several zones those between the leaderboard's)",
    "test": "test days 38 to 45",
}

PAGE = Path(__file__).with_name("page.txt").read_text("utf-8")


def write_page(single: str, multi: str, out: Path, split: Split = "test") -> None:
    """Measure both checkpoints on the days of a split; write out/spot.md and out/spot.png.

    Raises:
        UsageError: for a checkpoint that is none.
    """
    prepare_directory(out)
    sets, zones = _cells("adrs_multi", multi, split), _cells("adrs_single", single, split)
    means = [joined([c for c in zones if c.deadline_h == hours], "mean of the zones") for hours in (52, 70)]
    _plot([*sets, *zones], out / "spot.png")
    text = PAGE.format(
        split=DAYS[split],
        command="make results-spot"
        if split == "test"
        else f"python -m training.studies.spot measure --split {split}",
        multi=_table([joined(sets, "mean of the six"), *sets], "zones"),
        single=_table([*means, *zones], "zone"),
    )
    write_text(out / "spot.md", text)
    print(f"written: {out / 'spot.md'}")
