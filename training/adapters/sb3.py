"""Stable-Baselines3 DQN and sb3-contrib MaskablePPO as trainers."""

from __future__ import annotations

from typing import Any, cast

from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from agents.flat_policy import Layers
from training.adapters.flat_env import FlatWorldEnv
from training.adapters.trainer import LibraryTask, LibraryTrainer

_NEVER = 10**9
"""A logging interval that does not come: losses are read here, not printed by the library."""
_LOSSES = {"train/loss": "value", "train/policy_gradient_loss": "policy", "train/value_loss": "critic"}


def _linears(network: nn.Module) -> Layers:
    return [(m.weight.detach(), m.bias.detach()) for m in network.modules() if isinstance(m, nn.Linear)]


class _SB3Trainer(LibraryTrainer):
    """What both algorithms share: the environments, and learning in slices of a rollout.

    Attributes:
        model: the library's algorithm.
    """

    model: DQN | MaskablePPO

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
        """Weights and optimiser (on the CPU, where the checkpoint is read) and the time steps."""
        return {"parameters": self.model.get_parameters(), "num_timesteps": self.model.num_timesteps}

    def load_library_state(self, state: dict[str, Any]) -> None:
        """Restore what `library_state` gave."""
        self.model.set_parameters(state["parameters"], device=self.task.device)
        self.model.num_timesteps = int(state["num_timesteps"])


class DQNTrainer(_SB3Trainer):
    """DQN (Mnih et al. 2015) of Stable-Baselines3: one copy, uniform exploration, no masks."""

    model: DQN

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task, 1)
        library, settings = task.agent, task.settings
        self.model = DQN(
            "MlpPolicy",
            self.vectorised,
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
            policy_kwargs={"net_arch": list(library.hidden_sizes), "activation_fn": nn.ReLU},
            device=task.device,
        )
        self.model.exploration_schedule = self._exploration
        self.model.action_space.seed(task.library_seed)

    def _exploration(self, _: float) -> float:
        return self.settings.epsilon_1.at(self.progress)

    @property
    def epsilon_1(self) -> float:
        """Chance of a uniformly drawn action."""
        return self._exploration(0.0)

    def layers(self) -> Layers:
        """The layers of the value network."""
        return _linears(self.model.q_net)

    def load_library_state(self, state: dict[str, Any]) -> None:
        """Restore what `library_state` gave; the replay fills up again before learning goes on."""
        super().load_library_state(state)
        self.model.learning_starts = self.model.num_timesteps + self.task.agent.learning_starts


class MaskablePPOTrainer(_SB3Trainer):
    """PPO with invalid-action masks (Huang and Ontañón 2022) of sb3-contrib, on several copies."""

    model: MaskablePPO

    def __init__(self, task: LibraryTask) -> None:
        library = task.agent
        super().__init__(task, library.environments)
        rollout = library.rollout * library.environments
        sizes = list(library.hidden_sizes)
        self.model = MaskablePPO(
            "MlpPolicy",
            self.vectorised,
            learning_rate=self.learning_rate,
            n_steps=library.rollout,
            batch_size=_divisor(rollout, task.settings.batch_size),
            n_epochs=library.epochs,
            gamma=library.discount,
            policy_kwargs={"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": nn.ReLU},
            device=task.device,
        )

    @property
    def epsilon_1(self) -> float:
        """0: actions are sampled from the policy."""
        return 0.0

    def layers(self) -> Layers:
        """The layers that lead to the logits."""
        policy = self.model.policy
        hidden = cast(nn.Module, policy.mlp_extractor.policy_net)
        return [*_linears(hidden), *_linears(policy.action_net)]


def _divisor(total: int, wanted: int) -> int:
    """The largest divisor of `total` that is at most `wanted`: minibatches without a remainder."""
    return max(size for size in range(1, min(wanted, total) + 1) if total % size == 0)
