"""Partitions of images among clients by label (Liu 2022, chapters 6 and 7), and their label noise."""

from __future__ import annotations

from typing import Literal

import numpy as np

from envs.simulation.series import Ints
from training.config import UsageError
from training.federated.asynchronous.networks import CLASSES

Partition = Literal["random_groups", "in_sequence", "shuffled_tens", "random_subgroups"]
Noise = Literal["none", "swap", "rotate_first", "rotate_early"]

NOISY = (7, 8, 9)
"""Digits whose labels are perturbed in chapter 7."""

NOISY_GROUPS = 3
"""Perturbed groups in Experiment II: the first 3 of the 20 (750 of 5,000 images) of each noisy digit."""


def holdings_of(
    partition: Partition, labels: Ints, participants: int, generator: np.random.Generator
) -> list[Ints]:
    """The numbers of the images of each participant, two groups each.

    Groups are as large as each other; what does not fill one is left out.

    - "random_groups" (Scenario A): groups of one digit, two at random.
    - "in_sequence" (Scenario B, Experiment I): groups of one digit in order, two in order.
    - "shuffled_tens" (Experiment II): the first group of each digit, then the second of each, ..., shuffled
      within blocks of 20; two in order.
    - "random_subgroups" (Experiments IV and V): images in order of digits are cut into groups; two at random.

    Raises:
        UsageError: if participants, or the images, do not suffice for that.
    """
    groups = 2 * participants
    if partition == "random_subgroups":
        ordered = np.argsort(labels, kind="stable")
        size = len(ordered) // groups
        cut = [ordered[k * size : (k + 1) * size] for k in range(groups)]
    else:
        if groups % CLASSES:
            raise UsageError(
                f"participants is {participants}: {partition} needs a multiple of {CLASSES // 2}, "
                f"so that each digit has as many groups"
            )
        size = int(np.bincount(labels, minlength=CLASSES).min()) // (groups // CLASSES)
        cut = _digit_groups(labels, groups // CLASSES, size)
    if size < 1:
        raise UsageError(f"{len(labels)} images are too few for {groups} groups: take fewer participants")
    if partition in ("random_groups", "random_subgroups"):
        cut = [cut[place] for place in generator.permutation(groups)]
    elif partition == "shuffled_tens":
        per_digit = groups // CLASSES
        by_turn = [cut[digit * per_digit + turn] for turn in range(per_digit) for digit in range(CLASSES)]
        blocks = [by_turn[start : start + 20] for start in range(0, groups, 20)]
        cut = [block[place] for block in blocks for place in generator.permutation(len(block))]
    return [np.concatenate(cut[2 * n : 2 * n + 2]) for n in range(participants)]


def noisy_labels(noise: Noise, labels: Ints, holdings: list[Ints]) -> Ints:
    """The labels (n,) as participants have them.

    - "swap" (chapter 6): 8 and 9 change places at the first holder of each.
    - "rotate_first" (Experiment I): 7 becomes 8, 8 becomes 9 and 9 becomes 7 at the first holder of each.
    - "rotate_early" (Experiment II): the same in the first 3 of 20 groups of these digits.
    """
    changed = labels.copy()
    if noise == "swap":
        for digit in (8, 9):
            own = holdings[first_holder(labels, holdings, digit)]
            changed[own] = np.where(labels[own] == 8, 9, np.where(labels[own] == 9, 8, labels[own]))
    elif noise == "rotate_first":
        for digit in NOISY:
            own = holdings[first_holder(labels, holdings, digit)]
            changed[own] = _rotated(labels[own])
    elif noise == "rotate_early":
        per_digit = 2 * len(holdings) // CLASSES
        size = int(np.bincount(labels, minlength=CLASSES).min()) // per_digit
        early = round(NOISY_GROUPS * per_digit / 20)
        for digit in NOISY:
            own = np.flatnonzero(labels == digit)[: early * size]
            changed[own] = _rotated(labels[own])
    return changed


def first_holder(labels: Ints, holdings: list[Ints], digit: int) -> int:
    """The first participant most of whose images are of a digit. Raises UsageError if there is none."""
    for number, own in enumerate(holdings):
        if np.mean(labels[own] == digit) > 0.5:
            return number
    raise UsageError(f"no participant holds mostly the digit {digit}: its labels cannot be perturbed")


def _rotated(labels: Ints) -> Ints:
    after = np.arange(CLASSES)
    after[list(NOISY)] = np.roll(NOISY, -1)
    rotated: Ints = after[labels]
    return rotated


def _digit_groups(labels: Ints, per_digit: int, size: int) -> list[Ints]:
    """Groups of `size` images of one digit, those of 0 first."""
    return [
        np.flatnonzero(labels == digit)[turn * size : (turn + 1) * size]
        for digit in range(CLASSES)
        for turn in range(per_digit)
    ]
