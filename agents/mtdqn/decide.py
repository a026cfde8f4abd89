"""One decision of `mtdqn`, compiled: which of a job's choices is taken, and what is kept of it to learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.networks import SEGMENT_LENGTH, SEGMENT_STRIDE
from spotweave.envs.simulation.compiled import entry, linked
from spotweave.envs.simulation.snapshot import HISTORY_STEPS

GREEDY, GUIDED, RANDOM = 0, 1, 2
"""What the alternative to the largest value is (Liu 2022, eq. 4.3): none, the guide's choice, or drawn."""
N_FACTS = 3  # numbers of a decision that a view needs to tell what the network's outputs mean


class Acting(NamedTuple):
    """How decisions are taken."""

    rule: NDArray[np.float64]  # parameters of the guide
    vector: NDArray[np.float32]  # weights of the network; of length 0, values are what is known
    sizes: Sizes  # of the network
    weights: NDArray[np.float32]  # (heads + 1,) of the values
    # another choice than the guide's must be better by this share of what the decision is about
    margin: float
    follow: bool  # the guide's choice counts as the greedy one


class Exploring(NamedTuple):
    """How n decisions explore."""

    # (n,) what is the alternative to the greedy choice: GREEDY (none), GUIDED or RANDOM
    how: NDArray[np.int64]
    draws: NDArray[np.float64]  # (n,) in [0, 1), for RANDOM
    take: NDArray[np.bool_]  # (n,) the alternative
    spent: NDArray[np.bool_]  # (n, J) jobs that do not explore any more
    # (n, places) what RANDOM adds to the worth of a choice for each of its columns, of views that learn from
    # whole episodes; else (n, 0)
    taste: NDArray[np.float32]


class Choices(NamedTuple):
    """Room for the K choices of one decision."""

    columns: NDArray[np.float32]  # (K, n_columns) what the network sees
    known: NDArray[np.float32]  # (K, heads) values known without waiting, or expected by the guide
    needs: NDArray[np.float32]  # (K,)
    targets: NDArray[np.int64]  # (K,) cluster, or C for "none for now"
    open: NDArray[np.bool_]  # (K,) whether it may be taken
    proper: NDArray[np.bool_]  # (K,) whether it may be drawn at random
    values: NDArray[np.float32]  # (K, heads + 1)
    facts: NDArray[np.float32]  # (N_FACTS,) see the view


class Label(NamedTuple):
    """What is kept of n decisions; of two choices each: the alternative (if any) and the greedy one."""

    kept: NDArray[np.bool_]  # (n,) whether there is anything to learn from it
    columns: NDArray[np.float32]  # (n, 2, n_columns)
    known: NDArray[np.float32]  # (n, 2, heads)
    needs: NDArray[np.float32]  # (n, 2)
    facts: NDArray[np.float32]  # (n, N_FACTS)
    # (n,) whether there was an alternative, between which and the greedy choice a coin decided
    tried: NDArray[np.bool_]
    taken: NDArray[np.bool_]  # (n,) whether the alternative was taken


def empty_label(n: int, sizes: Sizes) -> Label:
    """Room for n decisions, of which nothing is kept yet."""
    return Label(
        np.zeros(n, np.bool_),
        np.zeros((n, 2, n_columns(sizes)), np.float32),
        np.zeros((n, 2, sizes.heads), np.float32),
        np.zeros((n, 2), np.float32),
        np.zeros((n, N_FACTS), np.float32),
        np.zeros(n, np.bool_),
        np.zeros(n, np.bool_),
    )


def greedy(n: int, n_jobs: int) -> Exploring:
    """No exploration in n decisions."""
    return Exploring(
        np.full(n, GREEDY),
        np.zeros(n),
        np.zeros(n, np.bool_),
        np.zeros((n, n_jobs), np.bool_),
        np.zeros((n, 0), np.float32),
    )


@linked()
def room_for(n_choices: int, sizes: Sizes) -> Choices:
    """Room for the choices of a decision."""
    return Choices(
        np.empty((n_choices, n_columns(sizes)), np.float32),
        np.empty((n_choices, sizes.heads), np.float32),
        np.empty(n_choices, np.float32),
        np.empty(n_choices, np.int64),
        np.zeros(n_choices, np.bool_),
        np.zeros(n_choices, np.bool_),
        np.zeros((n_choices, sizes.heads + 1), np.float32),
        np.zeros(N_FACTS, np.float32),
    )


@linked()
def _best(choices: Choices, n: int, worth: NDArray[np.float32], but: int) -> int:
    best = -1
    for k in range(n):
        if k != but and choices.open[k] and (best < 0 or worth[k] > worth[best]):
            best = k
    return best


@linked()
def _drawn(choices: Choices, n: int, worth: NDArray[np.float32], near: float, draw: float) -> int:
    """One of the proper choices that are nearly as good as the best, or the second best."""
    best = _best(choices, n, worth, -1)
    second = _best(choices, n, worth, best)
    candidates = np.empty(n, np.int64)
    found = 0
    for k in range(n):
        if choices.open[k] and ((choices.proper[k] and worth[k] >= worth[best] - near) or k == second):
            candidates[found] = k
            found += 1
    return int(candidates[int(draw * found)]) if found > 0 else best


@linked()
def pick(
    choices: Choices,
    n: int,
    guided: int,
    least_gain: float,
    near: float,
    acting: Acting,
    how: int,
    draw: float,
    take: bool,
    label: Label,
    row: int,
) -> int:
    """Which of n choices is taken; -1 if none is open. Row `row` of `label` is filled.

    Args:
        choices: with their values.
        n: how many there are.
        guided: which one the guide takes; -1 if it is not asked.
        least_gain: by how much another one must be better than that.
        near: what is drawn at random is at most this worse than the best.
        acting: weights, and whether the guide decides.
        how: see `Exploring`.
        draw: likewise.
        take: likewise.
        label: where the decision is kept.
        row: of the label; negative: nothing is kept.
    """
    weights = acting.weights
    worth = choices.values[:n, 0] * weights[0]
    for head in range(1, weights.shape[0]):
        worth += choices.values[:n, head] * weights[head]
    best = guided if acting.follow else _best(choices, n, worth, -1)
    if best < 0:
        return -1
    if guided >= 0 and least_gain > 0.0 and not worth[best] > worth[guided] + least_gain:
        best = guided
    other = best
    if how == GUIDED and guided >= 0:
        other = guided
    elif how == RANDOM:
        other = _drawn(choices, n, worth, near, draw)
    if row >= 0:
        label.kept[row] = True
        label.tried[row] = other != best
        label.taken[row] = other != best and take
        label.facts[row] = choices.facts
        for side in range(2):
            k = other if side == 0 else best
            label.columns[row, side] = choices.columns[k]
            label.known[row, side] = choices.known[k]
            label.needs[row, side] = choices.needs[k]
    return int(other if take else best)


# The network of `mtdqn`, compiled: the values of one job on every place.


HALF_NEED = 0.5  # need at which the second part of the mutual value reaches half of its most
CLIP = 5.0  # bound of columns that are scaled


class Sizes(NamedTuple):
    """Sizes of a network."""

    places: int  # columns that describe a job on a place
    state: int  # columns that are the same for all places
    heads: int  # values of the own job
    lstm: int  # units of the LSTM over the place's occupation; 0: none
    own: int  # units of both hidden layers of the own heads; 0: own values are what is known
    networks: int  # sets of own heads; the mean of their values counts
    mutual: int  # units of both hidden layers of the mutual head; 0: no mutual head
    scaled: int  # 1 if columns are scaled by mean and spread first, else 0


@entry
def mean_at(sizes: Sizes) -> int:
    """The first column of the mean over the places, which only the mutual head reads."""
    return sizes.places + sizes.state


@entry
def occupation_at(sizes: Sizes) -> int:
    """The first column of the occupation, which only the LSTM reads."""
    return mean_at(sizes) + (sizes.places if sizes.mutual > 0 else 0)


@entry
def n_columns(sizes: Sizes) -> int:
    """Columns of a pair: place, state, and as far as they are read mean over the places and occupation."""
    return occupation_at(sizes) + (HISTORY_STEPS if sizes.lstm > 0 else 0)


@entry
def network_size(sizes: Sizes) -> int:
    """Weights of a network, in the order of `MTDQNNetwork.parts`."""
    places, state, heads, lstm, own, networks, mutual, scaled = sizes
    seen = places + state + lstm
    total = 2 * scaled * (places + state) + 4 * lstm * (SEGMENT_LENGTH + lstm + 2)
    if own > 0:
        total += networks * ((seen + 1) * own + (own + 1) * own + (own + 1) * heads)
    if mutual > 0:
        total += (seen + places + 1) * mutual + (mutual + 1) * mutual + (mutual + 1) * 2
    return total


@linked(fastmath=True)
def _layer(
    units: NDArray[np.float32], weights: NDArray[np.float32], width: int, rectified: bool
) -> NDArray[np.float32]:
    n_inputs = units.shape[1]
    outputs: NDArray[np.float32] = np.dot(units, weights[: n_inputs * width].reshape(n_inputs, width))
    bias = weights[n_inputs * width : (n_inputs + 1) * width]
    if rectified:
        for row in range(outputs.shape[0]):
            for i in range(width):
                outputs[row, i] = max(np.float32(0), outputs[row, i] + bias[i])
    else:
        outputs += bias
    return outputs


@linked(fastmath=True)
def _scale(
    inputs: NDArray[np.float32], first: int, mean: NDArray[np.float32], factor: NDArray[np.float32]
) -> None:
    """Scale the columns from `first` on, as many as there are means."""
    for row in range(inputs.shape[0]):
        for k in range(mean.shape[0]):
            x = (inputs[row, first + k] - mean[k]) * factor[k]
            inputs[row, first + k] = min(np.float32(CLIP), max(np.float32(-CLIP), x))


@linked(fastmath=True)
def _recall(weights: NDArray[np.float32], units: int, occupation: NDArray[np.float32]) -> NDArray[np.float32]:
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


@linked(fastmath=True)
def evaluate(
    vector: NDArray[np.float32],
    sizes: Sizes,
    columns: NDArray[np.float32],
    needs: NDArray[np.float32],
    outputs: NDArray[np.float32],
) -> None:
    """Fill outputs (n, heads + 1) for columns (n, n_columns) and needs (n,); the last is the mutual value."""
    places, n_state, heads, lstm, own, networks, mutual, scaled = sizes
    n = columns.shape[0]
    known = places + n_state
    seen = known + lstm
    inputs = np.empty((n, seen + (places if mutual > 0 else 0)), np.float32)
    inputs[:, :known] = columns[:, :known]
    if mutual > 0:
        inputs[:, seen:] = columns[:, known : known + places]
    weights = vector
    if scaled > 0:
        mean, factor = weights[:known], weights[known : 2 * known]
        weights = weights[2 * known :]
        _scale(inputs, 0, mean, factor)
        if mutual > 0:
            _scale(inputs, seen, mean[:places], factor[:places])
    if lstm > 0:
        n_lstm = 4 * lstm * (SEGMENT_LENGTH + lstm + 2)
        inputs[:, known:seen] = _recall(weights[:n_lstm], lstm, columns[:, occupation_at(sizes) :])
        weights = weights[n_lstm:]
    outputs[:] = 0.0
    if own > 0:
        seen_by_own = np.ascontiguousarray(inputs[:, :seen])
        for _ in range(networks):
            units = _layer(seen_by_own, weights, own, True)
            weights = weights[(seen + 1) * own :]
            units = _layer(units, weights, own, True)
            weights = weights[(own + 1) * own :]
            outputs[:, :heads] += _layer(units, weights, heads, False)
            weights = weights[(own + 1) * heads :]
        outputs[:, :heads] /= np.float32(networks)
    if mutual > 0:
        units = _layer(inputs, weights, mutual, True)
        weights = weights[(seen + places + 1) * mutual :]
        units = _layer(units, weights, mutual, True)
        weights = weights[(mutual + 1) * mutual :]
        prices = _layer(units, weights, 2, False)
        for row in range(n):
            need = needs[row]
            outputs[row, heads] = prices[row, 0] * need + prices[row, 1] * need / (HALF_NEED + need)
