"""Action masks for networks of libraries, read from the observation that the networks see anyway."""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = -1e8
"""Score of an invalid action: finite, for an entropy shall stay a number."""


def masked(scores: Tensor, features: Tensor, never: float = NEVER) -> Tensor:
    """Scores (..., A) with those of invalid actions replaced; gradients reach the valid ones only.

    Where nothing is valid, as an episode has ended or a sequence is padded, scores stay: nothing comes of
    them, but libraries draw actions there too.

    Args:
        scores: of all actions.
        features: (..., D) flat observations, whose last A numbers are the mask (`Flattening`).
        never: what an invalid action gets.
    """
    valid = features[..., -scores.shape[-1] :] > 0
    return torch.where(valid | ~valid.any(dim=-1, keepdim=True), scores, never)
