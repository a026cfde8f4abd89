"""Registers the environments with Gymnasium (entry point group `gymnasium.envs`)."""

from __future__ import annotations

from gymnasium.envs.registration import register as gym_register
from gymnasium.envs.registration import registry

ENTRY_POINTS = {
    "spotweave/MultiCluster-v0": ("envs.multicluster:MultiClusterEnv", "envs.multicluster:make_vector"),
    "spotweave/Federated-v1": ("envs.federated:FederatedEnv", "envs.federated:make_vector"),
    "spotweave/MultiCloud-v1": ("envs.multicloud:MultiCloudEnv", "envs.multicloud:make_vector"),
}


def register() -> None:
    """Make `gymnasium.make` and `gymnasium.make_vec` know the environments; calling it again does nothing."""
    for name, (single, vector) in ENTRY_POINTS.items():
        if name not in registry:
            gym_register(id=name, entry_point=single, vector_entry_point=vector)
