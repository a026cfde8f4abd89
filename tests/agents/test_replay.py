"""The two replays: rings that forget the oldest, draw uniformly, and go on exactly where they were saved."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from agents.learning.decision_replay import DecisionReplay
from envs.simulation.snapshot import HISTORY_STEPS, N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS
from tests.agents.inputs import on_disk

C, K, CAPACITY, CHOICES = 2, 2, 5, 4
CPU = torch.device("cpu")


def decision_replay(seed: int = 0) -> DecisionReplay:
    return DecisionReplay(CAPACITY, C, K, np.random.default_rng(seed))


def add_numbered(replay: DecisionReplay, numbers: list[int]) -> NDArray[np.int64]:
    """Decisions whose every column holds their number."""
    value = np.array(numbers, np.float32)
    return replay.add(
        clusters=np.broadcast_to(value[:, None, None], (len(numbers), C, N_CLUSTER_FIELDS)),
        occupation=np.broadcast_to(value[:, None, None] / 64, (len(numbers), C, HISTORY_STEPS)),
        jobs=np.broadcast_to(value[:, None], (len(numbers), N_JOB_FIELDS)),
        pairs=np.broadcast_to(value[:, None, None], (len(numbers), C, N_PAIR_FIELDS)),
        targets=np.array(numbers) % (C + 1),
    )


def worth(numbers: list[int]) -> NDArray[np.float64]:
    return np.array([[number, -number] for number in numbers], np.float64)


def held(replay: DecisionReplay) -> dict[float, list[float]]:
    """Number of each decision held -> its values; every column must agree on the number."""
    inputs, targets, values = replay.rows(np.arange(replay.size), CPU)
    numbers = inputs.jobs[:, 0, 0]
    assert torch.equal(inputs.clusters[:, 0, 0], numbers)
    assert torch.equal(inputs.pairs[:, 0, 1, -1], numbers)
    assert torch.equal(inputs.occupation[:, 1, -1] * 64, numbers)
    assert torch.equal(targets.double(), numbers.double() % (C + 1))
    return dict(zip(numbers.tolist(), values.tolist(), strict=True))


class TestDecisionReplay:
    def test_shapes_of_a_batch(self) -> None:
        replay = decision_replay()
        replay.fill(add_numbered(replay, [1, 2, 3]), worth([1, 2, 3]))
        inputs, targets, values = replay.sample(7, CPU)
        assert inputs.clusters.shape == (7, C, N_CLUSTER_FIELDS)
        assert inputs.occupation.shape == (7, C, HISTORY_STEPS)
        assert inputs.occupation.dtype == torch.float32
        assert inputs.jobs.shape == (7, 1, N_JOB_FIELDS)
        assert inputs.pairs.shape == (7, 1, C, N_PAIR_FIELDS)
        assert targets.shape == (7,)
        assert values.shape == (7, K)

    def test_the_oldest_are_overwritten(self) -> None:
        replay = decision_replay()
        replay.fill(add_numbered(replay, [1, 2, 3]), worth([1, 2, 3]))
        assert replay.size == 3
        replay.fill(add_numbered(replay, [4, 5, 6, 7]), worth([4, 5, 6, 7]))
        assert replay.size == CAPACITY
        assert held(replay) == {float(n): [float(n), float(-n)] for n in (3, 4, 5, 6, 7)}

    def test_more_than_fits_at_once_keeps_the_latest(self) -> None:
        replay = decision_replay()
        replay.fill(add_numbered(replay, list(range(12))), worth(list(range(12))))
        assert held(replay) == {float(n): [float(n), float(-n)] for n in range(7, 12)}

    def test_values_arrive_late_and_skip_what_was_overwritten(self) -> None:
        replay = decision_replay()
        early = add_numbered(replay, [1, 2, 3, 4])
        late = add_numbered(replay, [5, 6, 7])  # overwrites 1 and 2
        replay.fill(early, worth([1, 2, 3, 4]))
        replay.fill(late, worth([5, 6, 7]))
        assert held(replay) == {float(n): [float(n), float(-n)] for n in (3, 4, 5, 6, 7)}

    def test_values_may_come_in_any_order(self) -> None:
        replay = decision_replay()
        ids = add_numbered(replay, [1, 2, 3])
        replay.fill(ids[[2, 0, 1]], worth([3, 1, 2]))
        assert held(replay) == {1.0: [1.0, -1.0], 2.0: [2.0, -2.0], 3.0: [3.0, -3.0]}

    def test_draws_are_uniform_over_what_is_held(self) -> None:
        replay = decision_replay()
        add_numbered(replay, [1, 2, 3])  # two places are still empty and must never be drawn
        numbers = replay.sample(30_000, CPU)[0].jobs[:, 0, 0].numpy().astype(int)
        counts = np.bincount(numbers, minlength=4)
        assert counts[0] == 0
        # Chi-squared with 2 degrees of freedom; 13.8 is exceeded once in a thousand seeds.
        assert ((counts[1:] - 10_000) ** 2 / 10_000).sum() < 13.8

    @pytest.mark.parametrize("added", [[1, 2, 3], list(range(1, 9))])
    def test_saved_and_loaded_it_goes_on_exactly(self, added: list[int]) -> None:
        first = decision_replay(seed=4)
        first.fill(add_numbered(first, added), worth(added))
        first.sample(3, CPU)
        second = decision_replay(seed=99)
        second.load_state_dict(on_disk(first.state_dict()))
        assert held(first) == held(second)
        for replay in (first, second):
            replay.fill(add_numbered(replay, [20, 21]), worth([20, 21]))
        assert held(first) == held(second)
        assert torch.equal(first.sample(50, CPU)[2], second.sample(50, CPU)[2])
