"""The agent `mtdqn` as a policy, and its weights as something that can be saved."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spotweave.agents.mtdqn.decide import (
    CLIP,
    HALF_NEED,
    Acting,
    Exploring,
    Label,
    Sizes,
    empty_label,
    greedy,
    mean_at,
    network_size,
    occupation_at,
)
from spotweave.agents.mtdqn.view import View
from spotweave.agents.networks import SEGMENT_LENGTH, SEGMENT_STRIDE, WeighedPolicy, checked_weights
from spotweave.agents.rules.choice import NO_ACTION
from spotweave.envs.simulation.snapshot import Observation, arrays_of


class Weights:
    """The weights of the network: one vector, empty until it is trained.

    Args:
        size: of the vector.

    Attributes:
        vector: (size,) float32, or (0,) before any training.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.vector = np.zeros(0, np.float32)

    @property
    def trained(self) -> bool:
        """Whether there are weights."""
        return len(self.vector) > 0

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Replace the weights. Raises ValueError for another length, or a weight that is not finite."""
        if vector.shape != (self.size,):
            raise ValueError(f"expected {self.size} weights, got an array of {vector.shape}")
        if not np.isfinite(vector).all():
            raise ValueError("weights must be finite numbers")
        self.vector = np.ascontiguousarray(vector, np.float32)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights as tensors, for a checkpoint."""
        return {"vector": torch.from_numpy(self.vector.copy())}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Restore what `state_dict` gave. Raises RuntimeError if it does not fit, as torch's modules do."""
        try:
            if len(vector := state["vector"].numpy()):
                self.set_vector(vector)
        except (KeyError, ValueError) as error:
            raise RuntimeError(str(error)) from error


class MTDQNPolicy(WeighedPolicy):
    """Puts the next job of the guide's order where its weighed values are largest.

    Until it is trained it acts as its guide.

    Args:
        view: how the tasks of its world are seen.
        weights: what the objective charges, for each of the world's components; they may be changed at any
            time.
        name: shown in tables.
        margin: another choice than the guide's must be better by this share of what the decision is about.
    """

    def __init__(self, view: View, weights: Sequence[float], name: str, margin: float = 0.0) -> None:
        self.view = view
        self.network = Weights(network_size(view.sizes))
        self.name = name
        self.margin = margin
        self._nothing_kept = empty_label(0, view.sizes)
        self._nothing_shown = np.zeros((0, 0, 0), np.float32)
        self._weigh(weights)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Change the weights of the values.

        Raises:
            ValueError: for another number of weights, one that is not finite, or where they are fixed.
        """
        if not self.view.whole_episodes:
            self._weigh(weights)
        elif tuple(weights) != self.value_weights:
            raise ValueError(
                f"policy {self.name} learned the objective itself: leave the weights out, or train again"
            )

    def _weigh(self, weights: Sequence[float]) -> None:
        self.weights = checked_weights(weights, self.view.sizes.heads + 1)
        self.of_heads = self.view.of_heads(self.weights)

    @property
    def value_weights(self) -> tuple[float, ...]:
        """(K,) weights of what `value_table` gives."""
        return (1.0,) if self.view.whole_episodes else self.weights

    def acting(self, follow: bool) -> Acting:
        """How it decides now; `follow`: as its guide does."""
        vector = self.network.vector
        return Acting(self.view.rule, vector, self.view.sizes, self.of_heads, float(self.margin), follow)

    def members(self) -> list[MTDQNPolicy]:
        """A policy for each of its networks, which acts by that one alone."""
        sizes, vector = self.view.sizes, self.network.vector
        view = copy(self.view)
        view.sizes = sizes._replace(networks=1)
        found = [MTDQNPolicy(view, self.weights, self.name, self.margin) for _ in range(sizes.networks)]
        if self.network.trained:
            mutual = network_size(sizes) - network_size(sizes._replace(mutual=0))
            size = network_size(sizes._replace(networks=2)) - network_size(view.sizes)
            first = len(vector) - mutual - sizes.networks * size
            common, owns, rest = np.split(vector, [first, len(vector) - mutual])
            for policy, own in zip(found, np.split(owns, sizes.networks), strict=True):
                policy.network.set_vector(np.concatenate([common, own, rest]))
        return found

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action.
        """
        return self.act_lanes(observations, np.arange(len(observations["jobs"])))

    def act_lanes(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for the rows `lanes` of the observations, which are not copied."""
        rows = np.ascontiguousarray(lanes)
        exploring = greedy(len(rows), observations["jobs"].shape[1])
        return self.explore(observations, rows, exploring, self._nothing_kept, not self.network.trained)

    def explore(
        self,
        observations: Observation,
        rows: NDArray[np.int64],
        exploring: Exploring,
        label: Label,
        follow: bool,
    ) -> NDArray[np.int64]:
        """(n,) flat actions for some rows of the observations (see `agents.mtdqn.decide`).

        Args:
            observations: with a leading axis.
            rows: (n,) which of them.
            exploring: how each explores.
            label: its first n rows are filled, unless it is empty.
            follow: the guide's choice counts as the greedy one.

        Raises:
            ValueError: if an observation has no valid action.
        """
        actions = np.empty(len(rows), np.int64)
        batch = arrays_of(observations)
        self.view.decide_rows(
            batch, rows, self.acting(follow), exploring, label, self._nothing_shown, actions
        )
        if len(actions) and actions.min() == NO_ACTION:
            row = int(rows[np.argmin(actions)])
            raise ValueError(f"policy {self.name}: observation {row} offers no valid action, expected a job")
        return actions

    def value_table(self, observations: Observation) -> NDArray[np.float64]:
        """(n, J, C + 1, K) values of the job that each would decide, of every choice; NaN elsewhere.

        In the order of the weights: own misses, the mutual value (in misses), delay and what else there is.
        Where the weights are fixed, their sum (K = 1).
        """
        batch = arrays_of(observations)
        (n, n_jobs), n_targets = batch.jobs.shape[:2], batch.clusters.shape[1] + 1
        heads = self.view.sizes.heads
        values = np.full((n, n_targets, heads + 1), np.nan, np.float32)
        actions = np.empty(n, np.int64)
        exploring, acting = greedy(n, n_jobs), self.acting(not self.network.trained)
        self.view.decide_rows(batch, np.arange(n), acting, exploring, self._nothing_kept, values, actions)
        (decided,) = np.nonzero(actions != NO_ACTION)
        values = values[decided]
        if self.view.whole_episodes:
            values = (values @ self.of_heads)[..., None]
        else:
            values = values[..., [0, heads, *range(1, heads)]]
        found = np.full((n, n_jobs, n_targets, len(self.value_weights)), np.nan)
        found[decided, actions[decided] // n_targets] = values
        return found


# The network of `mtdqn` in torch, to learn, and as the vector that compiled code reads.


LEAST_SPREAD = 0.05


class Heads(nn.Module):
    """Networks of two hidden layers side by side; at first they output 0 and add nothing to what is known.

    Args:
        networks: how many.
        widths: of the inputs, both hidden layers and the outputs.
    """

    def __init__(self, networks: int, *widths: int) -> None:
        super().__init__()
        layers = list(pairwise(widths))
        self.weights = nn.ParameterList(torch.zeros(networks, *layer) for layer in layers)
        self.biases = nn.ParameterList(torch.zeros(networks, 1, outputs) for _, outputs in layers)
        for weight, bias in list(zip(self.weights, self.biases, strict=True))[:-1]:
            most = weight.shape[1] ** -0.5  # as `nn.Linear` starts
            nn.init.uniform_(weight, -most, most)
            nn.init.uniform_(bias, -most, most)

    def forward(self, inputs: Tensor) -> Tensor:
        """(networks, N, outputs) for (N, inputs)."""
        values = inputs.expand(len(self.biases[0]), -1, -1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight is not self.weights[0]:
                values = values.relu()
            values = torch.baddbmm(bias, values, weight)
        return values

    def parts(self) -> list[Tensor]:
        """Weights (inputs, outputs) and biases of each network, layer by layer."""
        layers = list(zip(self.weights, self.biases, strict=True))
        return [part[k] for k in range(len(self.biases[0])) for layer in layers for part in layer]


class MTDQNNetwork(nn.Module):
    """What a job comes to on a place beyond what is known, and what it does there to all others.

    It is learned in torch and packed into one vector, which compiled code reads.

    An LSTM reads the occupation of the place as RL-LSFC does (Liu 2022, section 5.3.3). The mutual head gives
    the price of what the job needs there: p1 * need + p2 * need / (1/2 + need).

    Args:
        sizes: see `Sizes`.
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        n_known = sizes.scaled * (sizes.places + sizes.state)
        self.register_buffer("mean", torch.zeros(n_known))
        self.register_buffer("factor", torch.ones(n_known))
        seen = sizes.places + sizes.state + sizes.lstm
        self.lstm = nn.LSTM(SEGMENT_LENGTH, sizes.lstm, batch_first=True) if sizes.lstm else None
        own, mutual = sizes.own, sizes.mutual
        self.own = Heads(sizes.networks, seen, own, own, sizes.heads) if own else None
        self.prices = Heads(1, seen + sizes.places, mutual, mutual, 2) if mutual else None

    def fit_scaler(self, columns: Tensor) -> None:
        """Scale by the mean and spread of these columns (N, n_columns), where columns are scaled at all."""
        if self.sizes.scaled:
            known = columns[:, : mean_at(self.sizes)]
            self.mean.copy_(known.mean(0))
            self.factor.copy_(1.0 / known.std(0).clamp(min=LEAST_SPREAD))

    def _scaled(self, columns: Tensor) -> Tensor:
        if not self.sizes.scaled:
            return columns
        width = columns.shape[1]
        return ((columns - self.mean[:width]) * self.factor[:width]).clamp(-CLIP, CLIP)

    def _seen(self, columns: Tensor) -> Tensor:
        known = self._scaled(columns[:, : mean_at(self.sizes)])
        if self.lstm is None:
            return known
        occupation = columns[:, occupation_at(self.sizes) :]
        _, (state, _) = self.lstm(occupation.unfold(1, SEGMENT_LENGTH, SEGMENT_STRIDE))
        return torch.cat([known, state[-1]], 1)

    def own_values(self, columns: Tensor) -> Tensor:
        """(networks, N, heads) outputs of the own heads for columns (N, n_columns); zeros without any."""
        if self.own is None:
            return torch.zeros(1, len(columns), self.sizes.heads, device=columns.device)
        values: Tensor = self.own(self._seen(columns))
        return values

    def mutual_values(self, columns: Tensor, needs: Tensor) -> Tensor:
        """(N,) what the job there does to all others, for columns (N, n_columns) and needs (N,)."""
        if self.prices is None:
            return torch.zeros_like(needs)
        everywhere = self._scaled(columns[:, mean_at(self.sizes) : occupation_at(self.sizes)])
        (prices,) = self.prices(torch.cat([self._seen(columns), everywhere], 1))
        values: Tensor = prices[:, 0] * needs + prices[:, 1] * needs / (HALF_NEED + needs)
        return values

    def _parts(self) -> list[Tensor]:
        """Scaler, LSTM, own heads and mutual head, as `evaluate` reads them; views that share memory."""
        parts = [self.mean, self.factor]
        if self.lstm is not None:
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            of_input, of_state, *biases = (self.lstm.get_parameter(f"{name}_l0") for name in names)
            parts += [of_input.T, of_state.T, *biases]
        for heads in (self.own, self.prices):
            parts += heads.parts() if heads is not None else []
        return parts

    def vector(self) -> NDArray[np.float32]:
        """All weights, in the order in which compiled code reads them."""
        packed: NDArray[np.float32] = torch.cat([p.detach().reshape(-1) for p in self._parts()]).cpu().numpy()
        return packed

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Become the network whose `vector()` this is. Raises ValueError for a vector of another length."""
        parts = self._parts()
        sizes = [part.numel() for part in parts]
        if len(vector) != sum(sizes):
            raise ValueError(f"expected {sum(sizes)} weights, got {len(vector)}")
        pieces = np.split(vector, np.cumsum(sizes)[:-1])
        with torch.no_grad():
            for part, piece in zip(parts, pieces, strict=True):
                part.copy_(torch.from_numpy(piece.copy()).reshape(part.shape))
