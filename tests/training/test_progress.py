"""Long commands say how far they are, also where there is no terminal."""

from __future__ import annotations

import time

import pytest

from spotweave.training import progress
from spotweave.training.progress import play_progress, still_busy
from spotweave.training.trainers.trainer import TrainingProgress


def test_episodes_that_are_played_are_told_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SAY_EVERY_S", 0.0)
    with play_progress(lines=True) as advance:
        advance("maf", 1, 2)
        advance("maf", 2, 2)
    out, err = capsys.readouterr()
    assert err == "maf: 1 of 2 episodes\n"
    assert out == "played maf: 2 episodes\n"
    monkeypatch.setattr(progress, "SAY_EVERY_S", 60.0)
    with play_progress() as advance:
        advance("maf", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_training_tells_its_episode_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SAY_EVERY_S", 0.0)
    with TrainingProgress(total=100, done=0, objective="cost") as shown:
        shown.advance(20, 1500.4, 30.0, 0.0)
    assert capsys.readouterr().err == "episode 20 of 100, 1,500 decisions/s, 2:00 left\n"


def test_what_cannot_tell_how_far_it_is_tells_how_long_it_has_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SAY_EVERY_S", 0.01)
    told = ""
    with still_busy("plan-fl"):
        while "so far" not in told:
            told += capsys.readouterr().err
            time.sleep(0.001)
    assert told.startswith("plan-fl: 0 s so far\n")
    capsys.readouterr()
    time.sleep(0.03)
    assert capsys.readouterr().err == ""
