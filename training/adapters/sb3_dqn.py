"""DQN of Stable-Baselines3 as a trainer, with action masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
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


class DQNTrainer(SB3Trainer):
    """DQN (Mnih et al. 2015), one copy of the world, uniform exploration among valid actions.

    The library knows no masks. Here invalid actions have values below all others, in the network and in its
    target, so that neither the greedy action nor a target's maximum is ever one, and none is drawn.
    """

    model: DQN

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task, 1)
        layers = {"net_arch": list(task.agent.hidden_sizes), "activation_fn": nn.ReLU}
        self.model = DQN("MlpPolicy", self.vectorised, policy_kwargs=layers, **self.arguments())
        self.model.exploration_schedule = self._exploration
        self.model.action_space = _ValidActions(self.environments()[0], task.library_seed)
        for network in (self.model.q_net, self.model.q_net_target):
            network.register_forward_hook(_mask)

    def arguments(self) -> dict[str, Any]:
        """What the algorithm is made with."""
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
    """Values (n, A) of the observations (n, D) that were given."""
    return masked(values, inputs[0])
