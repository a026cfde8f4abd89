"""Training by an evolution strategy: whole episodes, played by many variants of the policy at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.learning.evolution_strategy import EvolutionStrategy
from agents.vector_policy import VectorPolicy
from envs.simulation.streams import Streams
from envs.simulation.world import BatchWorld
from training.engines.engine import Engine
from training.settings import TrainerSettings
from training.trainers.trainer import RoundReport
from training.trainers.variants import Trial, VariantPlayer

TASKS_PER_WORKER = 2
"""Episodes differ in length: with one task each, the worker with the longest holds up the round."""


class EvolutionTrainer:
    """Each round, every lane plays one episode with its own variant of the weights.

    Lanes 2k and 2k + 1 are the two mirrored variants of a pair and play the same episode. The
    return of an episode is the sum of its rewards, which is the world's objective, less the penalties of
    `settings.evolution`: no credit is assigned to single decisions.

    Args:
        build: returns a world with the given number of lanes.
        policy: what is trained, from its weights on; where all are 0, from random ones that act as its rule.
        settings: the trainer's settings.
        seed: root of all random streams of the run.
        engine: where episodes are played; None: in this process, on `settings.evolution.threads` threads.

    Raises:
        ValueError: if the lanes are not pairs, or a penalty names no metric.
    """

    def __init__(
        self,
        build: Callable[[int], BatchWorld],
        policy: VectorPolicy,
        settings: TrainerSettings,
        seed: int,
        engine: Engine | None = None,
    ) -> None:
        if settings.lanes % 2:
            raise ValueError(f"trainer.lanes is {settings.lanes}: expected a multiple of 2, mirrored pairs")
        known = build(2).spec.metrics
        for metric in settings.evolution.penalties:
            if metric not in known:
                raise ValueError(
                    f"trainer.evolution.penalties names {metric!r}: metrics are {', '.join(known)}"
                )
        streams = Streams(seed)
        self.settings = settings
        self.engine = engine
        # A copy, because workers know a player by its content, and the policy's weights change.
        self.player = VariantPlayer(build, copy.deepcopy(policy), seed)
        self.episodes_done = 0
        layout, start = policy.network.layout, policy.network.vector
        if not start.any():
            start = layout.start(streams.generator("network_weights"))
        self.strategy = EvolutionStrategy(
            start,
            layout.scales(),
            settings.evolution.sigma,
            streams.generator("exploration"),
            settings.evolution.unit,
        )
        policy.network.set_vector(start)
        self.policy = policy

    def round(self) -> RoundReport:
        """Try one variant per lane, then move the weights."""
        rate = self.settings.learning_rate.at(self.episodes_done / self.settings.episodes)
        variants = self.strategy.ask(self.settings.lanes // 2)
        trials = self._trials(variants)
        if self.engine is None:
            with ThreadPoolExecutor(self.settings.evolution.threads) as pool:
                played = list(pool.map(self.player, trials))
        else:
            played = self.engine.map(self.player, trials)
        rows = [row for part in played for row in part.metrics]
        returns = np.concatenate([part.returns for part in played])
        returns -= [self.settings.evolution.penalty(row) for row in rows]
        spread = self.strategy.tell(returns, rate)
        self.policy.network.set_vector(self.strategy.average)
        self.episodes_done += len(variants)
        return RoundReport(
            episodes=len(variants),
            decisions=sum(part.decisions for part in played),
            metrics={name: float(np.mean([row[name] for row in rows])) for name in rows[0]},
            losses={"return_spread": spread},
            epsilon_1=self.settings.evolution.sigma,
            learning_rate=rate,
        )

    def _trials(self, variants: NDArray[np.float32]) -> list[Trial]:
        """The variants in order, cut so that every worker has some; no episode depends on the cuts."""
        pairs = len(variants) // 2
        threads = self.settings.evolution.threads
        wanted = threads if self.engine is None else TASKS_PER_WORKER * self.engine.workers
        trials: list[Trial] = []
        for some in np.array_split(np.arange(pairs), min(pairs, wanted)):
            first, last = int(some[0]), int(some[-1])
            place = len(trials) if self.engine is None else 0
            episode = self.episodes_done // 2 + first
            trials.append(Trial(episode, variants[2 * first : 2 * last + 2], place))
        return trials

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit after the latest round."""
        return {"strategy": self.strategy.state_dict(), "episodes_done": self.episodes_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.strategy.load_state_dict(state["strategy"])
        self.policy.network.set_vector(self.strategy.average)
        self.episodes_done = int(state["episodes_done"])
