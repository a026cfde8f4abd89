"""Makes the trainer of a library agent; only here are the libraries imported."""

from __future__ import annotations

from training.adapters.settings import require_library
from training.adapters.trainer import LibraryTask, LibraryTrainer


def make_library_trainer(task: LibraryTask) -> LibraryTrainer:
    """The trainer for `task.agent.kind`.

    Raises:
        MissingExtraError: if its library is not installed.
        WorldError: for settings that cannot train.
        ValueError: if the kind is no library's.
    """
    kind = task.agent.kind
    require_library(kind)
    if kind in ("sb3_dqn", "qr_dqn"):
        from training.adapters import sb3_values

        return sb3_values.DQNTrainer(task) if kind == "sb3_dqn" else sb3_values.QRDQNTrainer(task)
    if kind in ("maskable_ppo", "recurrent_ppo", "decima"):
        from training.adapters import sb3_ppo

        trainers: dict[str, type[LibraryTrainer]] = {
            "maskable_ppo": sb3_ppo.MaskablePPOTrainer,
            "recurrent_ppo": sb3_ppo.RecurrentPPOTrainer,
            "decima": sb3_ppo.DecimaTrainer,
        }
        return trainers[kind](task)
    if kind in ("rllib_dqn", "rllib_ppo"):
        from training.adapters import rllib

        return rllib.RLlibDQNTrainer(task) if kind == "rllib_dqn" else rllib.RLlibPPOTrainer(task)
    raise ValueError(f"agent.kind is {kind!r}: no library trains it")
