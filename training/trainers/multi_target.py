"""Training of `mtdqn`: what a choice does to its own job, and what it does to all others.

Own values are learned from what became of the job (Monte-Carlo, Liu 2022, section 5.3). The mutual value is
learned from lanes that play the *same* workload with different exploration. By the performance-difference
lemma (Kakade and Langford 2002) the returns of two such lanes differ by the sum of the advantages of what
they explored; what the own values do not explain of it is the sum of the mutual advantages. Each advantage
counts with the surprise of the coin that took it or did not: a lane that went wrong by chance meets crowded
places, and whatever it tries there would be blamed for that (without this, trainings collapse).

Bags, workflows and rounds are asked about the same task again and again, so that what one answer does is
little. There a lane has a *taste* for a whole episode: a random linear function of a choice's columns, which
is added to the values where a coin says so. What it tries, it tries consistently, and the returns show it
(as with noise in the parameters, Plappert et al. 2018; but the advantages are learned decision by decision).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.learning import Replay
from spotweave.agents.mtdqn.decide import GREEDY, GUIDED, RANDOM, Exploring, Label, empty_label, n_columns
from spotweave.agents.mtdqn.policy import MTDQNNetwork, MTDQNPolicy
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.settings import TrainerSettings
from spotweave.training.trainers.trainer import RoundReport, mean_metrics


class ComparableWorld(BatchWorld, Protocol):
    """A world that tells what became of each job, and when it was there."""

    def clock(self) -> NDArray[np.int64]:
        """(N,) the present moment of each lane."""

    def shown_jobs(self) -> NDArray[np.int64]:
        """(N, J) job in each row of the window."""

    def stays(self, lane: int) -> NDArray[np.float64]:
        """(n, 3) when each job of a finished episode arrived, came in and ended, by arrival."""

    def outcomes(self, lane: int, jobs: NDArray[np.int64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
        """(D, K) what became of jobs of a finished episode since decisions with these marks."""


class ChargingWorld(BatchWorld, Protocol):
    """A world whose episodes are compared as wholes, without own values."""

    def reward_of_usd(self, lane: int) -> float:
        """Reward that a USD costs in the episode of a lane."""


World = ComparableWorld | ChargingWorld


class Played(NamedTuple):
    """What a round of play left: D decisions."""

    label: Label  # what was seen at each
    # (D,) 1 if the alternative was taken, else 0, less the chance of that; with tastes, 1 or 0
    surprise: NDArray[np.float64]
    lane: NDArray[np.int64]  # (D,)
    job: NDArray[np.int64]  # (D,)
    marks: NDArray[np.float64]  # (D, M) totals of the job before it, as the world tells them
    since: NDArray[np.int64]  # (D,) when it was taken
    until: NDArray[np.int64]  # (D,) when the next one was
    reward: NDArray[np.float64]  # (D,) between the two


@dataclass(frozen=True)
class Comparison:
    """What the lanes of one workload explored, and what they came to, block by block."""

    columns: Tensor  # (E, 2, n_columns) float16 of the alternative and of the greedy choice
    known: Tensor  # (E, 2, heads)
    facts: Tensor  # (E, N_FACTS)
    needs: Tensor  # (E, 2)
    lane: Tensor  # (E,)
    # (E, B) share of the effect in each block, times the surprise, with which nothing that happened before is
    # correlated
    spread: Tensor
    returns: Tensor  # (L, B)


class MultiTargetTrainer:
    """Each round, groups of lanes play a workload each; meanwhile, on a core of its own, the network learns.

    A decision explores with chance epsilon_1: at random with chance epsilon_2, else as the guide says (Liu
    2022, eq. 4.3), at most once per job. In the first `trainer.multi_target.follow_share` of the episodes the
    guide counts as the greedy policy. A moving average of the network acts. Where it has several sets of own
    heads, each plays a share of the lanes alone (Bootstrapped DQN, Osband et al. 2016): their mean takes that
    many times as long to ask.

    A policy that is trained already learns on from there. Between rounds its `state_dict` holds everything: N
    rounds, stop, resume, N rounds equals 2N rounds.
    """

    def __init__(
        self,
        # from the number of a round to a world of `settings.lanes` lanes, and whether it was drawn
        world_of: Callable[[int], tuple[World, bool]],
        policy: MTDQNPolicy,
        settings: TrainerSettings,
        seed: int,
        device: torch.device,
    ) -> None:
        self.copies = settings.multi_target.copies or settings.lanes
        if settings.lanes % self.copies:
            raise ValueError(
                f"trainer.multi_target.copies is {self.copies}: expected a divisor of trainer.lanes "
                f"({settings.lanes})"
            )
        if self.copies < 2 and policy.view.sizes.mutual:
            raise ValueError(
                "agent.mutual_size is positive, but every lane plays a workload of its own: expected "
                "trainer.lanes and trainer.multi_target.copies of at least 2, which are compared"
            )
        streams = Streams(seed)
        torch.manual_seed(streams.key("network_weights") % 2**63)
        self.world_of, self.policy, self.settings = world_of, policy, settings
        self.seed, self.device = seed, device
        self.view = policy.view
        self.unit = self.view.reward_unit(policy.weights)
        self.network = MTDQNNetwork(self.view.sizes).to(device)
        if policy.network.trained:
            self.network.set_vector(policy.network.vector)
        self.average = self.network.vector()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate.start)
        sizes = self.view.sizes
        self.replay = Replay(
            settings.replay_capacity if sizes.own else 0,
            n_columns(sizes),
            sizes.heads,
            streams.generator("replay"),
        )
        self.comparisons: deque[Comparison] = deque(maxlen=settings.multi_target.workloads)
        self.rng = streams.generator("exploration")
        self.weights = torch.from_numpy(policy.of_heads).to(device)
        self.episodes_done = 0

    def round(self) -> RoundReport:
        """Play the next workloads, and meanwhile learn from those before."""
        progress = self.episodes_done / self.settings.episodes
        rate = self.settings.learning_rate.at(progress)
        epsilon_1, epsilon_2 = self.settings.epsilon_1.at(progress), self.settings.epsilon_2.at(progress)
        follow = progress < self.settings.multi_target.follow_share or not self.policy.network.trained
        world, drawn = self.world_of(self.episodes_done // self.settings.lanes)
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as core:
            learning = core.submit(self._learn, rate) if self.episodes_done else None
            played = self._play(world, epsilon_1, epsilon_2, follow)
            losses = learning.result() if learning else {}
        if learning:
            kept = self.settings.multi_target.average
            self.average = np.float32(kept) * self.average + np.float32(1.0 - kept) * self.network.vector()
            self.policy.network.set_vector(self.average)
        self._keep(world, played)
        if not learning and not self.policy.network.trained and self.view.sizes.scaled:
            rows = torch.from_numpy(self.replay.columns[: self.replay.size]).to(self.device).float()
            self.network.fit_scaler(rows)
            self.average = self.network.vector()
        self.episodes_done += self.settings.lanes
        return RoundReport(
            episodes=self.settings.lanes,
            decisions=len(played.lane),
            metrics=mean_metrics([world.metrics(lane) for lane in range(self.settings.lanes)]),
            losses=losses,
            epsilon_1=epsilon_1,
            learning_rate=rate,
            drawn=drawn,
        )

    def _play(self, world: World, epsilon_1: float, epsilon_2: float, follow: bool) -> Played:
        n = self.settings.lanes
        # Most is learned of an alternative that a fair coin takes.
        tries = min(1.0, 2.0 * epsilon_1)
        chance = epsilon_1 / tries if tries > 0.0 else 0.0
        first = self.episodes_done // self.copies
        world.reset([EpisodeKey(self.seed, "train", first + lane // self.copies) for lane in range(n)])
        active = np.ones(n, np.bool_)
        actions = np.zeros(n, np.int64)
        explored = np.zeros((n, 1), np.bool_)
        places = self.view.sizes.places if self.view.whole_episodes else 0
        tastes = self.settings.multi_target.taste * self.rng.standard_normal((n, places), np.float32)
        # Lanes that are compared with each other act alike.
        members = self.policy.members() if self.copies == 1 else [self.policy]
        log: list[tuple[NDArray[Any], ...]] = []
        labels: list[Label] = []
        since = self._clock(world)
        while active.any():
            lanes = np.flatnonzero(active)
            draws = self.rng.random((4, len(lanes)))
            how = np.where(draws[0] >= tries, GREEDY, np.where(draws[1] < epsilon_2, RANDOM, GUIDED))
            take = (draws[3] < chance) & (how != GREEDY)
            spent = np.zeros((len(lanes), 1), np.bool_)
            if self.view.sizes.own:  # what becomes of a job after its exploration is the policy's doing
                shown = cast(ComparableWorld, world).shown_jobs()[lanes]
                if shown.max() >= explored.shape[1]:
                    explored = np.pad(explored, ((0, 0), (0, int(shown.max()) + 1 - explored.shape[1])))
                spent = explored[lanes[:, None], shown]
            label = empty_label(len(lanes), self.view.sizes)
            exploring = Exploring(how, draws[2], take, spent, tastes[lanes])
            ends = np.searchsorted(lanes * len(members), n * np.arange(len(members) + 1))
            for member, (start, end) in zip(members, pairwise(ends), strict=True):
                rows = slice(start, end)
                mine = Exploring._make(part[rows] for part in exploring)
                kept = Label._make(part[rows] for part in label)
                actions[lanes[rows]] = member.explore(world.observation, lanes[rows], mine, kept, follow)
            rewards, done = world.step(actions, active)
            jobs, clock = world.decided_jobs()[lanes], self._clock(world)
            if self.view.sizes.own:
                explored[lanes[label.taken], jobs[label.taken]] = True
            log.append((lanes, jobs, world.marks()[lanes], since[lanes], clock[lanes], rewards[lanes]))
            labels.append(label)
            since = clock
            active &= ~done
        joined = Label._make(np.concatenate(parts) for parts in zip(*labels, strict=True))
        lane, job, marks, since, until, reward = (np.concatenate(column) for column in zip(*log, strict=True))
        surprise = joined.taken.astype(np.float64) - (0.0 if self.view.whole_episodes else chance)
        return Played(joined, surprise, lane, job, marks, since, until, reward / self.unit)

    def _clock(self, world: World) -> NDArray[np.int64]:
        if self.view.whole_episodes:
            return np.zeros(self.settings.lanes, np.int64)
        return cast(ComparableWorld, world).clock()

    def _keep(self, world: World, played: Played) -> None:
        """Label decisions with what became of their jobs, and compare the lanes of each workload."""
        label = played.label
        side = np.where(label.taken, 0, 1)
        if self.view.sizes.own:
            for lane in range(self.settings.lanes):
                rows = self._learned_from(np.flatnonzero(played.lane == lane), played)
                outcomes = cast(ComparableWorld, world).outcomes(lane, played.job[rows], played.marks[rows])
                mine = Label._make(part[rows] for part in label)
                targets = self.view.targets(mine, side[rows], outcomes)
                self.replay.add(label.columns[rows, side[rows]], targets)
        if self.network.prices is not None:
            for first in range(0, self.settings.lanes, self.copies):
                self.comparisons.append(self._compared(world, played, first))

    def _learned_from(self, rows: NDArray[np.int64], played: Played) -> NDArray[np.int64]:
        """The decisions of a lane that are kept: before its exploration an outcome is not the policy's."""
        label = played.label
        from_row = np.zeros(played.job[rows].max() + 1, np.int64)
        taken = rows[label.taken[rows]]
        from_row[played.job[taken]] = taken
        rows = rows[(rows >= from_row[played.job[rows]]) & label.kept[rows]]
        most = self.settings.multi_target.kept_per_episode
        if not 0 < most < len(rows):
            return rows
        first, others = rows[label.taken[rows]], rows[~label.taken[rows]]
        room = min(len(others), max(0, most - len(first)))
        return np.sort(np.concatenate([first, self.rng.choice(others, room, replace=False)]))

    def _compared(self, world: World, played: Played, first: int) -> Comparison:
        """The lanes from `first` on, which played the same workload."""
        label = played.label
        mine = np.flatnonzero((played.lane >= first) & (played.lane < first + self.copies))
        rows = mine[label.tried[mine] & (played.surprise[mine] != 0.0)]
        lane = played.lane[rows] - first
        if self.view.whole_episodes:
            returns = np.zeros((self.copies, 1))
            np.add.at(returns[:, 0], played.lane[mine] - first, played.reward[mine])
            spread = played.surprise[rows, None] * cast(ChargingWorld, world).reward_of_usd(first)
            # Episodes differ in what is at stake.
            size = math.sqrt(1.0 + returns.var())
            returns, spread = returns / size, spread / size
        else:
            returns, spread = self._by_block(cast(ComparableWorld, world), played, first, mine, rows)
        return Comparison(
            torch.from_numpy(label.columns[rows].astype(np.float16)),
            torch.from_numpy(label.known[rows]),
            torch.from_numpy(label.facts[rows]),
            torch.from_numpy(label.needs[rows]),
            torch.from_numpy(lane),
            torch.from_numpy(spread.astype(np.float32)),
            torch.from_numpy(returns.astype(np.float32)),
        )

    def _by_block(
        self,
        world: ComparableWorld,
        played: Played,
        first: int,
        mine: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns (L, B) of the lanes, and the spread (E, B) of the decisions `rows` over the blocks."""
        view = self.view
        stays = np.stack([world.stays(first + k) for k in range(self.copies)])
        starts = stays[0, :: view.block_jobs, 0].copy()
        starts[0] = 0.0
        ends = np.append(starts[1:], np.inf)
        returns = np.zeros((self.copies, len(starts)))
        blocks = np.searchsorted(starts, played.until[mine], "right") - 1
        np.add.at(returns, (played.lane[mine] - first, blocks), played.reward[mine])
        _, begin, end = stays[played.lane[rows] - first, played.job[rows]].T
        since = np.maximum(begin, played.since[rows])[:, None]
        until = end[:, None] + view.aftermath
        overlap = np.minimum(until, ends) - np.maximum(since, starts)
        return returns, played.surprise[rows, None] * np.maximum(overlap, 0.0) / (until - since)

    def _learn(self, rate: float) -> dict[str, float]:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        settings, workloads = self.settings, self.settings.lanes // self.copies
        steps = settings.gradient_steps * workloads if self.replay.size else 0
        total: dict[str, float] = {}
        for _ in range(steps):
            for name, loss in self._own_step(*self.replay.sample(settings.batch_size, self.device)).items():
                total[name] = total.get(name, 0.0) + loss / steps
        steps = settings.multi_target.mutual_steps * workloads if self.comparisons else 0
        mutual = 0.0
        for _ in range(steps):
            count = min(settings.multi_target.workloads_per_step, len(self.comparisons))
            picked = self.replay.rng.choice(len(self.comparisons), count, replace=False)
            mutual += self._mutual_step([self.comparisons[k] for k in picked]) / steps
        return {**total, "mutual": mutual}

    def _own_step(self, columns: Tensor, targets: Tensor) -> dict[str, float]:
        losses = self.view.losses(self.network.own_values(columns), targets, self.weights)
        self._descend(torch.stack(list(losses.values())).sum())
        return {name: float(loss.detach()) for name, loss in losses.items()}

    def _mutual_step(self, compared: Sequence[Comparison]) -> float:
        loss = torch.zeros((), device=self.device)
        size = torch.zeros((), device=self.device)
        for one in compared:
            columns, needs = one.columns.to(self.device).float().flatten(0, 1), one.needs.to(self.device)
            with torch.no_grad():
                own = self.network.own_values(columns).mean(0).view(len(needs), 2, self.view.sizes.heads)
                known, facts = one.known.to(self.device), one.facts.to(self.device)[:, None]
                worth = self.view.own_worth(own, known, facts, self.weights)
            mutual = self.network.mutual_values(columns, needs.flatten()).view(-1, 2)
            advantages = (worth[:, 0] - worth[:, 1]) + (mutual[:, 0] - mutual[:, 1])
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
