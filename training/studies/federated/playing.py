"""Plays policies of both kinds through the same episodes, and says the same numbers of each.

A scheduler of the literature sees the whole application, a rule or a network one observation at a time
(`Observing`). Both meet the same epoch times, spin-up times, interruptions, prices and availability, so their
episodes are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envs.simulation.federations.episodes.reference import reference_of
from envs.simulation.federations.episodes.source import ApplicationSource
from envs.simulation.federations.rounds.application import Application
from envs.simulation.federations.rounds.decisions import RoundScheduler
from envs.simulation.federations.rounds.history import Outcome
from envs.simulation.federations.rounds.world import play
from envs.simulation.streams import episode_sequence
from training.evaluation.episodes import Progress
from training.evaluation.suite import Suite

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

Episodes = dict[str, list[float]]
"""By metric, one value for each episode in the suite's order."""

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
