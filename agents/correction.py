"""The network that corrects a rule: one hidden layer over each choice, evaluated for many vectors at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def correction(hidden: int, vectors: Floats, task: Floats, choice: Floats) -> Floats:
    """(n, C + 1) outputs for n decisions.

    The weights lie as `agents.vector_policy.Layout` says, with one output and direct weights of the columns
    of a choice, then those of the task for "none", the last choice.

    Args:
        hidden: hidden units.
        vectors: (n, size) the weights that decide each row.
        task: (n, T) columns of each task.
        choice: (n, C + 1, K) of each of its choices.
    """
    n, n_task = task.shape
    n_choice = choice.shape[2]
    edge = n_task * hidden
    end = edge + n_choice * hidden
    task_weights = vectors[:, :edge].reshape(n, n_task, hidden)
    choice_weights = vectors[:, edge:end].reshape(n, n_choice, hidden)
    bias, out = vectors[:, end : end + hidden], vectors[:, end + hidden : end + 2 * hidden]
    direct = vectors[:, end + 2 * hidden : end + 2 * hidden + n_choice]
    waiting = vectors[:, end + 2 * hidden + n_choice :]
    base = np.matmul(task[:, None], task_weights)[:, 0] + bias
    units = np.maximum(0.0, base[:, None] + np.matmul(choice, choice_weights))
    score = np.matmul(units, out[..., None])[..., 0] + np.matmul(choice, direct[..., None])[..., 0]
    score[:, -1] += (task * waiting).sum(1)
    result: Floats = score.astype(np.float32)
    return result
