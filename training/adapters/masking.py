"""Action masks for networks of libraries, read from the observation that the networks see anyway."""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = -1e8
"""Score of an invalid action: finite, for a product with zero and an entropy shall stay numbers."""


def masked(scores: Tensor, features: Tensor, never: float = NEVER) -> Tensor:
    """Scores (..., A) with those of invalid actions replaced; gradients reach the valid ones only.

    Args:
        scores: of all actions.
        features: (..., D) flat observations, whose last A numbers are the mask (`Flattening`).
        never: what an invalid action gets.
    """
    return torch.where(features[..., -scores.shape[-1] :] > 0, scores, never)
