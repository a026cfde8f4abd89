"""One decision of `mtdqn`, compiled: which of a job's choices is taken, and what is kept of it to learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.mtdqn.forward import Sizes, n_columns
from spotweave.envs.simulation.compiled import linked

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
