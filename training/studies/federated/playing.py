"""Plays policies of both kinds through the same episodes, and says the same numbers of each.

A scheduler of the literature (`RoundPolicy`) is played by `rounds.world.play` with an episode's seed
sequence; a rule or a network that reads observations (`Policy`) by `run_suite` in a `FederatedWorld`. Both
meet the same epoch times, spin-up times, interruptions, prices and availability, so their episodes are
paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents.policy import Policy
from envs.simulation.federations.episodes.reference import reference_of
from envs.simulation.federations.episodes.source import ApplicationSource
from envs.simulation.federations.episodes.world import FederatedWorld
from envs.simulation.federations.rounds.application import Application
from envs.simulation.federations.rounds.decisions import RoundPolicy
from envs.simulation.federations.rounds.history import Outcome
from envs.simulation.federations.rounds.world import play
from envs.simulation.streams import episode_sequence
from envs.simulation.world import EpisodeKey
from training.evaluation.episodes import Progress, run_suite
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
_TIME_WEIGHT = 1.0
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


def play_scheduler(
    source: ApplicationSource,
    make: Callable[[Application], RoundPolicy],
    suite: Suite,
    progress: Progress | None = None,
) -> Episodes:
    """A scheduler's episodes; `make` gives it for each episode's application."""
    outcomes = []
    for done, key in enumerate(suite.episode_keys(), start=1):
        application = source.application(key)
        root = episode_sequence(key.seed, key.split, key.index)
        outcomes.append(play(application, make(application), root))
        if progress is not None:
            progress(done, suite.episodes)
    return columns(outcomes)


def play_policy(
    source: ApplicationSource,
    policy: Policy,
    suite: Suite,
    *,
    measured: bool = False,
    lanes: int = 16,
    progress: Progress | None = None,
) -> Episodes:
    """The episodes of a policy that reads observations.

    Args:
        source: gives every episode its application.
        policy: a rule or a network.
        suite: the episodes.
        measured: whether mean times are known beforehand (pre-scheduling).
        lanes: episodes played at the same time; no result depends on it.
        progress: called after each episode.

    Raises:
        ValueError: for an invalid action, or an episode that was cut short.
    """
    return columns(policy_outcomes(source, policy, suite, measured=measured, lanes=lanes, progress=progress))


def policy_outcomes(
    source: ApplicationSource,
    policy: Policy,
    suite: Suite,
    *,
    measured: bool = False,
    lanes: int = 16,
    progress: Progress | None = None,
) -> list[Outcome]:
    """What happened in each episode of `play_policy`. Raises as it does."""
    world = RememberingWorld(source, min(lanes, suite.episodes), _TIME_WEIGHT, measured)
    run_suite(world, policy, suite, progress)
    return [world.outcomes[key] for key in suite.episode_keys()]


class RememberingWorld(FederatedWorld):
    """Keeps the outcome of every episode that was played to its end."""

    def __init__(
        self,
        source: ApplicationSource,
        n_lanes: int,
        time_weight: float = _TIME_WEIGHT,
        measured: bool = False,
    ) -> None:
        super().__init__(source, n_lanes, time_weight, measured)
        self.outcomes: dict[EpisodeKey, Outcome] = {}
        self._playing: dict[int, EpisodeKey] = {}

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """As `FederatedWorld.reset`."""
        super().reset(keys, lanes)
        numbers = range(self.n_lanes) if lanes is None else lanes
        self._playing.update(zip(numbers, keys, strict=True))

    def metrics(self, lane: int) -> dict[str, float]:
        """As `FederatedWorld.metrics`; the outcome is kept.

        Raises:
            ValueError: for an episode that was cut short: it has no outcome.
        """
        if self.truncated(lane):
            raise ValueError(f"{self._playing[lane]} was cut short: its policy decides for ever")
        self.outcomes[self._playing[lane]] = self.outcome(lane, "")
        return dict(super().metrics(lane))


def columns(outcomes: Sequence[Outcome]) -> Episodes:
    """The metrics of several outcomes, one list each."""
    rows = [outcome_metrics(outcome) for outcome in outcomes]
    return {metric: [row[metric] for row in rows] for metric in METRICS}
