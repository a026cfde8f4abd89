"""Training by an evolution strategy: whole episodes, played by many variants of the policy at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.learning.evolution_strategy import EvolutionStrategy
from agents.vector_policy import VectorPolicy
from envs.simulation.streams import Streams
from envs.simulation.world import BatchWorld, EpisodeKey
from training.settings import TrainerSettings
from training.trainers.trainer import RoundReport


class EvolutionTrainer:
    """Each round, every lane plays one episode with its own variant of the weights.

    Lanes 2k and 2k + 1 of a world are the two mirrored variants of a pair and play the same episode. The
    return of an episode is the sum of its rewards, which is the world's objective, less the penalties of
    `settings.evolution`: no credit is assigned to single decisions.

    Args:
        worlds: worlds with an even number of lanes each; several, of different systems, train one policy
            for all.
        policy: what is trained.
        settings: the trainer's settings.
        seed: root of all random streams of the run.
    """

    def __init__(
        self, worlds: Sequence[BatchWorld], policy: VectorPolicy, settings: TrainerSettings, seed: int
    ) -> None:
        odd = [world.n_lanes for world in worlds if world.n_lanes % 2]
        if odd:
            raise ValueError(f"mirrored pairs need an even number of lanes in every world, got {odd[0]}")
        known = worlds[0].spec.metrics
        for metric in settings.evolution.penalties:
            if metric not in known:
                raise ValueError(
                    f"trainer.evolution.penalties names {metric!r}: metrics are {', '.join(known)}"
                )
        streams = Streams(seed)
        self.worlds = worlds
        self.settings = settings
        self.seed = seed
        self.episodes_done = 0
        layout = policy.network.layout
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
        lanes = [world.n_lanes for world in self.worlds]
        variants = self.strategy.ask(sum(lanes) // 2)
        firsts = np.cumsum([0, *lanes])
        with ThreadPoolExecutor(self.settings.evolution.threads) as pool:
            played = list(
                pool.map(
                    lambda k: self._play(self.worlds[k], variants[firsts[k] : firsts[k + 1]], int(firsts[k])),
                    range(len(lanes)),
                )
            )
        returns = np.concatenate([result[0] for result in played])
        spread = self.strategy.tell(returns, rate)
        self.policy.network.set_vector(self.strategy.average)
        self.episodes_done += sum(lanes)
        rows = [row for result in played for row in result[2]]
        return RoundReport(
            episodes=sum(lanes),
            decisions=sum(result[1] for result in played),
            metrics={name: float(np.mean([row[name] for row in rows])) for name in rows[0]},
            losses={"return_spread": spread},
            epsilon_1=self.settings.evolution.sigma,
            learning_rate=rate,
        )

    def _play(
        self, world: BatchWorld, variants: NDArray[np.float32], first: int
    ) -> tuple[NDArray[np.float64], int, list[Mapping[str, float]]]:
        """Returns (n,), decisions and metrics of the variants; `first` is the number of the first of them."""
        n = world.n_lanes
        base = (self.episodes_done + first) // 2
        world.reset([EpisodeKey(self.seed, "train", base + lane // 2) for lane in range(n)])
        active = np.ones(n, np.bool_)
        actions = np.zeros(n, np.int64)
        returns = np.zeros(n)
        decisions = 0
        while active.any():
            lanes = np.flatnonzero(active)
            actions[lanes] = self.policy.act_with(variants, world.observation, lanes, lanes)
            rewards, done = world.step(actions, active)
            returns += rewards
            decisions += len(lanes)
            active &= ~done
        metrics = [world.metrics(lane) for lane in range(n)]
        returns -= [self.settings.evolution.penalty(row) for row in metrics]
        return returns, decisions, metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit after the latest round."""
        return {"strategy": self.strategy.state_dict(), "episodes_done": self.episodes_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.strategy.load_state_dict(state["strategy"])
        self.policy.network.set_vector(self.strategy.average)
        self.episodes_done = int(state["episodes_done"])
