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
    if kind == "sb3_dqn":
        from training.adapters.sb3 import DQNTrainer

        return DQNTrainer(task)
    if kind in ("maskable_ppo", "decima"):
        from training.adapters import sb3_ppo

        return sb3_ppo.MaskablePPOTrainer(task) if kind == "maskable_ppo" else sb3_ppo.DecimaTrainer(task)
    if kind == "rllib_dqn":
        from training.adapters.rllib import RLlibDQNTrainer

        return RLlibDQNTrainer(task)
    raise ValueError(f"agent.kind is {kind!r}: no library trains it")
