"""What the trainers of Stable-Baselines3 and sb3-contrib share; a resumed run goes on bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from agents.flat_policy import Layers
from training.adapters.flat_env import FlatWorldEnv
from training.adapters.trainer import LibraryTask, LibraryTrainer

_NEVER = 10**9
"""A logging interval that does not come: losses are read here, not printed by the library."""
_LOSSES = {"train/loss": "value", "train/policy_gradient_loss": "policy", "train/value_loss": "critic"}
_COUNTERS = ("num_timesteps", "_n_updates", "_episode_num")


def linears(network: nn.Module) -> Layers:
    """The linear layers of a network, first to last."""
    return [(m.weight.detach(), m.bias.detach()) for m in network.modules() if isinstance(m, nn.Linear)]


class SB3Trainer(LibraryTrainer):
    """The environments, learning in slices of a rollout, and the whole state of an algorithm.

    On the CPU 2N rounds give bit for bit what N rounds, a stop and N rounds give.

    Attributes:
        model: the library's algorithm.
    """

    model: BaseAlgorithm

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
