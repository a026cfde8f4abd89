"""Plays what an experiment needs and keeps it; what was played before is not played again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from spotweave.agents.named import named_rule
from spotweave.agents.policy import Policy
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.market.source import draw_episode
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.world import BatchWorld, Timeline, WorldSpec
from spotweave.training.config import UsageError, world_config
from spotweave.training.engine import Engine
from spotweave.training.evaluation.episodes import Suite, SuitePlayer, suite_hash
from spotweave.training.evaluation.report import record_timelines
from spotweave.training.progress import PlayProgress
from spotweave.training.studies.bounds import Base, Bounds, measure_bounds
from spotweave.training.studies.evaluations import EvaluationCache, Played
from spotweave.training.studies.experiment import ExperimentSettings, scenario_env
from spotweave.training.studies.scenario import Measured, ScenarioResult
from spotweave.training.studies.trained import Trained

# On which recorded day each episode of a suite starts.

DAY_S = 86_400


def start_days(world: BatchWorld, suite: Suite) -> tuple[int, ...] | None:
    """The day of each episode on the recording's clock; None for a world that nothing was recorded for.

    Episodes of one day meet the same hours of prices and availability, so intervals resample days too.
    """
    if not isinstance(world, MarketWorld):
        return None
    return tuple(
        int(draw_episode(world.config, world.data, key).origin_s) // DAY_S for key in suite.episode_keys()
    )


FIRST_EPISODES = 5
"""Episodes replayed of a rule taken from a published table, to check that the world has not changed."""


@dataclass(frozen=True)
class Player:
    """Measures the policies of an experiment."""

    settings: ExperimentSettings
    suite: Suite
    cache: EvaluationCache
    lanes: int = 16  # no result depends on it
    device: str = "cpu"
    progress: PlayProgress = field(default=lambda *_: None)
    engine: Engine | None = None  # None: in this process; bounds always are

    def measure(self, scenario: str, agents: Mapping[str, Sequence[Trained]]) -> ScenarioResult:
        """Every policy of a scenario on the suite; for a table also the bounds that it asks for.

        With `stored` they are taken from what is published. Rules that it names play the first episodes.

        Raises:
            UsageError: for a metric that the world does not have, or a bound that it does not.
        """
        empty = self.unplayed(scenario)
        env, spec = empty.env, empty.spec
        player = self._player(env, self.suite)
        policies: dict[str, Measured] = {}
        for name, seeds in agents.items():
            played = tuple(
                self._keep(
                    player,
                    env,
                    self.suite,
                    trained.identity,
                    partial(trained.load, spec, self.device),
                    f"{scenario}: {name} {k + 1}/{len(seeds)}",
                )
                for k, trained in enumerate(seeds)
            )
            policies[name] = Measured(name, played, tuple(trained.facts() for trained in seeds))
        first = dataclasses.replace(self.suite, episodes=min(FIRST_EPISODES, self.suite.episodes))
        for name in self.settings.rules:
            suite = first if name in self.settings.taken else self.suite
            policies[name] = Measured(name, (self.rule(player, env, suite, name, scenario),))
        result = dataclasses.replace(empty, policies=policies)
        return dataclasses.replace(result, bounds=self._bounds(scenario, result, agents))

    def unplayed(self, scenario: str) -> ScenarioResult:
        """A scenario without policies: what their published episodes are put into."""
        env = scenario_env(self.settings.scenarios[scenario])
        world = self._player(env, self.suite).world()
        self._check_metrics(world.spec)
        return ScenarioResult(
            world.spec, env, suite_hash(world, self.suite), {}, groups=start_days(world, self.suite)
        )

    def rules_on(self, scenario: str, suite: Suite) -> dict[str, Played]:
        """The experiment's rules on another suite (training curves stand next to rules on validation)."""
        env = scenario_env(self.settings.scenarios[scenario])
        player = self._player(env, suite)
        return {name: self.rule(player, env, suite, name, scenario) for name in self.settings.rules}

    def rule(
        self, player: SuitePlayer, env: Mapping[str, Any], suite: Suite, name: str, scenario: str
    ) -> Played:
        """Episodes of a rule, played now or before."""
        make = partial(named_rule, name, player.world().spec)
        return self._keep(player, env, suite, f"rule {name}", make, f"{scenario}: {name}")

    def record(self, env: Mapping[str, Any], policies: Mapping[str, Trained | str]) -> dict[str, Timeline]:
        """The timeline of the suite's first episode under some policies."""
        world = ENVIRONMENTS[env["name"]].build_recording(world_config(env))
        made: list[Policy] = []
        for name, source in policies.items():
            policy = named_rule(source) if isinstance(source, str) else source.load(world.spec, self.device)
            policy.name = name
            made.append(policy)
        return record_timelines(world, made, self.suite.episode_keys()[0])

    def _player(self, env: Mapping[str, Any], suite: Suite) -> SuitePlayer:
        build = partial(ENVIRONMENTS[env["name"]].build, world_config(env))
        return SuitePlayer([build], min(self.lanes, suite.episodes))

    def _keep(
        self,
        player: SuitePlayer,
        env: Mapping[str, Any],
        suite: Suite,
        identity: str,
        make: Callable[[], Policy],
        label: str,
    ) -> Played:
        def told(_: str, done: int, total: int) -> None:
            self.progress(label, done, total)

        return self.cache.play(
            player.world(),
            env,
            suite,
            identity,
            lambda: player.play(self.engine, [(0, make())], suite, told)[0],
        )

    def _bounds(
        self, scenario: str, result: ScenarioResult, agents: Mapping[str, Sequence[Trained]]
    ) -> Bounds | None:
        asked = self.settings.clairvoyant
        if asked is None or scenario in asked.skipped or not self.settings.table:  # figures do not show them
            return None
        if self.settings.stored != "none":
            return None
        told = partial(self.progress, f"{scenario}: clairvoyant plan")
        return measure_bounds(
            self.cache, result.env, self.suite, asked, self._base(asked.base, result, agents), told
        )

    def _base(self, name: str, result: ScenarioResult, agents: Mapping[str, Sequence[Trained]]) -> Base:
        if name not in agents:
            return Base(f"rule {name}", {"policy": name}, lambda world: named_rule(name, world.spec))
        best = best_seed(result, name)
        trained, facts = agents[name][best], result.policies[name].checkpoints[best]
        return Base(
            trained.identity, {"policy": name, **facts}, lambda world: trained.load(world.spec, self.device)
        )

    def _check_metrics(self, spec: WorldSpec) -> None:
        figures = self.settings.figures.values()
        named = [*self.settings.metrics, *self.settings.paired, *self.settings.ratios]
        named += [metric for figure in figures for metric in figure.metrics]
        for metric in named:
            if metric not in spec.metrics:
                raise UsageError(
                    f"experiment {self.settings.name} shows {metric!r}: "
                    f"metrics of {spec.name} are {', '.join(spec.metrics)}"
                )
        if self.settings.clairvoyant is not None and spec.metrics[0] not in self.settings.metrics:
            raise UsageError(
                f"experiment {self.settings.name} asks for clairvoyant bounds: its metrics must show "
                f"{spec.metrics[0]!r}, which they bound"
            )


def best_seed(result: ScenarioResult, name: str) -> int:
    """The seed that stands for an agent: the best by the objective on validation, never by what is shown."""
    objective, checkpoints = result.spec.metrics[0], result.policies[name].checkpoints
    sign = 1.0 if result.higher_is_better(objective) else -1.0
    scores = [sign * float(facts["validation"][objective]) for facts in checkpoints]  # type: ignore[index]
    return scores.index(max(scores))
