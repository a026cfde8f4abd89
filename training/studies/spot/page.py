"""docs/results/spot.md: what policies pay on the recorded spot zones, as a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from spotweave.agents.named import named_rule
from spotweave.agents.policy import Policy
from spotweave.agents.spot.ranked import VARIANTS, RankedUniformProgress
from spotweave.agents.spot.skynomad import SkyNomadPolicy
from spotweave.agents.stored import policy_file
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.spot.clairvoyant import clairvoyant_usd
from spotweave.envs.simulation.spot.lanes import JobSource, SpotJob
from spotweave.envs.simulation.spot.world import SpotWorld
from spotweave.envs.simulation.streams import Split
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.envs.spot_episodes import (
    ON_DEMAND_USD_HOUR,
    SPOT_ANCHOR_USD_HOUR,
    RecordedJobs,
    RulesName,
    SpotConfig,
    build_spot,
)
from spotweave.envs.traces.bundle import load_bundle
from spotweave.training.canvas import save, single
from spotweave.training.checkpoint import load_policy
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.evaluation.statistics import bootstrap_interval
from spotweave.training.files import prepare_directory, write_text

CLAIRVOYANT = "clairvoyant"
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
    names = ("spot_fallback", "uniform_progress", "SkyNomad", "spot_values")
    figure, axes = single(8, 10)
    places = np.arange(len(cells))
    for k, name in enumerate(names):
        # SkyNomad chooses among regions: with one zone it is not played.
        percent = [cell.above_percent(name) if name in cell.cost_usd else np.nan for cell in cells]
        axes.barh(places + (k - 1.5) * 0.2, percent, 0.2, label=NAMES[name].strip("*"))
    axes.set_yticks(places, [f"{cell.title}, {cell.deadline_h} h" for cell in cells])
    axes.invert_yaxis()
    axes.set_xlabel("cost above the clairvoyant, % (shorter is better)")
    axes.legend()
    save(figure, path, dpi=110)


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
        else f"python -m spotweave.training.studies.spot measure --split {split}",
        multi=_table([joined(sets, "mean of the six"), *sets], "zones"),
        single=_table([*means, *zones], "zone"),
    )
    write_text(out / "spot.md", text)
    print(f"written: {out / 'spot.md'}")


RULES = ("on_demand", "spot_fallback", "uniform_progress")
EVERY_S = {"adrs_single": 12 * 3600, "adrs_multi": 6 * 3600}  # seconds between two starts
LANES = 16

ZONE_SETS: dict[str, tuple[str, ...]] = {
    "2 zones of a region": ("us-east-1a", "us-east-1c"),
    "2 regions": ("us-east-2a", "us-west-2a"),
    "3 regions": ("us-east-1a", "us-east-2b", "us-west-2c"),
    "3 zones of a region": ("us-east-1a", "us-east-1c", "us-east-1d"),
    "5 zones": ("us-east-1a", "us-east-1f", "us-west-2a", "us-west-2b", "us-east-2b"),
    "9 zones": (
        "us-east-2a",
        "us-west-2c",
        "us-east-1d",
        "us-east-2b",
        "us-west-2a",
        "us-east-1f",
        "us-east-1a",
        "us-west-2b",
        "us-east-1c",
    ),
}
"""The sets of zones that the leaderboard's problem of several zones is made of, in its order."""


@dataclass(frozen=True)
class _Listed:
    """A source of the jobs of a list. A `JobSource`."""

    jobs: Sequence[SpotJob]
    zones: tuple[str, ...]

    @property
    def most_ticks(self) -> int:
        return max(job.n_ticks for job in self.jobs)

    def job(self, key: EpisodeKey) -> SpotJob:
        return self.jobs[key.index]


@dataclass(frozen=True)
class Cell:
    """One set of zones and one deadline: costs of every policy."""

    title: str  # for people
    deadline_h: int  # hours
    # by policy, (starts,) means over the restart overheads; the clairvoyant's among them
    cost_usd: dict[str, Floats]
    late: dict[str, int]  # by policy, late runs
    runs: int  # of each policy

    def above_percent(self, policy: str) -> float:
        """Excess of its mean cost over the clairvoyant's, per cent."""
        return 100 * (float(self.cost_usd[policy].mean() / self.cost_usd[CLAIRVOYANT].mean()) - 1)


def score(cost_usd: float, work_h: float) -> float:
    """The leaderboard's score: (on demand - cost) / (on demand - spot), per cent."""
    on_demand_usd, spot_usd = ON_DEMAND_USD_HOUR * work_h, SPOT_ANCHOR_USD_HOUR * work_h
    return 100 * (on_demand_usd - cost_usd) / (on_demand_usd - spot_usd)


def measure(
    source: RecordedJobs,
    rules: RulesName,
    title: str,
    zones: tuple[str, ...],
    deadline_s: int,
    ours: Policy,
    split: Split,
) -> Cell:
    """Every policy from every start of the split's days, with every restart overhead.

    Uniform Progress also plays in the first zone alone, which is what its authors wrote it for.
    """
    parts = source.starts_s(split, deadline_s)
    starts = [start for first, last in parts for start in range(first, last + 1, EVERY_S[rules])]
    restarts = source.rules.restarts_s
    costs: dict[str, Floats] = {}
    late: dict[str, int] = {}
    jobs = [source.job_at(start, zones, deadline_s, restart_s) for start in starts for restart_s in restarts]

    def keep(name: str, found: Sequence[float], lates: int) -> None:
        costs[name] = np.array(found).reshape(len(starts), len(restarts)).mean(axis=1)
        late[name] = lates

    players: list[tuple[str, Policy, list[SpotJob], tuple[str, ...]]] = [
        (name, named_rule(name), jobs, zones) for name in RULES
    ]
    if len(zones) > 1:
        alone = [source.job_at(job.start_s, zones[:1], deadline_s, job.restart_s) for job in jobs]
        players.append(("uniform_progress, first zone", named_rule("uniform_progress"), alone, zones[:1]))
        published = [*map(RankedUniformProgress, VARIANTS), SkyNomadPolicy(source.rules.tick_s)]
        players += [(policy.name, policy, jobs, zones) for policy in published]
    players.append(("spot_values", ours, jobs, zones))
    for name, policy, played, where in players:
        world = SpotWorld(cast(JobSource, _Listed(played, where)), LANES, SPOT_ANCHOR_USD_HOUR)
        results = run_suite(world, policy, Suite("test", "test", 0, len(played)))
        found = [one.metrics["cost_usd"] for one in results]
        keep(name, found, sum(int(one.metrics["late"]) for one in results))
    bounds = [
        clairvoyant_usd(
            job.has_spot, job.spot_usd_hour, job.on_demand_usd_hour, job.work_s, job.tick_s, job.restart_s
        )
        for job in jobs
    ]
    keep(CLAIRVOYANT, bounds, 0)
    return Cell(title, deadline_s // 3600, costs, late, len(jobs))


def joined(cells: Sequence[Cell], title: str) -> Cell:
    """The mean over cells with the same starts, start by start."""
    names = cells[0].cost_usd
    fewest = min(len(cell.cost_usd[CLAIRVOYANT]) for cell in cells)
    return Cell(
        title,
        cells[0].deadline_h,
        {name: np.mean([cell.cost_usd[name][:fewest] for cell in cells], axis=0) for name in names},
        {name: sum(cell.late[name] for cell in cells) for name in names},
        sum(cell.runs for cell in cells),
    )
