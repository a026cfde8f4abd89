"""Registers the environments with Gymnasium, whenever `envs` is imported."""

from __future__ import annotations

from gymnasium.envs.registration import register as gym_register
from gymnasium.envs.registration import registry

from envs.environments import ENVIRONMENTS


def register() -> None:
    """Make `gymnasium.make` and `gymnasium.make_vec` know the environments; calling it again does nothing."""
    for environment in ENVIRONMENTS.values():
        if environment.gymnasium is not None and environment.gymnasium[0] not in registry:
            name, single, vector = environment.gymnasium
            gym_register(id=name, entry_point=single, vector_entry_point=vector)
