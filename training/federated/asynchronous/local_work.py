"""What participants compute: K steps of SGD on their own images, for many of them at once (Algorithm 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from agents.federated.asynchronous.aggregator import Uploads
from envs.simulation.series import Ints
from training.federated.asynchronous.networks import Network


class Job(NamedTuple):
    """One update that was asked for.

    Attributes:
        participant: who computes it.
        base: (d,) the model it begins with.
        batches: (K, b) numbers of the images of each step.
        scale: factor of the gradient that it sends, if it sends one.
    """

    participant: int
    base: NDArray[np.float32]
    batches: Ints
    scale: float


class LocalWork:
    """All participants' data and how they compute.

    Args:
        network: the model.
        images: (n, channels, height, width).
        labels: (n,), as the participants have them.
        holdings: of each participant, the numbers of its images.
        batch_size: b.
        steps: K; a gradient is that of one batch, whatever K is.
        rate: gamma of the local steps.
        seeds: one sequence per participant, of its batches.
    """

    def __init__(
        self,
        network: Network,
        images: NDArray[np.float32],
        labels: Ints,
        holdings: Sequence[Ints],
        *,
        batch_size: int,
        steps: int,
        rate: float,
        seeds: Sequence[np.random.SeedSequence],
    ) -> None:
        self._network = network
        self._inputs = network.prepared(torch.from_numpy(images))
        self._labels = torch.from_numpy(labels)
        self._holdings = holdings
        self._batch_size = batch_size
        self._steps = steps
        self._rate = rate
        self._generators = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]

    def job(self, participant: int, base: NDArray[np.float32], uploads: Uploads, scale: float) -> Job:
        """The participant's next update: its j-th one has the same batches whatever the method."""
        holding = self._holdings[participant]
        shape = (self._steps, self._batch_size)
        drawn = holding[self._generators[participant].integers(len(holding), size=shape)]
        return Job(participant, base, drawn[:1] if uploads == "gradient" else drawn, scale)

    def compute(self, jobs: Sequence[Job], uploads: Uploads) -> NDArray[np.float32]:
        """The updates (u, d) of u jobs: differences, gradients or models."""
        weights = torch.from_numpy(np.stack([job.base for job in jobs]))
        batches = torch.from_numpy(np.stack([job.batches for job in jobs]))
        bases = weights.clone()
        for k in range(batches.shape[1]):
            chosen = batches[:, k]
            gradients = self._network.gradients(weights, self._inputs[chosen], self._labels[chosen])
            if uploads == "gradient":
                return (gradients * torch.tensor([[job.scale] for job in jobs])).numpy()
            weights.sub_(gradients, alpha=self._rate)
        return (weights if uploads == "model" else weights.sub_(bases)).numpy()
