"""The trainer of the agent `spot_values`: one round of reading the training days and planning on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from spotweave.agents.registry import SpotSettings
from spotweave.agents.spot.fit import SpotTicks, learn
from spotweave.agents.spot.model import SpotModel
from spotweave.agents.spot.policy import SpotPolicy
from spotweave.envs.simulation.spot.world import SpotWorld
from spotweave.envs.simulation.streams import Streams, episode_sequence
from spotweave.envs.spot_episodes import RecordedJobs
from spotweave.training.evaluation.episodes import find_suite, run_suite
from spotweave.training.trainers.trainer import RoundReport, Task, mean_metrics

READ_S = 60 * 3600
"""A stretch is read for so long: longer than most deadlines, short enough for the stretches of training."""


class SpotTrainer:
    """Reads `trainer.episodes` stretches of the training days in random sets of zones, and plans on them.

    Nothing is explored: what a zone does depends on nobody's choice, so the recording says it all. A set has
    as many zones as the world; where that has several, every number from one on, two and three most often.
    """

    def __init__(self, task: Task, agent: SpotSettings) -> None:
        self.task = task
        self.agent = agent
        self.episodes_done = 0
        world = task.entry.build(task.config, task.settings.lanes)
        assert isinstance(world, SpotWorld)
        self.world = world
        self._policy: SpotPolicy | None = None

    acts_untrained = False  # there is no table before the first round

    @property
    def policy(self) -> SpotPolicy:
        """The learned policy."""
        if self._policy is None:
            raise ValueError("nothing was learned yet: play a round first")
        return self._policy

    def round(self) -> RoundReport:
        """Read, fit and plan; then play the training suite's first episodes."""
        source = self.world.source
        assert isinstance(source, RecordedJobs)
        rules, config = source.rules, source.config
        total = self.task.settings.episodes
        rng = Streams(self.task.seed).generator("window")
        stretches = [self._stretch(source, rng, index) for index in range(total)]
        work_s = round(config.work_h * 3600)
        most_s = max(rules.deadlines_s) if config.deadline_h is None else round(config.deadline_h * 3600)
        restarts_s = rules.restarts_s if config.restart_s is None else (config.restart_s,)
        slack_s = max(rules.tick_s, most_s - work_s)
        model = learn(stretches, self.agent, rules.tick_s, work_s, slack_s, restarts_s)
        self._policy = SpotPolicy(model, self.agent.name)
        self.episodes_done = total
        results = run_suite(self.world, self._policy, find_suite("train", self.task.settings.lanes))
        metrics = mean_metrics([one.metrics for one in results])
        decisions = sum(one.decisions for one in results)
        return RoundReport(total, decisions, metrics, {}, epsilon_1=0.0, learning_rate=0.0)

    def _stretch(self, source: RecordedJobs, rng: np.random.Generator, index: int) -> SpotTicks:
        zones = source.recorded
        most = 1 if source.rules.one_zone else len(zones)
        n = int(rng.integers(1, most + 1))
        if most > 3 and rng.random() < 0.5:
            n = int(rng.integers(2, 4))
        chosen = tuple(zones[k] for k in rng.permutation(len(zones))[:n])
        starts = source.starts_s("train", READ_S)
        lengths = np.array([last - first + 1 for first, last in starts])
        first, last = starts[int(rng.choice(len(starts), p=lengths / lengths.sum()))]
        streams = Streams(episode_sequence(self.task.seed, "train", index))
        job = source.job_at(int(rng.integers(first, last + 1)), chosen, READ_S, 0, streams)
        return SpotTicks(job.has_spot.astype(np.float64), job.spot_usd_hour / job.on_demand_usd_hour)

    def state_dict(self) -> dict[str, Any]:
        """What was learned so far, if anything."""
        learned = None if self._policy is None else self._policy.network.state_dict()
        return {"episodes_done": self.episodes_done, "network": learned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.episodes_done = int(state["episodes_done"])
        if state["network"] is not None:
            self._policy = SpotPolicy(SpotModel.of_state(state["network"]), self.agent.name)
