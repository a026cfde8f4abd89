"""Evolution strategy with mirrored samples and Adam (Salimans et al. 2017), for returns of whole episodes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

BETAS = 0.9, 0.99
AVERAGE_DECAY = 0.97
AVERAGE_AFTER = 20
DIFFERENCE_CLIP = 2.5
"""Bound on a difference of returns in its unit: one odd episode must not steer."""
MEDIAN_TO_DEVIATION = 1.4826
"""Standard deviation of a normal distribution divided by the median of its absolute values."""


class EvolutionStrategy:
    """Climbs the mean return of an episode by trying weights in mirrored pairs.

    `ask` gives weights theta + sigma * e and theta - sigma * e for m random directions e. Both of a pair
    are to be played on the same episode, so the episode's own luck cancels in the difference of their
    returns, which `tell` takes. Nothing has to be known about which decision earned what.

    Args:
        start: (D,) float32 first weights.
        scales: (D,) how finely each weight is varied.
        sigma: size of the variations.
        rng: the run's "exploration" stream.
        unit: what differences of return are measured in: their root mean square, or their median size, which
            a few episodes with very large differences do not change.
    """

    def __init__(
        self,
        start: NDArray[np.float32],
        scales: NDArray[np.float32],
        sigma: float,
        rng: np.random.Generator,
        unit: Literal["rms", "median"] = "rms",
    ) -> None:
        self.rng = rng
        self.unit = unit
        self.sigma = sigma
        self.scales = scales
        self.theta = start.copy()
        self.average = start.copy()
        self.steps = 0
        # Adam's step alone, in units of `scales`: the weights themselves are float32.
        self._step = torch.zeros(len(start), dtype=torch.float64)
        self._adam = torch.optim.Adam([self._step], lr=1.0, betas=BETAS, maximize=True)
        self._directions = np.zeros((0, len(start)), np.float32)

    def ask(self, pairs: int) -> NDArray[np.float32]:
        """(2 * pairs, D) weights to try; rows 2k and 2k + 1 are the two of pair k."""
        self._directions = self.rng.standard_normal((pairs, len(self.theta)), np.float32)
        variations = self.sigma * self.scales * self._directions
        tried = np.empty((2 * pairs, len(self.theta)), np.float32)
        tried[0::2] = self.theta + variations
        tried[1::2] = self.theta - variations
        return tried

    def tell(self, returns: NDArray[np.float64], learning_rate: float) -> float:
        """Learn from the returns (2 * pairs,) of what `ask` gave; higher is better.

        Returns:
            The root mean square of the differences of return within the pairs.

        Raises:
            ValueError: if there are not as many returns as weights were asked for.
        """
        if returns.shape != (2 * len(self._directions),):
            raise ValueError(f"expected {2 * len(self._directions)} returns, got shape {returns.shape}")
        differences = returns[0::2] - returns[1::2]
        steps = self._in_units(differences)
        self.steps += 1
        if steps.any():
            self._step.zero_().grad = torch.from_numpy((steps @ self._directions) / len(steps))
            self._adam.step()
            self.theta = (self.theta + learning_rate * self.scales * self._step.numpy()).astype(np.float32)
        decay = AVERAGE_DECAY if self.steps > AVERAGE_AFTER else 0.0
        self.average = (decay * self.average + (1 - decay) * self.theta).astype(np.float32)
        return _root_mean_square(differences)

    def _in_units(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Differences in their unit, bounded; zeros where they have no size."""
        if self.unit == "rms":
            typical = _root_mean_square(differences)
        else:
            typical = MEDIAN_TO_DEVIATION * float(np.median(abs(differences)))
        if typical == 0.0:
            return np.zeros_like(differences)
        return np.clip(differences / typical, -DIFFERENCE_CLIP, DIFFERENCE_CLIP)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit after a `tell`."""
        return {
            "theta": torch.from_numpy(self.theta.copy()),
            "average": torch.from_numpy(self.average.copy()),
            "adam": self._adam.state_dict(),
            "steps": self.steps,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave.

        Raises:
            RuntimeError: if the number of weights differs.
        """
        if state["theta"].shape != self.theta.shape:
            raise RuntimeError(f"expected {len(self.theta)} weights, got {len(state['theta'])}")
        self.theta = state["theta"].numpy().copy()
        self.average = state["average"].numpy().copy()
        self._adam.load_state_dict(state["adam"])
        self.steps = int(state["steps"])
        self.rng.bit_generator.state = state["rng"]


def _root_mean_square(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values**2)))
