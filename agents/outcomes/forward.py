"""The networks of the agent `outcomes`, compiled: what they say of the choices of one decision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.networks.rl_lsfc import SEGMENT_LENGTH, SEGMENT_STRIDE
from agents.outcomes.features import N_FEATURES
from agents.rules.compiled import compiled
from envs.simulation.snapshot import HISTORY_STEPS

HEADS = 4
"""Outputs of a network: money, delay and owned hours beyond what the rule expects, in units of the decision's
scale; and the logit of the share of deadlines that will be missed."""


class Sizes(NamedTuple):
    """Of a network.

    Attributes:
        hidden: units of both hidden layers.
        lstm: units of the LSTM over the occupation of the choice's place; 0: none.
    """

    hidden: int
    lstm: int


@compiled
def n_inputs(sizes: Sizes) -> int:
    """Columns of what a network is given: features of the choice, then what its LSTM reads."""
    return N_FEATURES + (HISTORY_STEPS if sizes.lstm > 0 else 0)


@compiled
def network_size(sizes: Sizes) -> int:
    """Weights of a network: mean and factor of each feature, LSTM, two hidden layers, the heads."""
    hidden, lstm = sizes
    return (
        2 * N_FEATURES
        + 4 * lstm * (SEGMENT_LENGTH + lstm + 2)
        + (N_FEATURES + lstm + 1) * hidden
        + (hidden + 1) * hidden
        + (hidden + 1) * HEADS
    )


@njit(cache=True, error_model="numpy", fastmath=True)
def evaluate(
    vector: NDArray[np.float32], sizes: Sizes, features: NDArray[np.float32], outputs: NDArray[np.float32]
) -> None:
    """Fill outputs (n, HEADS) with what one network says of features (n, n_inputs)."""
    hidden, lstm = sizes
    known = np.empty((features.shape[0], N_FEATURES + lstm), np.float32)
    for row in range(features.shape[0]):
        for k in range(N_FEATURES):
            x = (features[row, k] - vector[k]) * vector[N_FEATURES + k]
            known[row, k] = min(np.float32(5), max(np.float32(-5), x))
    weights = vector[2 * N_FEATURES :]
    if lstm > 0:
        n_lstm = 4 * lstm * (SEGMENT_LENGTH + lstm + 2)
        known[:, N_FEATURES:] = recall(weights[:n_lstm], lstm, features[:, N_FEATURES:])
        weights = weights[n_lstm:]
    n_first, n_second = (N_FEATURES + lstm) * hidden, hidden * hidden
    first = np.dot(known, weights[:n_first].reshape(N_FEATURES + lstm, hidden))
    weights = weights[n_first:]
    rectify(first, weights[:hidden])
    weights = weights[hidden:]
    second = np.dot(first, weights[:n_second].reshape(hidden, hidden))
    weights = weights[n_second:]
    rectify(second, weights[:hidden])
    weights = weights[hidden:]
    outputs[:] = np.dot(second, weights[:-HEADS].reshape(hidden, HEADS)) + weights[-HEADS:]


@njit(cache=True, error_model="numpy", fastmath=True)
def recall(weights: NDArray[np.float32], units: int, occupation: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, units) last state of an LSTM that reads occupation (n, HISTORY_STEPS) segment by segment.

    Weights in order: of the inputs (SEGMENT_LENGTH, 4 units), of the state (units, 4 units), and two biases;
    the four gates in torch's order (input, forget, cell, output).
    """
    n, gates = occupation.shape[0], 4 * units
    of_input = weights[: SEGMENT_LENGTH * gates].reshape(SEGMENT_LENGTH, gates)
    weights = weights[SEGMENT_LENGTH * gates :]
    of_state = weights[: units * gates].reshape(units, gates)
    weights = weights[units * gates :]
    bias = weights[:gates] + weights[gates:]
    state, cell = np.zeros((n, units), np.float32), np.zeros((n, units), np.float32)
    for start in range(0, HISTORY_STEPS - SEGMENT_LENGTH + 1, SEGMENT_STRIDE):
        segment = np.ascontiguousarray(occupation[:, start : start + SEGMENT_LENGTH])
        total = np.dot(segment, of_input) + np.dot(state, of_state) + bias
        for row in range(n):
            for u in range(units):
                kept = cell[row, u] / (np.float32(1) + np.exp(-total[row, units + u]))
                new = np.tanh(total[row, 2 * units + u]) / (np.float32(1) + np.exp(-total[row, u]))
                cell[row, u] = kept + new
                state[row, u] = np.tanh(cell[row, u]) / (np.float32(1) + np.exp(-total[row, 3 * units + u]))
    return state


@njit(cache=True, error_model="numpy", fastmath=True)
def rectify(units: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
    """Add a bias (h,) to each row of units (n, h), and let nothing be negative."""
    for row in range(units.shape[0]):
        for i in range(units.shape[1]):
            units[row, i] = max(np.float32(0), units[row, i] + bias[i])
