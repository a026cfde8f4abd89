"""Agents of Stable-Baselines3 and sb3-contrib as trainers, with action masks, resumed bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor, nn

from spotweave.agents.library_policy import SetNetwork, as_linears
from spotweave.training.adapters.base import FlatWorldEnv, LibraryTask, LibraryTrainer, linears, masked

_NEVER = 10**9  # a logging interval that does not come: losses are read here, not printed by the library
_LOSSES = {"train/loss": "value", "train/policy_gradient_loss": "policy", "train/value_loss": "critic"}
_COUNTERS = ("num_timesteps", "_n_updates", "_episode_num")


class SB3Trainer(LibraryTrainer):
    """The environments, learning in slices of a rollout, and the whole state of an algorithm.

    On the CPU 2N rounds give bit for bit what N rounds, a stop and N rounds give.
    """

    model: BaseAlgorithm  # the library's algorithm

    def __init__(self, task: LibraryTask, n_environments: int) -> None:
        super().__init__(task)
        # Not the algorithm's own seed argument: it would start every copy under another run's seed.
        set_random_seed(task.library_seed)
        self._environments = [
            FlatWorldEnv(
                task.build,
                self.calibration.flattening,
                self.calibration.reward_scale,
                task.seed,
                first=k,
                stride=n_environments,
            )
            for k in range(n_environments)
        ]
        self.vectorised = DummyVecEnv([lambda env=env: env for env in self._environments])  # type: ignore[misc]

    def environments(self) -> list[FlatWorldEnv]:
        """The environments that the algorithm plays in."""
        return self._environments

    def learning_rate(self, _: float) -> float:
        """The library's schedule, by episodes instead of the time steps that it counts."""
        return self.settings.learning_rate.at(self.progress)

    def play_and_learn(self) -> tuple[int, dict[str, float]]:
        """One rollout of every copy."""
        before = self.model.num_timesteps
        steps = self.task.agent.rollout * len(self._environments)
        # Without a logger each call leaves an empty folder among the temporary files of the system.
        self.model.set_logger(Logger(None, []))
        self.model.learn(steps, log_interval=_NEVER, reset_num_timesteps=False)
        logged = self.model.logger.name_to_value
        losses = {name: float(logged[key]) for key, name in _LOSSES.items() if key in logged}
        return self.model.num_timesteps - before, losses

    def library_state(self) -> dict[str, Any]:
        """Weights, optimiser, counters, random streams, and the running episodes."""
        _, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002 - the library's
        assert isinstance(self.model._last_obs, np.ndarray)
        assert self.model._last_episode_starts is not None
        return {
            "parameters": self.model.get_parameters(),
            "counters": {name: getattr(self.model, name) for name in _COUNTERS},
            "torch_rng": torch.get_rng_state(),
            "numpy_rng": [torch.from_numpy(np.asarray(keys)), position, has_gauss, gauss],
            "environments": [env.state_dict() for env in self._environments],
            "observations": torch.from_numpy(self.model._last_obs),
            "starts": torch.from_numpy(self.model._last_episode_starts),
        }

    def load_library_state(self, state: dict[str, Any]) -> None:
        """Restore what `library_state` gave."""
        self.model.set_parameters(state["parameters"], device=self.task.device)
        for name in _COUNTERS:
            setattr(self.model, name, int(state["counters"][name]))
        for env, running in zip(self._environments, state["environments"], strict=True):
            env.load_state_dict(running)
        self.model._last_obs = state["observations"].numpy()
        self.model._last_episode_starts = state["starts"].numpy()
        torch.set_rng_state(state["torch_rng"])
        keys, *rest = state["numpy_rng"]
        np.random.set_state(("MT19937", keys.numpy(), *rest))  # noqa: NPY002


# DQN of Stable-Baselines3 as a trainer, with action masks.

_REPLAY = ("observations", "actions", "rewards", "dones")


class _ValidActions(spaces.Discrete[np.int64]):
    """The actions of an environment, of which only valid ones are drawn."""

    def __init__(self, env: FlatWorldEnv, seed: int) -> None:
        super().__init__(env.flattening.n_actions, seed=seed)
        self._env = env

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        """A uniform draw among what is valid now."""
        drawn: np.int64 = super().sample(mask=self._env.action_masks().astype(np.int8))
        return drawn


class DQNTrainer(SB3Trainer):
    """DQN (Mnih et al. 2015), one copy of the world, uniform exploration among valid actions.

    The library knows no masks. Here invalid actions have values below all others, in the network and in its
    target, so that neither the greedy action nor a target's maximum is ever one, and none is drawn.
    """

    model: DQN

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task, 1)
        library, settings = task.agent, task.settings
        self.model = DQN(
            "MlpPolicy",
            self.vectorised,
            policy_kwargs={"net_arch": list(library.hidden_sizes), "activation_fn": nn.ReLU},
            learning_rate=self.learning_rate,
            buffer_size=settings.replay_capacity,
            learning_starts=library.learning_starts,
            batch_size=settings.batch_size,
            gamma=library.discount,
            train_freq=library.train_every,
            target_update_interval=library.target_every,
            # Half the memory; the next observation of a transition is the next row.
            optimize_memory_usage=True,
            replay_buffer_kwargs={"handle_timeout_termination": False},
            device=task.device,
        )
        self.model.exploration_schedule = lambda _: self.epsilon_1
        self.model.action_space = _ValidActions(self.environments()[0], task.library_seed)
        for network in (self.model.q_net, self.model.q_net_target):
            network.register_forward_hook(_mask)

    @property
    def epsilon_1(self) -> float:
        """Chance of a uniformly drawn action."""
        return self.settings.epsilon_1.at(self.progress)

    def weights(self) -> dict[str, Tensor]:
        """The layers of the network of values."""
        return as_linears(linears(self.model.q_net))

    def library_state(self) -> dict[str, Any]:
        """The replay too, and what exploration and the target network count."""
        replay = self.model.replay_buffer
        assert replay is not None
        # The row after the last one is its next observation.
        rows = replay.buffer_size if replay.full else replay.pos + 1
        return {
            **super().library_state(),
            "replay": {name: torch.from_numpy(getattr(replay, name)[:rows]) for name in _REPLAY},
            "replay_place": [replay.pos, replay.full],
            "steps": self.model._n_calls,
            "explored": self.model.exploration_rate,
            "action_rng": self.model.action_space.np_random.bit_generator.state,
        }

    def load_library_state(self, state: dict[str, Any]) -> None:
        """Restore what `library_state` gave."""
        super().load_library_state(state)
        replay = self.model.replay_buffer
        assert replay is not None
        for name in _REPLAY:
            rows: NDArray[Any] = state["replay"][name].numpy()
            getattr(replay, name)[: len(rows)] = rows
        replay.pos, replay.full = state["replay_place"]
        self.model._n_calls = int(state["steps"])
        self.model.exploration_rate = float(state["explored"])
        self.model.action_space.np_random.bit_generator.state = state["action_rng"]


def _mask(_: nn.Module, inputs: tuple[Tensor], values: Tensor) -> Tensor:
    return masked(values, inputs[0])


# PPO of sb3-contrib, with masks, and with a network over sets after Decima.


class _PPOTrainer(SB3Trainer):
    """Actions sampled from the policy, on several copies of the world."""

    model: MaskablePPO

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task, task.agent.environments)

    def arguments(self) -> dict[str, Any]:
        """Constructor arguments that all of them share."""
        library, settings = self.task.agent, self.task.settings
        return {
            "learning_rate": self.learning_rate,
            "n_steps": library.rollout,
            "batch_size": _divisor(library.rollout * library.environments, settings.batch_size),
            "n_epochs": library.epochs,
            "gamma": library.discount,
            "ent_coef": library.entropy,
            "device": self.task.device,
        }

    @property
    def epsilon_1(self) -> float:
        """0: actions are sampled from the policy."""
        return 0.0

    def weights(self) -> dict[str, Tensor]:
        """The layers that lead to the logits."""
        policy: Any = self.model.policy
        return as_linears([*linears(policy.mlp_extractor.policy_net), *linears(policy.action_net)])


class MaskablePPOTrainer(_PPOTrainer):
    """PPO with invalid-action masks (Huang and Ontañón 2022) of sb3-contrib."""

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task)
        sizes = list(task.agent.hidden_sizes)
        layers = {"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": nn.ReLU}
        self.model = MaskablePPO("MlpPolicy", self.vectorised, policy_kwargs=layers, **self.arguments())


class _SetPolicy(MaskableActorCriticPolicy):
    """The network over sets gives the logits; the critic reads its embedding of all jobs."""

    def __init__(self, *arguments: Any, make_network: Any, **keywords: Any) -> None:
        self._make_network = make_network
        super().__init__(*arguments, **keywords)

    def _build_mlp_extractor(self) -> None:
        sets: Any = _Sets(self._make_network())
        self.mlp_extractor = sets

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()
        make: Any = self.optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


class _Sets(nn.Module):
    """What the policy of the library expects: what leads to logits, and what leads to the value."""

    def __init__(self, network: SetNetwork) -> None:
        super().__init__()
        self.network = network
        self.latent_dim_pi = network.n_jobs * (network.n_clusters + 1)
        self.latent_dim_vf = network.size

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.scores_and_summary(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return self.network.scores_and_summary(features)[0]

    def forward_critic(self, features: Tensor) -> Tensor:
        return self.network.scores_and_summary(features)[1]


class DecimaTrainer(_PPOTrainer):
    """A policy after Decima (Mao et al. 2019), by MaskablePPO.

    Decima's own REINFORCE compares episodes of the same arrivals; PPO's critic stands in for that baseline.
    """

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task)
        flattening = self.calibration.flattening

        def make_network() -> SetNetwork:
            return SetNetwork(flattening.n_jobs, flattening.n_clusters, task.agent.embedding_size)

        layers = {"make_network": make_network, "ortho_init": False}
        self.model = MaskablePPO(_SetPolicy, self.vectorised, policy_kwargs=layers, **self.arguments())

    def weights(self) -> dict[str, Tensor]:
        """The network over sets, less the statistics, which are the policy's own."""
        policy: Any = self.model.policy
        return {name: weight.detach() for name, weight in policy.mlp_extractor.network.named_parameters()}


def _divisor(total: int, wanted: int) -> int:
    """The largest divisor of `total` that is at most `wanted`: minibatches without a remainder."""
    return max(size for size in range(1, min(wanted, total) + 1) if total % size == 0)
