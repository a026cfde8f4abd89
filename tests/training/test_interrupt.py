"""Ctrl-C in a real process: exit code 130, how to go on, and the same weights as if nothing had happened."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agents.stored import load_policy_state
from tests.training.commands import Command, start_process, tiny
from tests.training.trainers.test_resume import assert_same
from training.checkpoint import load_state

# Rounds long enough that the signal arrives before the last one.
LONG = ("trainer.episodes=60", "trainer.gradient_steps=10", "trainer.validation_every=22", "seed=6")


@pytest.mark.real
@pytest.mark.parametrize("agent", [pytest.param("rl_lsfc", marks=pytest.mark.nightly), "mtdqn"])
def test_interrupted_and_resumed_equals_uninterrupted(agent: str, command: Command, tmp_path: Path) -> None:
    stopped = start_process(tmp_path, *tiny(agent), *LONG, "out=stopped")
    assert stopped.stdout is not None
    first_line = stopped.stdout.readline()
    assert first_line.startswith("guiding rule on validation")
    stopped.send_signal(signal.SIGINT)
    out, err = stopped.communicate(timeout=120)
    assert stopped.returncode == 130, out + err
    assert err == ""
    assert out.splitlines()[-1].endswith("python training/train.py resume=stopped")
    episodes = load_state(tmp_path / "stopped" / "state.pt")["trainer"]["episodes_done"]
    assert 0 < episodes < 60

    for arguments in (("resume=stopped",), (*tiny(agent), *LONG, "out=straight")):
        done = command(*arguments)
        assert done.code == 0, done
    for name in ("state.pt", "policy.pt"):
        load = load_state if name == "state.pt" else load_policy_state
        one, other = (load(tmp_path / run / name) for run in ("straight", "stopped"))
        for state in (one, other):
            state.pop("seconds", None)  # time passes differently
            state.pop("training", None)  # and stands on the card, next to the command
        assert_same(one, other, name)
