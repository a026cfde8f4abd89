"""Draws whatever figure an experiment asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from envs.simulation.timeline import Timeline
from training.config import UsageError
from training.evaluation.suite import find_suite
from training.studies.experiment import FigureSettings
from training.studies.figures.dominance import draw_dominance
from training.studies.figures.patterns import draw_category_counts, draw_job_scatter
from training.studies.figures.relative import draw_relative
from training.studies.figures.sorted_episodes import draw_sorted_episodes
from training.studies.figures.training_curves import draw_training_curves, read_curve
from training.studies.measuring import Player, best_seed
from training.studies.scenario import ScenarioResult
from training.studies.trained import Trained

Agents = Mapping[str, Mapping[str, Sequence[Trained]]]
"""By scenario, then agent: its trained policies."""


def draw_figure(
    player: Player, figure: FigureSettings, results: Mapping[str, ScenarioResult], agents: Agents
) -> Figure:
    """One figure from measured results; timelines and rules on validation are played as they are needed.

    Raises:
        UsageError: if the experiment lacks what the figure shows.
    """
    settings = player.settings
    for scenario in figure.scenarios or list(results):
        for name in [*(figure.policies or []), *([figure.sort_policy] if figure.sort_policy else [])]:
            if name not in results[scenario].policies:
                raise UsageError(
                    f"a figure of {settings.name} shows {name!r}, which scenario {scenario} does not "
                    f"measure: expected one of {', '.join(results[scenario].policies)}"
                )
    if figure.kind == "sorted_episodes":
        return draw_sorted_episodes(settings, figure, results)
    if figure.kind == "dominance":
        return draw_dominance(settings, figure, results)
    if figure.kind == "relative":
        return draw_relative(settings, figure, results)
    if figure.kind == "training_curves":
        return _curves(player, figure, results, agents)
    timelines = _timelines(player, figure, results, agents)
    if figure.kind == "job_scatter":
        return draw_job_scatter(settings, timelines)
    return draw_category_counts(settings, timelines)


def _curves(
    player: Player, figure: FigureSettings, results: Mapping[str, ScenarioResult], agents: Agents
) -> Figure:
    curves = {}
    for scenario in figure.scenarios or list(results):
        drawn = [name for name in agents[scenario] if figure.policies is None or name in figure.policies]
        for name in drawn:
            if any(trained.weights is not None for trained in agents[scenario][name]):
                raise UsageError(f"{name} has other weights than in training: it has no curve of its own")
        curves[scenario] = {
            name: read_curve([trained.path for trained in agents[scenario][name]]) for name in drawn
        }
    rules = {}
    for scenario, by_agent in curves.items():
        sizes = {curve.validation_episodes for curve in by_agent.values()}
        if len(sizes) != 1:
            raise UsageError(
                f"the agents of scenario {scenario} were validated on {sorted(sizes)} episodes: "
                "expected one number, so that rules can stand next to them"
            )
        rules[scenario] = player.rules_on(scenario, find_suite("validation", sizes.pop()))
    return draw_training_curves(player.settings, figure, results, curves, rules)


def _timelines(
    player: Player, figure: FigureSettings, results: Mapping[str, ScenarioResult], agents: Agents
) -> Mapping[str, Timeline]:
    """The first episode of the suite in the figure's first scenario, each agent by its best seed."""
    scenario = (figure.scenarios or list(results))[0]
    result = results[scenario]
    sources: dict[str, Trained | str] = {}
    for name in figure.policies or list(result.policies):
        trained = agents[scenario].get(name)
        sources[name] = name if trained is None else trained[best_seed(result, name)]
    return player.record(result.env, sources)
