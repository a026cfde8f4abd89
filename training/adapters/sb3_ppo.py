"""PPO of sb3-contrib as trainers: with masks, and with a network over sets after Decima."""

from __future__ import annotations

from typing import Any

from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from agents.flat_policy import as_linears
from agents.library_policy import SetNetwork
from training.adapters.sb3 import SB3Trainer, linears
from training.adapters.trainer import LibraryTask


class _PPOTrainer(SB3Trainer):
    """Actions sampled from the policy, on several copies of the world."""

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

    def layers(self) -> dict[str, Any]:
        """The layers of both networks, of the policy and of the critic."""
        sizes = list(self.task.agent.hidden_sizes)
        return {"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": nn.ReLU}

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

    model: MaskablePPO

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task)
        self.model = MaskablePPO(
            "MlpPolicy", self.vectorised, policy_kwargs=self.layers(), **self.arguments()
        )


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

    model: MaskablePPO

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
