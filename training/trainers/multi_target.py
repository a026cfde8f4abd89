"""Training of `mtdqn`: what a choice does to its own job, and what it does to all others.

Own values are learned from what became of the job (Monte-Carlo, Liu 2022, section 5.3). The mutual value is
learned from lanes that play the *same* workload with different exploration. By the performance-difference
lemma (Kakade and Langford 2002) the returns of two such lanes differ by the sum of the advantages of what
they explored; what the own values do not explain of it is the sum of the mutual advantages. Each advantage
counts with the surprise of the coin that took it or did not: a lane that went wrong by chance meets crowded
places, and whatever it tries there would be blamed for that (without this, trainings collapse).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.learning.outcome_regression import OutcomeReplay
from agents.mtdqn.decide import GREEDY, GUIDED, RANDOM, Label, empty_label
from agents.mtdqn.forward import N_OWN, n_columns
from agents.mtdqn.network import MTDQNNetwork
from agents.mtdqn.policy import MTDQNPolicy
from envs.simulation.slices.world import SliceWorld
from envs.simulation.streams import Streams
from envs.simulation.world import EpisodeKey
from training.settings import TrainerSettings
from training.trainers.trainer import RoundReport, mean_metrics

MOST_MISSES = 8.0
"""Bound on a job's misses as a target: few jobs with many of them would drown the rest."""
BLOCK_JOBS = 50
"""Arrivals of a block of time: returns are compared block by block, so that an effect is looked for near
its cause."""
AFTERMATH = 60
"""Slices after its end in which a job's effect on others still shows."""


class Played(NamedTuple):
    """One workload, played by all lanes: D decisions.

    Attributes:
        label: what was seen at each.
        surprise: (D,) 1 if the alternative was taken, else 0, less the chance of that.
        lane: (D,).
        job: (D,).
        reward: (D,) until the next decision, in missed deadlines.
        clock: (D,) when that was.
    """

    label: Label
    surprise: NDArray[np.float64]
    lane: NDArray[np.int64]
    job: NDArray[np.int64]
    reward: NDArray[np.float64]
    clock: NDArray[np.int64]


@dataclass(frozen=True)
class Comparison:
    """What the lanes of one workload explored, and what they came to, block by block.

    Attributes:
        columns: (E, 2, n_columns) float16 of the alternative and of the greedy choice.
        known: (E, 2, 2).
        needs: (E, 2).
        lane: (E,).
        spread: (E, B) share of the effect in each block, times 1 if the alternative was taken, else 0, less
            the chance of that. So nothing that happened before is correlated with it.
        returns: (L, B).
    """

    columns: Tensor
    known: Tensor
    needs: Tensor
    lane: Tensor
    spread: Tensor
    returns: Tensor


class MultiTargetTrainer:
    """Each round, all lanes play one workload; meanwhile, on a core of its own, the network learns.

    A decision explores with chance epsilon_1: at random with chance epsilon_2, else as the guide says (Liu
    2022, eq. 4.3). In the first `trainer.multi_target.follow_share` of the episodes the guide counts as the
    greedy policy. A moving average of the network acts.

    Args:
        builds: each returns a world with the given number of lanes. Rounds go through them in turn.
        policy: what is trained.
        settings: the trainer's settings.
        seed: root of all random streams of the run.
        device: where the network learns.
    """

    def __init__(
        self,
        builds: Sequence[Callable[[int], SliceWorld]],
        policy: MTDQNPolicy,
        settings: TrainerSettings,
        seed: int,
        device: torch.device,
    ) -> None:
        if settings.lanes < 2:
            raise ValueError(f"trainer.lanes is {settings.lanes}: expected at least 2, which are compared")
        streams = Streams(seed)
        torch.manual_seed(streams.key("network_weights") % 2**63)
        self.builds, self.policy, self.settings = builds, policy, settings
        self.seed, self.device = seed, device
        self.network = MTDQNNetwork(policy.network.sizes).to(device)
        if policy.network.trained:
            self.network.set_vector(policy.network.vector)
        self.average = self.network.vector()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate.start)
        n_inputs, draws = n_columns(policy.network.sizes), streams.generator("replay")
        self.replay = OutcomeReplay(settings.replay_capacity, n_inputs, draws, N_OWN, np.float32)
        self.comparisons: deque[Comparison] = deque(maxlen=settings.multi_target.workloads)
        self.rng = streams.generator("exploration")
        self.weights = torch.from_numpy(policy.of_heads).to(device)
        self.episodes_done = 0
        self._worlds: dict[int, SliceWorld] = {}

    def round(self) -> RoundReport:
        """Play the next workload in all lanes, and meanwhile learn from those before."""
        progress = self.episodes_done / self.settings.episodes
        rate = self.settings.learning_rate.at(progress)
        epsilon_1, epsilon_2 = self.settings.epsilon_1.at(progress), self.settings.epsilon_2.at(progress)
        follow = progress < self.settings.multi_target.follow_share or not self.policy.network.trained
        number = self.episodes_done // self.settings.lanes
        world = self._world(number % len(self.builds))
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as core:
            learning = core.submit(self._learn, rate) if self.replay.size else None
            played = self._play(world, number, epsilon_1, epsilon_2, follow)
            losses = learning.result() if learning else {}
        if learning:
            kept = self.settings.multi_target.average
            self.average = np.float32(kept) * self.average + np.float32(1.0 - kept) * self.network.vector()
            self.policy.network.set_vector(self.average)
        self._keep(world, played)
        self.episodes_done += self.settings.lanes
        return RoundReport(
            episodes=self.settings.lanes,
            decisions=len(played.lane),
            metrics=mean_metrics(world, self.settings.lanes),
            losses=losses,
            epsilon_1=epsilon_1,
            learning_rate=rate,
        )

    def _world(self, number: int) -> SliceWorld:
        if number not in self._worlds:
            self._worlds[number] = self.builds[number](self.settings.lanes)
        return self._worlds[number]

    def _play(
        self, world: SliceWorld, number: int, epsilon_1: float, epsilon_2: float, follow: bool
    ) -> Played:
        n = self.settings.lanes
        # Most is learned of an alternative that a fair coin takes.
        tries = min(1.0, 2.0 * epsilon_1)
        chance = epsilon_1 / tries if tries > 0.0 else 0.0
        world.reset([EpisodeKey(self.seed, "train", number)] * n)
        active = np.ones(n, np.bool_)
        actions = np.zeros(n, np.int64)
        log: list[tuple[NDArray[Any], ...]] = []
        labels: list[Label] = []
        while active.any():
            lanes = np.flatnonzero(active)
            draws = self.rng.random((4, len(lanes)))
            how = np.where(draws[0] >= tries, GREEDY, np.where(draws[1] < epsilon_2, RANDOM, GUIDED))
            take = (draws[3] < chance) & (how != GREEDY)
            label = empty_label(len(lanes), self.policy.network.sizes)
            actions[lanes] = self.policy.explore(world.observation, lanes, how, draws[2], take, label, follow)
            rewards, done = world.step(actions, active)
            log.append((lanes, world.decided_jobs()[lanes], rewards[lanes], world.clock()[lanes]))
            labels.append(label)
            active &= ~done
        joined = Label(*(np.concatenate(parts) for parts in zip(*labels, strict=True)))
        lane, job, reward, clock = (np.concatenate(column) for column in zip(*log, strict=True))
        surprise = joined.taken.astype(np.float64) - chance
        return Played(joined, surprise, lane, job, reward / world.spec.objective_weights[0], clock)

    def _keep(self, world: SliceWorld, played: Played) -> None:
        """Label every decision with what became of its job, and compare the lanes."""
        label, surprise, lane, job, reward, clock = played
        outcomes = [world.job_outcomes(k) for k in range(self.settings.lanes)]
        misses = np.stack([outcome.misses for outcome in outcomes])[lane, job]
        delay = np.stack([outcome.delay for outcome in outcomes])[lane, job]
        begin = np.stack([outcome.deployed for outcome in outcomes])[lane, job]
        end = np.stack([outcome.ended for outcome in outcomes])[lane, job]
        chosen = np.arange(len(job)), np.where(label.taken, 0, 1)
        known = label.known[chosen]
        beyond = np.stack([-misses, -delay], 1) - known
        beyond[:, 0] = beyond[:, 0].clip(-MOST_MISSES, MOST_MISSES)
        self.replay.add(label.columns[chosen], beyond)

        starts = outcomes[0].arrival[::BLOCK_JOBS].astype(np.float64)
        starts[0] = 0.0
        ends = np.append(starts[1:], np.inf)
        returns = np.zeros((self.settings.lanes, len(starts)))
        np.add.at(returns, (lane, np.searchsorted(starts, clock, "right") - 1), reward)
        rows = np.flatnonzero(label.tried)
        since, until = begin[rows, None].astype(np.float64), end[rows, None].astype(np.float64) + AFTERMATH
        overlap = np.minimum(until, ends) - np.maximum(since, starts)
        spread = surprise[rows, None] * np.maximum(overlap, 0.0) / (until - since)
        self.comparisons.append(
            Comparison(
                torch.from_numpy(label.columns[rows].astype(np.float16)),
                torch.from_numpy(label.known[rows]),
                torch.from_numpy(label.needs[rows]),
                torch.from_numpy(lane[rows]),
                torch.from_numpy(spread.astype(np.float32)),
                torch.from_numpy(returns.astype(np.float32)),
            )
        )

    def _learn(self, rate: float) -> dict[str, float]:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        settings = self.settings
        own = torch.zeros(N_OWN)
        for _ in range(settings.gradient_steps):
            own += self._own_step(*self.replay.sample(settings.batch_size, self.device))
        mutual = 0.0
        steps = settings.multi_target.mutual_steps if self.network.prices is not None else 0
        for _ in range(steps):
            count = min(settings.multi_target.workloads_per_step, len(self.comparisons))
            picked = self.replay.rng.choice(len(self.comparisons), count, replace=False)
            mutual += self._mutual_step([self.comparisons[k] for k in picked])
        misses, delay = (own / settings.gradient_steps).tolist()
        return {"own_misses": misses, "delay": delay, "mutual": mutual / max(1, steps)}

    def _own_step(self, columns: Tensor, targets: Tensor) -> Tensor:
        beyond = self.network.own_values(columns) - targets
        losses = (beyond * self.weights[:N_OWN]).square().mean(0)
        self._descend(losses.sum())
        return losses.detach().cpu()

    def _mutual_step(self, compared: Sequence[Comparison]) -> float:
        loss = torch.zeros((), device=self.device)
        size = torch.zeros((), device=self.device)
        for one in compared:
            columns, needs = one.columns.to(self.device).float(), one.needs.to(self.device)
            with torch.no_grad():
                own = self.network.own_values(columns.flatten(0, 1)).view(-1, 2, N_OWN)
                own = ((own + one.known.to(self.device)) * self.weights[:N_OWN]).sum(2)
            mutual = self.network.mutual_values(columns.flatten(0, 1), needs.flatten()).view(-1, 2)
            advantages = (own[:, 0] - own[:, 1]) + (mutual[:, 0] - mutual[:, 1])
            returns = one.returns.to(self.device)
            explained = torch.zeros_like(returns).index_add(
                0, one.lane.to(self.device), advantages[:, None] * one.spread.to(self.device)
            )
            returns, explained = returns - returns.mean(0), explained - explained.mean(0)
            loss = loss + (explained - returns).square().mean()
            size = size + returns.square().mean()
        share = loss / size.clamp(min=1.0)
        self._descend(share)
        return float(share.detach())

    def _descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit after the latest round."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": torch.from_numpy(self.average.copy()),
            "replay": self.replay.state_dict(),
            "comparisons": [vars(comparison) for comparison in self.comparisons],
            "exploration": self.rng.bit_generator.state,
            "episodes_done": self.episodes_done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = state["average"].numpy().copy()
        self.replay.load_state_dict(state["replay"])
        self.comparisons.clear()
        self.comparisons.extend(Comparison(**comparison) for comparison in state["comparisons"])
        self.rng.bit_generator.state = state["exploration"]
        self.episodes_done = int(state["episodes_done"])
        if self.episodes_done > self.settings.lanes:  # nothing is learned in the first round
            self.policy.network.set_vector(self.average)
