"""An agent that judges each pair of job and cluster by the pair's columns alone."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spotweave.agents.networks import FeatureScaler, NetworkInput, ValueNetwork
from spotweave.agents.registry import Agent, Shape, Size, ValueSettings
from spotweave.envs.simulation.snapshot import N_PAIR_FIELDS


@dataclass
class PairOnlySettings(ValueSettings):
    """`agent.hidden_size` on the command line, besides what all value networks have."""

    hidden_size: Size = 32


class PairOnly(ValueNetwork):
    """One small network for all pairs, and a constant for "none for now"."""

    def __init__(self, settings: PairOnlySettings, shape: Shape) -> None:
        super().__init__(shape.scales)
        self.scaler = FeatureScaler(N_PAIR_FIELDS, with_log=True)
        self.pair = nn.Sequential(
            nn.Linear(self.scaler.n_outputs, settings.hidden_size),
            nn.ReLU(),
            nn.Linear(settings.hidden_size, self.n_outputs),
        )
        self.none = nn.Parameter(torch.zeros(self.n_outputs))

    def fit_scalers(self, batch: NetworkInput) -> None:
        """See ValueNetwork."""
        self.scaler.fit(batch.pairs)

    def forward(self, batch: NetworkInput) -> Tensor:
        """See ValueNetwork."""
        pairs = self.pair(self.scaler(batch.pairs))  # (B, J, C, K)
        none = self.none.expand(*pairs.shape[:2], 1, -1)
        return torch.cat([pairs, none], dim=2)


AGENT = Agent(
    title="each pair by its own columns",
    source="an example",
    settings=PairOnlySettings,
    make=PairOnly,
    any_clusters=True,
)
