"""The network of `mtdqn`, compiled: the values of one job on every place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.mtdqn.columns import N_JOB_COLUMNS
from agents.networks.rl_lsfc import SEGMENT_LENGTH
from agents.outcomes.forward import recall, rectify
from agents.rules.compiled import compiled
from envs.simulation.snapshot import HISTORY_STEPS

HEADS = 3
"""Values of a choice: its own job's misses and delay, and what it does to all other jobs."""
N_OWN = 2
OWN_MISSES, DELAY, MUTUAL = 0, 1, 2
HALF_NEED = 0.5
"""Need at which the second part of the mutual value reaches half of its most."""


class Sizes(NamedTuple):
    """Of a network.

    Attributes:
        places: columns that describe a job on a place.
        lstm: units of the LSTM over the place's occupation; 0: none.
        own: units of both hidden layers of the own heads.
        mutual: units of both hidden layers of the mutual head; 0: no mutual head.
    """

    places: int
    lstm: int
    own: int
    mutual: int


@compiled
def n_columns(sizes: Sizes) -> int:
    """Columns of a pair as stored: place, mean over the places, job, occupation of the place."""
    return 2 * sizes.places + N_JOB_COLUMNS + HISTORY_STEPS


@compiled
def network_size(sizes: Sizes) -> int:
    """Weights of a network, in the order of `MTDQNNetwork.parts`."""
    places, lstm, own, mutual = sizes
    seen = places + N_JOB_COLUMNS + lstm
    total = 4 * lstm * (SEGMENT_LENGTH + lstm + 2)
    total += (seen + 1) * own + (own + 1) * own + (own + 1) * N_OWN
    if mutual > 0:
        total += (seen + places + 1) * mutual + (mutual + 1) * mutual + (mutual + 1) * 2
    return total


@njit(cache=True, error_model="numpy", fastmath=True)
def _layer(
    units: NDArray[np.float32], weights: NDArray[np.float32], width: int, rectified: bool
) -> NDArray[np.float32]:
    n_inputs = units.shape[1]
    outputs: NDArray[np.float32] = np.dot(units, weights[: n_inputs * width].reshape(n_inputs, width))
    bias = weights[n_inputs * width : (n_inputs + 1) * width]
    if rectified:
        rectify(outputs, bias)
    else:
        outputs += bias
    return outputs


@njit(cache=True, error_model="numpy", fastmath=True)
def evaluate(
    vector: NDArray[np.float32],
    sizes: Sizes,
    columns: NDArray[np.float32],
    needs: NDArray[np.float32],
    outputs: NDArray[np.float32],
) -> None:
    """Fill outputs (n, HEADS) for columns (n, n_columns) and needs (n,)."""
    places, lstm, own, mutual = sizes
    n = columns.shape[0]
    seen = places + N_JOB_COLUMNS + lstm
    inputs = np.empty((n, seen + places), np.float32)
    inputs[:, :places] = columns[:, :places]
    inputs[:, places : places + N_JOB_COLUMNS] = columns[:, 2 * places : 2 * places + N_JOB_COLUMNS]
    weights = vector
    if lstm > 0:
        n_lstm = 4 * lstm * (SEGMENT_LENGTH + lstm + 2)
        occupation = columns[:, 2 * places + N_JOB_COLUMNS :]
        inputs[:, places + N_JOB_COLUMNS : seen] = recall(weights[:n_lstm], lstm, occupation)
        weights = weights[n_lstm:]
    inputs[:, seen:] = columns[:, places : 2 * places]
    units = _layer(np.ascontiguousarray(inputs[:, :seen]), weights, own, True)
    weights = weights[(seen + 1) * own :]
    units = _layer(units, weights, own, True)
    weights = weights[(own + 1) * own :]
    outputs[:, :N_OWN] = _layer(units, weights, N_OWN, False)
    outputs[:, MUTUAL] = 0.0
    if mutual > 0:
        weights = weights[(own + 1) * N_OWN :]
        units = _layer(inputs, weights, mutual, True)
        weights = weights[(seen + places + 1) * mutual :]
        units = _layer(units, weights, mutual, True)
        weights = weights[(mutual + 1) * mutual :]
        prices = _layer(units, weights, 2, False)
        for row in range(n):
            need = needs[row]
            outputs[row, MUTUAL] = prices[row, 0] * need + prices[row, 1] * need / (HALF_NEED + need)
