"""Who holds which images, on a set that can be looked through: 200 of each digit, in turn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from training.config import UsageError
from training.federated.asynchronous.partitions import Partition, holdings_of, noisy_labels

LABELS = np.arange(2000) % 10


def hold(partition: Partition, participants: int = 100, seed: int = 0) -> list[np.ndarray]:
    return holdings_of(partition, LABELS, participants, np.random.default_rng(seed))


@pytest.mark.parametrize("partition", ["random_groups", "in_sequence", "shuffled_tens", "random_subgroups"])
def test_every_image_has_one_holder_and_all_hold_as_many(partition: Partition) -> None:
    holdings = hold(partition)
    assert {len(own) for own in holdings} == {20}
    assert sorted(np.concatenate(holdings).tolist()) == list(range(2000))


def test_scenario_a_gives_two_groups_of_one_digit_each() -> None:
    for own in hold("random_groups"):
        assert set(Counter(LABELS[own].tolist()).values()) <= {10, 20}


def test_scenario_b_gives_the_first_ten_participants_the_first_digit() -> None:
    holdings = hold("in_sequence")
    assert [set(LABELS[own].tolist()) for own in holdings] == [{n // 10} for n in range(100)]


def test_experiment_2_shuffles_within_blocks_of_twenty_groups() -> None:
    # Groups 0 to 19 are the first 20 images of each digit: the images 0 to 199 in all.
    holdings = hold("shuffled_tens")
    for block in range(10):
        own = np.concatenate(holdings[10 * block : 10 * block + 10])
        assert sorted(own.tolist()) == list(range(200 * block, 200 * block + 200))
    assert not np.array_equal(holdings[0], hold("shuffled_tens", seed=1)[0])


def test_experiment_4_cuts_the_ordered_images_in_twenty() -> None:
    for own in hold("random_subgroups", participants=10):
        assert set(Counter(LABELS[own].tolist()).values()) <= {100, 200}


def test_swapped_labels_of_chapter_6() -> None:
    holdings = hold("in_sequence")
    noisy = noisy_labels("swap", LABELS, holdings)
    # Participants 81 and 91 of the thesis, the first holders of 8 and of 9, have them swapped.
    assert set(noisy[holdings[80]].tolist()) == {9}
    assert set(noisy[holdings[90]].tolist()) == {8}
    assert np.flatnonzero(noisy != LABELS).tolist() == sorted([*holdings[80], *holdings[90]])


def test_rotated_labels_of_experiment_1_are_a_tenth_of_three_digits() -> None:
    holdings = hold("in_sequence")
    noisy = noisy_labels("rotate_first", LABELS, holdings)
    assert [set(noisy[holdings[n]].tolist()) for n in (70, 80, 90)] == [{8}, {9}, {7}]
    changed = Counter(LABELS[noisy != LABELS].tolist())
    assert changed == {7: 20, 8: 20, 9: 20}


def test_rotated_labels_of_experiment_2_are_15_percent_at_early_participants() -> None:
    holdings = hold("shuffled_tens")
    noisy = noisy_labels("rotate_early", LABELS, holdings)
    changed = noisy != LABELS
    assert Counter(LABELS[changed].tolist()) == {7: 30, 8: 30, 9: 30}
    assert {n for n, own in enumerate(holdings) if changed[own].any()} <= set(range(20))


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a multiple of 5"):
        hold("in_sequence", participants=7)
    with pytest.raises(UsageError, match="too few for 2000 groups"):
        holdings_of("random_groups", LABELS[:1000], 1000, np.random.default_rng(0))
    with pytest.raises(UsageError, match="no participant holds mostly the digit 8"):
        noisy_labels("swap", LABELS, [np.arange(2000)])
