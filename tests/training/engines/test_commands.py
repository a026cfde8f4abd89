"""The commands on two processes: the same files as in one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.training.commands import TINY_WORLD, Command, tiny
from training.checkpoint import load_state
from training.engine import KEYS

TWO = ("workers=2",)


@pytest.mark.nightly
def test_a_training_on_two_processes_ends_with_the_same_bits(command: Command, tmp_path: Path) -> None:
    words = (
        *tiny("mtdqn", "bags"),
        "trainer.lanes=6",
        "trainer.episodes=12",
        "trainer.validation_episodes=6",
    )
    for name, more in (("one", ()), ("two", TWO)):
        outcome = command(*words, *more, f"out={tmp_path / name}")
        assert outcome.code == 0, outcome.err
    one, two = (load_state(tmp_path / name / "state.pt")["trainer"] for name in ("one", "two"))
    assert one["episodes_done"] == two["episodes_done"] == 12
    assert one["average"].equal(two["average"])
    validations = [(tmp_path / name / "validation.csv").read_text() for name in ("one", "two")]
    assert validations[0] == validations[1]
    # The engine is no part of a run: it can be resumed with another one.
    saved = OmegaConf.load(tmp_path / "two" / "config.yaml")
    assert "seed" in saved
    assert not set(KEYS) & set(saved)


@pytest.mark.nightly
def test_a_comparison_on_two_processes_has_the_same_episodes(command: Command, tmp_path: Path) -> None:
    compare = replace(command, name="compare")
    words = ("+env=multicluster", *TINY_WORLD["multicluster"], "policies=[maf,random]", "episodes=7")
    for name, more in (("one", ()), ("two", TWO)):
        outcome = compare(*words, *more, f"out={tmp_path / name}")
        assert outcome.code == 0, outcome.err
    one, two = ((tmp_path / name / "episodes.csv").read_text() for name in ("one", "two"))
    assert one == two
    assert len(one.splitlines()) == 1 + 2 * 7


def test_an_address_of_ray_without_ray_is_one_line(command: Command, tmp_path: Path) -> None:
    outcome = command(*tiny("mtdqn", "bags"), "ray.address=auto", f"out={tmp_path / 'run'}")
    assert "ray.address=auto was given to engine=local: use engine=ray" in outcome.mistake
    assert not (tmp_path / "run").exists()
