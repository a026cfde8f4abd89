"""Small classifiers whose weights are one row, so that many participants' models are computed at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from spotweave.agents.federated.asynchronous.aggregator import Uploads
from spotweave.envs.simulation.series import Ints

CLASSES = 10
NetworkName = Literal["mlp", "cnn"]


class Network(ABC):
    """A classifier of images."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self.shapes = tuple(shapes)  # of weights and biases in turn
        self.size = sum(math.prod(shape) for shape in shapes)  # d, how many numbers they are

    def initial(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Weights (d,): uniform within 1 / sqrt(inputs), as torch draws them; biases 0."""
        parts = []
        for shape in self.shapes:
            bound = 1 / math.sqrt(shape[0]) if len(shape) == 2 else 0.0
            parts.append(generator.uniform(-bound, bound, math.prod(shape)))
        return np.concatenate(parts).astype(np.float32)

    def prepared(self, images: Tensor) -> Tensor:
        """What the network makes of images (n, channels, height, width) before the first weight, (n, ...)."""
        return images

    def gradients(self, weights: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """Gradients of u models' mean cross-entropy, each on its own b prepared images, (u, d)."""
        leaves = [part.requires_grad_() for part in self._parts(weights)]
        scores = self._scores(leaves, inputs)
        # A sum over models: the gradient of each depends on its own loss only.
        loss = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum")
        found = torch.autograd.grad(loss / labels.shape[1], leaves)
        return torch.cat([part.flatten(1) for part in found], dim=1)

    @torch.no_grad()
    def classes(self, weights: Tensor, inputs: Tensor) -> Tensor:
        """Classes that one model (d,) predicts for m prepared images, (m,)."""
        return self._scores(self._parts(weights[None]), inputs[None])[0].argmax(dim=1)

    def _parts(self, weights: Tensor) -> list[Tensor]:
        sizes = [math.prod(shape) for shape in self.shapes]
        pieces = torch.split(weights.detach(), sizes, dim=1)
        return [piece.reshape(len(weights), *shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    @abstractmethod
    def _scores(self, parts: Sequence[Tensor], inputs: Tensor) -> Tensor:
        """(u, b, classes)."""


class Mlp(Network):
    """Pixels averaged two by two, one hidden layer of 32."""

    HIDDEN = 32

    def __init__(self, image: tuple[int, int, int]) -> None:
        inputs = math.prod(image) // 4
        super().__init__([(inputs, self.HIDDEN), (self.HIDDEN,), (self.HIDDEN, CLASSES), (CLASSES,)])

    def prepared(self, images: Tensor) -> Tensor:
        """Averaged pixels (n, inputs)."""
        return functional.avg_pool2d(images, 2).flatten(1)

    def _scores(self, parts: Sequence[Tensor], inputs: Tensor) -> Tensor:
        hidden = _dense(inputs, parts[0], parts[1]).relu()
        return _dense(hidden, parts[2], parts[3])


class Cnn(Network):
    """Two convolutions (8 and 16 channels, 5 x 5, stride 2) and a hidden layer of 200.

    The last layer has 200 x 10 weights, as the thesis's (Figure 6.5). Images, (channels, height, width), have
    28 x 28 or 32 x 32 pixels.
    """

    SIDE, STRIDE, CHANNELS, HIDDEN = 5, 2, (8, 16), 200

    def __init__(self, image: tuple[int, int, int]) -> None:
        channels, height, width = image
        area = self.SIDE**2
        for _ in self.CHANNELS:
            height, width = ((side - self.SIDE) // self.STRIDE + 1 for side in (height, width))
        first, second = self.CHANNELS
        super().__init__(
            [
                (channels * area, first),
                (first,),
                (first * area, second),
                (second,),
                (second * height * width, self.HIDDEN),
                (self.HIDDEN,),
                (self.HIDDEN, CLASSES),
                (CLASSES,),
            ]
        )

    def _scores(self, parts: Sequence[Tensor], inputs: Tensor) -> Tensor:
        hidden = inputs
        for k in (0, 2):
            hidden = self._convolved(hidden, parts[k], parts[k + 1]).relu()
        dense = _dense(hidden.flatten(2), parts[4], parts[5]).relu()
        return _dense(dense, parts[6], parts[7])

    def _convolved(self, images: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
        """Convolutions with other weights for each model, as products of matrices."""
        models, batch, _, height, width = images.shape
        patches = functional.unfold(images.flatten(0, 1), self.SIDE, stride=self.STRIDE)
        _, inputs, places = patches.shape
        rows = patches.reshape(models, batch, inputs, places).transpose(2, 3).flatten(1, 2)
        out = _dense(rows, weights, biases)
        sides = [(side - self.SIDE) // self.STRIDE + 1 for side in (height, width)]
        return out.reshape(models, batch, places, -1).transpose(2, 3).reshape(models, batch, -1, *sides)


NETWORKS: dict[NetworkName, type[Mlp | Cnn]] = {"mlp": Mlp, "cnn": Cnn}


def _dense(inputs: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
    """(u, b, i) times (u, i, o) plus (u, o)."""
    return torch.baddbmm(biases[:, None], inputs, weights)


# What participants compute: K steps of SGD on their own images, for many of them at once (Algorithm 4).


class Job(NamedTuple):
    """One update that was asked for."""

    participant: int  # who computes it
    base: NDArray[np.float32]  # (d,) the model it begins with
    batches: Ints  # (K, b) numbers of the images of each step
    scale: float  # factor of the gradient that it sends, if it sends one


@dataclass(eq=False)
class LocalWork:
    """All participants' data and how they compute."""

    network: Network  # the model
    images: InitVar[NDArray[np.float32]]  # (n, channels, height, width)
    labels: InitVar[Ints]  # (n,), as the participants have them
    holdings: Sequence[Ints]  # of each participant, the numbers of its images
    seeds: InitVar[Sequence[np.random.SeedSequence]]  # one per participant, of its batches
    _: KW_ONLY
    batch_size: int  # b
    steps: int  # K; a gradient is that of one batch, whatever K is
    rate: float  # gamma of the local steps

    def __post_init__(
        self, images: NDArray[np.float32], labels: Ints, seeds: Sequence[np.random.SeedSequence]
    ) -> None:
        self._inputs = self.network.prepared(torch.from_numpy(images))
        self._labels = torch.from_numpy(labels)
        self._generators = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]

    def job(self, participant: int, base: NDArray[np.float32], uploads: Uploads, scale: float) -> Job:
        """The participant's next update: its j-th one has the same batches whatever the method."""
        holding = self.holdings[participant]
        shape = (self.steps, self.batch_size)
        drawn = holding[self._generators[participant].integers(len(holding), size=shape)]
        return Job(participant, base, drawn[:1] if uploads == "gradient" else drawn, scale)

    def compute(self, jobs: Sequence[Job], uploads: Uploads) -> NDArray[np.float32]:
        """The updates (u, d) of u jobs: differences, gradients or models."""
        weights = torch.from_numpy(np.stack([job.base for job in jobs]))
        batches = torch.from_numpy(np.stack([job.batches for job in jobs]))
        bases = weights.clone()
        for k in range(batches.shape[1]):
            chosen = batches[:, k]
            gradients = self.network.gradients(weights, self._inputs[chosen], self._labels[chosen])
            if uploads == "gradient":
                return (gradients * torch.tensor([[job.scale] for job in jobs])).numpy()
            weights.sub_(gradients, alpha=self.rate)
        return (weights if uploads == "model" else weights.sub_(bases)).numpy()
