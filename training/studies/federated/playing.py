"""Plays policies of both kinds through the same episodes, and says the same numbers of each.

A scheduler of the literature sees the whole application, a rule or a network one observation at a time
(`Observing`). Both meet the same epoch times, spin-up times, interruptions, prices and availability, so their
episodes are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from spotweave.agents.federated.observing import Observing
from spotweave.agents.named import named_rule
from spotweave.agents.policy import Policy
from spotweave.agents.stored import policy_file, released_names
from spotweave.envs.simulation.federations.rounds.application import Application
from spotweave.envs.simulation.federations.rounds.decisions import Outcome, RoundScheduler
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.envs.simulation.federations.world import (
    ApplicationSource,
    FederatedWorld,
    reference_of,
)
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.streams import episode_sequence
from spotweave.training.checkpoint import load_policy
from spotweave.training.evaluation.episodes import Progress, Suite, find_suite
from spotweave.training.evaluation.statistics import estimate, hierarchical_ratio_interval
from spotweave.training.files import file_hash
from spotweave.training.progress import PlayProgress
from spotweave.training.studies.evaluations import Keeper

METRICS = (
    "cost_usd",
    "time_min",
    "cost_percent",
    "delay_percent",
    "interruptions",
    "left",
    "rounds_lost",
    "work_lost",
    "budgets_exceeded",
)
"""As files have them; `cost_percent` and `delay_percent` are against `Reference`, as the environment's."""

Episodes = dict[str, list[float]]  # values by metric, one for each episode in the suite's order

BUDGET_TOLERANCE_USD = 1e-9
_MINUTE_S = 60


def outcome_metrics(outcome: Outcome) -> dict[str, float]:
    """Every metric of `METRICS` of one application.

    `left` counts clients that left, `work_lost` those that left with an unfinished epoch, `rounds_lost`
    rounds that were never completed, and `budgets_exceeded` clients whose instances cost more than their
    budget.
    """
    application = outcome.application
    reference = reference_of(application)
    exceeded = sum(
        client.budget_usd is not None
        and outcome.client_cost_usd(k) > client.budget_usd + BUDGET_TOLERANCE_USD
        for k, client in enumerate(application.clients)
    )
    return {
        "cost_usd": outcome.cost_usd,
        "time_min": outcome.time_s / _MINUTE_S,
        "cost_percent": 100 * outcome.cost_usd / reference.cost_usd,
        "delay_percent": 100 * (outcome.time_s / reference.time_s - 1),
        "interruptions": float(len(outcome.interruptions)),
        "left": float(len(outcome.exclusions)),
        "rounds_lost": float(application.rounds - len(outcome.rounds)),
        "work_lost": float(sum(item.work_lost for item in outcome.exclusions)),
        "budgets_exceeded": float(exceeded),
    }


def play_all(
    source: ApplicationSource,
    make: Callable[[Application], RoundScheduler],
    suite: Suite,
    progress: Progress | None = None,
) -> list[Outcome]:
    """What happens in each episode of a suite; `make` gives the scheduler of each episode's application.

    Raises:
        ValueError: for an answer that cannot be followed, or a policy that decides for ever.
    """
    outcomes = []
    for done, key in enumerate(suite.episode_keys(), start=1):
        application = source.application(key)
        root = episode_sequence(key.seed, key.split, key.index)
        outcomes.append(play(application, make(application), root))
        if progress is not None:
            progress(done, suite.episodes)
    return outcomes


def columns(outcomes: Sequence[Outcome]) -> Episodes:
    """The metrics of several outcomes, one list each."""
    rows = [outcome_metrics(outcome) for outcome in outcomes]
    return {metric: [row[metric] for row in rows] for metric in METRICS}


# The policies that are compared, from the rule of a paper to the learned one.

RELEASED = "federated"  # the released policy that is played unless another is named
LEARNED = "learned"
ROUND_COST = "round_cost"
TITLES = {ROUND_COST: "Spotweave's rule (`round_cost`)", LEARNED: "Spotweave, learned"}


@dataclass(frozen=True)
class Learned:
    """The learned policy: its file, and what tells it from any other."""

    path: Path
    sha256: str

    def load(self, source: ApplicationSource) -> Policy:
        """Ready for the offers of a source. Raises CheckpointError."""
        return load_policy(self.path, FederatedWorld(source, 1).spec)


def find_learned(checkpoint: str | None) -> Learned | None:
    """The policy that --checkpoint names; the released one where nothing was said and there is one.

    Raises:
        UsageError: if there is none of that name.
    """
    if checkpoint == "none" or (checkpoint is None and RELEASED not in released_names()):
        return None
    path = policy_file(RELEASED if checkpoint is None else checkpoint)
    return Learned(path, file_hash(path))


@dataclass(frozen=True)
class Contestant:
    """One row of a table."""

    name: str
    title: str
    identity: str
    play: Callable[[Suite, Progress | None], Episodes]
    ours: bool = False


def scheduler(
    name: str, title: str, source: ApplicationSource, make: Callable[[Application], RoundScheduler]
) -> Contestant:
    """A scheduler of the literature."""
    return Contestant(
        name, title, f"scheduler {name}", lambda suite, told: columns(play_all(source, make, suite, told))
    )


def reading(
    name: str, title: str, source: ApplicationSource, policy: Policy, identity: str, measured: bool = False
) -> Contestant:
    """A rule or a network, which reads observations."""
    return Contestant(
        name,
        title,
        identity,
        lambda suite, told: columns(play_all(source, lambda _: Observing(policy, measured), suite, told)),
        ours=name in TITLES,
    )


def rule(name: str, title: str, source: ApplicationSource, measured: bool = False) -> Contestant:
    """A rule that reads observations."""
    return reading(name, title, source, named_rule(name), f"rule {name}", measured)


def ours(source: ApplicationSource, learned: Learned | None, measured: bool = False) -> list[Contestant]:
    """Spotweave's rule, and the learned policy where there is one."""
    found = [rule(ROUND_COST, TITLES[ROUND_COST], source, measured)]
    if learned is not None:
        identity = f"checkpoint {learned.sha256}"
        found.append(reading(LEARNED, TITLES[LEARNED], source, learned.load(source), identity, measured))
    return found


# What pages say of policies played on the same episodes: means, intervals, paired differences.

Kind = Literal["difference", "percent"]
"""Difference of two policies, absolute or in per cent of the second one's mean."""


def with_savings(played: Mapping[str, Episodes]) -> dict[str, Episodes]:
    """The same, and `saving_percent`: the per cent that each episode costs less than on demand."""
    on_demand = played["on_demand"]["cost_usd"]
    full = {}
    for name, episodes in played.items():
        pairs = zip(episodes["cost_usd"], on_demand, strict=True)
        full[name] = {**episodes, "saving_percent": [100 * (1 - cost / base) for cost, base in pairs]}
    return full


def paired(ours: Episodes, theirs: Episodes, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """What lies between two policies on the same episodes, with 95 % intervals.

    Per cents are ratios of means, as a mean of ratios would count cheap and dear episodes alike.

    Raises:
        ValueError: if they have not played the same number of episodes.
    """
    found = {}
    for metric, kind in kinds.items():
        first, second = np.asarray(ours[metric], np.float64), np.asarray(theirs[metric], np.float64)
        if len(first) != len(second):
            raise ValueError(f"paired samples need the same episodes: got {len(first)} and {len(second)}")
        between = estimate if kind == "difference" else partial(_per_cent, second)
        found[metric] = between(first - second)
    return found


def described(
    one: Contestant,
    played: Mapping[str, Episodes],
    metrics: Sequence[str],
    kinds: Mapping[str, Kind],
    others: Iterable[str],
) -> dict[str, Any]:
    """What a page stores of a contestant: the means of its metrics, and its differences from the others."""
    mine = played[one.name]
    return {
        "title": one.title,
        "ours": one.ours,
        "means": {metric: estimate(mine[metric]) for metric in metrics},
        "against": {other: paired(mine, played[other], kinds) for other in others},
    }


def _per_cent(of: Floats, difference: Floats) -> dict[str, Any]:
    interval = hierarchical_ratio_interval(difference[None], of)
    if interval is None:
        raise ValueError("per cents need a reference above 0")
    return {
        "mean": float(100 * difference.mean() / of.mean()),
        "interval": [100 * interval.low, 100 * interval.high],
    }


# What every section of the pages is made with: how many episodes, where they are kept, which policy.


@dataclass(frozen=True)
class Study:
    """What sections are measured with: a keeper, a learned policy, a number of episodes."""

    keeper: Keeper  # keeps what was played
    progress: PlayProgress  # told of what is played
    learned: Learned | None = None  # the learned policy; None where there is none
    episodes: int | None = None  # plays this many of each instead of the published numbers, to try things out

    def count(self, published: int) -> int:
        """Number of episodes to play where `published` are meant."""
        return published if self.episodes is None else self.episodes

    def suite(self, episodes: int) -> Suite:
        """The first test episodes, or those that were asked for."""
        return find_suite("test", self.count(episodes))

    def play(
        self, section: str, case: str, contestants: Sequence[Contestant], suite: Suite
    ) -> dict[str, Episodes]:
        """Every contestant's episodes by name, from what is kept or played now."""
        about = {"section": section, "case": case, "suite": [suite.split, suite.seed, suite.episodes]}
        played = {}
        for one in contestants:
            play = partial(one.play, suite, partial(self.progress, f"{section}, {case}: {one.title}"))
            played[one.name] = self.keeper.keep({**about, "policy": one.identity}, play)
        return played
