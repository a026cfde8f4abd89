"""What the best possible policy is compared with: a plan that knows the future, and what none can pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spotweave.agents.policy import Policy
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.slices.world import SliceWorld
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.config import UsageError, world_config
from spotweave.training.evaluation.clairvoyant import NAME, ClairvoyantPlanner, unhindered_score
from spotweave.training.evaluation.episodes import EpisodeResult, Progress, Suite
from spotweave.training.evaluation.tables import arrow, number, signed
from spotweave.training.studies.cells import Summary, difference_cell, metric_name, share_cell, table
from spotweave.training.studies.evaluations import EvaluationCache, Played
from spotweave.training.studies.experiment import ClairvoyantSettings


@dataclass(frozen=True)
class Bounds:
    """What no policy has reached, and what none can."""

    base: Mapping[str, object]  # the policy that the planner followed, and what identifies it
    further: int  # jobs that still arrived in a copy after a decision
    planned: Played  # the planner's episodes: the first of the suite
    # the objective of every episode of the suite if nothing waits and nothing is missed; None in markets,
    # where it would say little
    unhindered: tuple[float, ...] | None

    @property
    def episodes(self) -> int:
        """Number of episodes that the planner played."""
        return len(self.planned.decisions)


@dataclass(frozen=True)
class Base:
    """The policy that the planner follows in copies of the world."""

    identity: str
    facts: Mapping[str, object]
    make: Callable[[BatchWorld], Policy]


def measure_bounds(
    cache: EvaluationCache,
    env: Mapping[str, Any],
    suite: Suite,
    settings: ClairvoyantSettings,
    base: Base,
    progress: Progress | None = None,
) -> Bounds:
    """Plan the first episodes of a suite, or take the plans from the cache, and bound the objective of all.

    Raises:
        UsageError: for a world that is neither one of slices nor a market.
    """
    entry, config = ENVIRONMENTS[env["name"]], world_config(env)
    world = entry.build(config, 1)
    if not isinstance(world, SliceWorld | MarketWorld):
        raise UsageError(f"experiment.clairvoyant: +env={env['name']} has no bound, so leave it out")
    first = dataclasses.replace(suite, episodes=min(settings.episodes, suite.episodes))
    large: list[BatchWorld] = []

    def play(key: EpisodeKey) -> EpisodeResult:
        if not large:  # many lanes: made only if there is something to plan
            large.append(entry.build(config, ClairvoyantPlanner.lanes_needed(world.spec.n_clusters)))
        return ClairvoyantPlanner(large[0], base.make(large[0]), settings.further).play(key)

    identity = f"{NAME}, {settings.further} further arrivals, following {base.identity}"
    planned = cache.keep_each(world, env, first, identity, play, progress)
    unhindered = None
    if isinstance(world, SliceWorld):
        unhindered = tuple(unhindered_score(world, key) for key in suite.episode_keys())
    return Bounds(base.facts, settings.further, planned, unhindered)


# Many scenarios at a glance: a table for each metric, and one for bounds of the objective.


def overview_tables(summary: Summary) -> list[str]:
    """A table for each metric: how policies did in each scenario, then how agents stand to the reference.

    Scenarios are the rows, or the columns where they are not more than policies: pages are higher than wide.
    """
    scenarios, reference = list(summary["scenarios"].values()), summary["reference"]
    names = list(scenarios[0]["policies"])
    titles = scenarios[0]["titles"]
    agents = [name for name in names if scenarios[0]["policies"][name]["trained"]]
    found = []
    for metric in summary["shows"]["metrics"]:
        way = arrow(scenarios[0]["higher_is_better"][metric])
        header = [f"{metric_name(metric)} {way}"]
        header += [f"**{titles[name]}**" if name in agents else titles[name] for name in names]
        paired = metric in summary["shows"]["paired"]
        header += [f"{titles[name]} − {titles[reference]}, 95 %" for name in agents if paired]
        rows = []
        for scenario in scenarios:
            policies = scenario["policies"]
            cells = [
                scenario["title"],
                *(number(policies[name]["metrics"][metric]["mean"]) for name in names),
            ]
            for name in agents if paired else []:
                against = policies[name]["against"][reference]
                base = policies[reference]["metrics"][metric]["mean"]
                share = 100.0 * against["difference"][metric]["mean"] / base
                cells.append(f"{difference_cell(against, metric)} ({share:+.1f} %)")
            rows.append(cells)
        if len(names) >= len(scenarios):
            header, *rows = map(list, zip(header, *rows, strict=True))
        found.append(table(header, rows))
    return [found[0], *bounds_overview(summary), *found[1:], *differences_overview(summary)]


def differences_overview(summary: Summary) -> list[str]:
    """The paired differences that an experiment names, a column each; no table if it names none."""
    differences = summary["shows"].get("differences")  # summaries from before they existed lack them
    if not differences:
        return []
    scenarios = list(summary["scenarios"].values())
    titles = scenarios[0]["titles"]
    header = ["paired differences, 95 %"]
    header += [
        f"{metric_name(metric)}: {titles[one]} − {titles[other]}" for one, other, metric in differences
    ]
    rows = [
        [scenario["title"]]
        + [
            difference_cell(scenario["policies"][policy]["against"][other], metric)
            for policy, other, metric in differences
        ]
        for scenario in scenarios
    ]
    return [table(header, rows)]


def bounds_overview(summary: Summary) -> list[str]:
    """What perfect foresight would gain in each scenario; no table if it was not measured.

    All of it is on the planned episodes, so means differ from those over the whole suite.
    """
    scenarios = [scenario for scenario in summary["scenarios"].values() if scenario["bounds"] is not None]
    if not scenarios:
        return []
    reference, titles = summary["reference"], scenarios[0]["titles"]
    metric = scenarios[0]["bounds"]["objective"]
    policies = scenarios[0]["policies"]
    agents = [name for name, policy in policies.items() if policy["trained"]]
    way = arrow(scenarios[0]["higher_is_better"][metric])
    header = [f"{metric_name(metric)} {way}, the first episodes", "episodes", titles[reference]]
    header += [f"**{titles[name]}**" for name in agents]
    header += ["clairvoyant plan", f"clairvoyant plan − {titles[reference]}, 95 %"]
    header += [f"share of that gap closed by {titles[name]}, 95 %" for name in agents]
    rows = []
    for scenario in scenarios:
        bounds = scenario["bounds"]
        base = bounds["policies"][reference]["mean"]
        rows.append(
            [
                scenario["title"],
                str(bounds["episodes"]),
                *(number(bounds["policies"][name]["mean"]) for name in (reference, *agents)),
                number(bounds["planned"][metric]["mean"]),
                _gap(bounds["room"], base),
                *(_share(bounds, name) for name in agents),
            ]
        )
    return [table(header, rows)]


def _gap(room: Summary, base: float) -> str:
    low, high = room["interval"]
    star = " *" if room["clear"] else ""
    share = 100.0 * room["mean"] / base
    return f"{signed(room['mean'])} [{number(low)}, {number(high)}]{star} ({share:+.1f} %)"


def _share(bounds: Summary, name: str) -> str:
    """A share of a gap that may be none at all says nothing."""
    if not bounds["room"]["clear"]:
        return "no gap told from 0"
    return share_cell(bounds["policies"][name]["closed"], False)
