"""Exact resume: 2N rounds equal N rounds, a checkpoint on disk, fresh objects and N rounds, bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.tiny_trainers import slice_trainer, toy_monte_carlo
from training.checkpoint import load_state, save_state
from training.trainers.trainer import RoundReport, Trainer

ROUNDS = 2


def assert_same(one: Any, other: Any, where: str = "state") -> None:
    """Equal to the last bit, whatever the nesting."""
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True), where
    elif isinstance(one, np.ndarray):
        assert np.array_equal(one, other), where
    else:
        assert one == other, where


def resumed(make: Any, path: Path) -> tuple[Trainer, list[RoundReport]]:
    """N rounds, a save, a fresh trainer of another seed's weights, a load, N rounds."""
    first = make(0)
    reports = [first.round() for _ in range(ROUNDS)]
    save_state(path, {"format": 1, "trainer": first.state_dict()})
    second: Trainer = make(1)
    second.seed = first.seed  # type: ignore[attr-defined]
    torch.manual_seed(12345)  # whatever another process would have drawn
    second.load_state_dict(load_state(path)["trainer"])
    return second, reports + [second.round() for _ in range(ROUNDS)]


def assert_resumed_exactly(make: Any, path: Path) -> Any:
    """The trainer that never stopped."""
    straight = make(0)
    reports = [straight.round() for _ in range(2 * ROUNDS)]
    other, other_reports = resumed(make, path)
    assert_same(straight.state_dict(), other.state_dict())
    assert reports == other_reports
    return straight


@pytest.mark.parametrize(("kind", "guide"), [("rl_lsfc", "maf"), ("rl_fc", "random")])
def test_on_the_slice_world(kind: str, guide: str, tmp_path: Path) -> None:
    straight = assert_resumed_exactly(partial(slice_trainer, kind, guide=guide), tmp_path / "state.pt")
    assert straight.episodes_done == 2 * ROUNDS * straight.settings.lanes


@pytest.mark.real
def test_on_the_toy_world_with_a_full_replay(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"replay_capacity": 70, "gradient_steps": 1}
    straight = assert_resumed_exactly(partial(toy_monte_carlo, "rl_lsfc", **settings), tmp_path / "state.pt")
    assert straight.replay.size == 70


def test_the_test_can_fail(tmp_path: Path) -> None:
    """A trainer that forgets its exploration stream is found out."""
    straight, other = toy_monte_carlo(gradient_steps=1), toy_monte_carlo(gradient_steps=1)
    for _ in range(ROUNDS):
        straight.round()
    state = straight.state_dict()
    other.load_state_dict(state)
    other.exploration.rng = np.random.default_rng(0)
    straight.round()
    other.round()
    with pytest.raises(AssertionError):
        assert_same(straight.state_dict(), other.state_dict())
