"""DQN of Stable-Baselines3 and QR-DQN of sb3-contrib as trainers, both with action masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import QRDQN
from stable_baselines3 import DQN
from torch import Tensor, nn

from agents.flat_policy import as_linears
from training.adapters.flat_env import FlatWorldEnv
from training.adapters.masking import masked
from training.adapters.sb3 import SB3Trainer, linears
from training.adapters.trainer import LibraryTask

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


class _ValueTrainer(SB3Trainer):
    """Values of actions, one copy of the world, uniform exploration among valid actions.

    The library knows no masks. Here invalid actions have values below all others, in the network and in its
    target, so that neither the greedy action nor a target's maximum is ever one, and none is drawn.
    """

    model: DQN | QRDQN

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task, 1)
        self.model = self.make()
        self.model.exploration_schedule = self._exploration
        self.model.action_space = _ValidActions(self.environments()[0], task.library_seed)
        for network in self.networks():
            network.register_forward_hook(_mask)

    def make(self) -> DQN | QRDQN:
        """The algorithm."""
        raise NotImplementedError

    def networks(self) -> tuple[nn.Module, nn.Module]:
        """The network of values and its target."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Any]:
        """What both algorithms are made with."""
        library, settings = self.task.agent, self.task.settings
        return {
            "learning_rate": self.learning_rate,
            "buffer_size": settings.replay_capacity,
            "learning_starts": library.learning_starts,
            "batch_size": settings.batch_size,
            "gamma": library.discount,
            "train_freq": library.train_every,
            "target_update_interval": library.target_every,
            # Half the memory; the next observation of a transition is the next row.
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
            "device": self.task.device,
        }

    def _exploration(self, _: float) -> float:
        return self.settings.epsilon_1.at(self.progress)

    @property
    def epsilon_1(self) -> float:
        """Chance of a uniformly drawn action."""
        return self._exploration(0.0)

    def weights(self) -> dict[str, Tensor]:
        """The layers of the network of values."""
        return as_linears(linears(self.networks()[0]))

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
    """Values (n, A), or quantiles (n, N, A), of the observations (n, D) that were given."""
    features = inputs[0] if values.ndim == 2 else inputs[0][:, None]
    return masked(values, features)


class DQNTrainer(_ValueTrainer):
    """DQN (Mnih et al. 2015) of Stable-Baselines3."""

    model: DQN

    def make(self) -> DQN:
        """The algorithm."""
        layers = {"net_arch": list(self.task.agent.hidden_sizes), "activation_fn": nn.ReLU}
        return DQN("MlpPolicy", self.vectorised, policy_kwargs=layers, **self.arguments())

    def networks(self) -> tuple[nn.Module, nn.Module]:
        """The network of values and its target."""
        return self.model.q_net, self.model.q_net_target


class QRDQNTrainer(_ValueTrainer):
    """Quantile regression DQN (Dabney et al. 2018) of sb3-contrib."""

    model: QRDQN

    def make(self) -> QRDQN:
        """The algorithm."""
        library = self.task.agent
        layers = {
            "net_arch": list(library.hidden_sizes),
            "activation_fn": nn.ReLU,
            "n_quantiles": library.quantiles,
        }
        return QRDQN("MlpPolicy", self.vectorised, policy_kwargs=layers, **self.arguments())

    def networks(self) -> tuple[nn.Module, nn.Module]:
        """The network of quantiles and its target."""
        return self.model.quantile_net, self.model.quantile_net_target

    def weights(self) -> dict[str, Tensor]:
        """The layers, the last of which gives means of quantiles: it is linear, so its own mean is enough."""
        *hidden, (weight, bias) = linears(self.model.quantile_net)
        n = self.task.agent.quantiles
        mean = weight.view(n, -1, weight.shape[1]).mean(dim=0), bias.view(n, -1).mean(dim=0)
        return as_linears([*hidden, mean])
