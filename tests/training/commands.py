"""Runs the commands of training as a user would, in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from spotweave.training.config import run_command

ROOT = Path(__file__).resolve().parents[2]
TINY_AGENT = {
    "rl_lsfc": ("agent.lstm_size=4", "agent.shared_size=16", "agent.head_size=8"),
    "rl_fc": ("agent.hidden_sizes=[16,8]",),
    "mtdqn": (
        "agent.lstm_size=2",
        "agent.own_size=4",
        "agent.mutual_size=3",
        "trainer.multi_target.copies=2",
    ),
    "spot_values": ("agent.hazard_buckets=2", "agent.return_buckets=2", "agent.quality_buckets=2"),
}
TINY_TRAINER = (
    "trainer.episodes=6",
    "trainer.lanes=2",
    "trainer.batch_size=16",
    "trainer.replay_capacity=200",
    "trainer.gradient_steps=1",
    "trainer.validation_every=4",
    "trainer.validation_episodes=2",
    "trainer.test_episodes=0",
)
TINY_WORLD = {
    "multicluster": ("env.n_jobs=20", "env.window=4"),
    "multicloud": ("env.workload.jobs=4",),
    "chapter4": ("env.n_jobs=20", "env.window=4"),
    "federated": ("env.market=one_zone", "env.clients_most=3", "env.rounds_least=2", "env.rounds_most=4"),
    "bags": ("env.job=J60",),
    "workflows": ("env.family=montage", "env.steps=20"),
    "anyclusters": ("env.clusters=3", "env.world.n_jobs=20", "env.world.window=4"),
    "spot": ("env.rules=adrs_single", "env.work_h=2", "env.deadline_h=4"),
}


def tiny_agent(env: str, agent: str) -> tuple[str, ...]:
    """The words of a small network that fits the environment."""
    asked = agent == "mtdqn" and env in ("federated", "bags", "workflows")
    no_use = ("agent.lstm_size", "agent.own_size") if asked else ()
    return tuple(word for word in TINY_AGENT[agent] if not word.startswith(no_use or "-"))


def tiny(agent: str, env: str = "multicluster") -> tuple[str, ...]:
    """The words of a training of seconds."""
    words = (*TINY_WORLD[env], *tiny_agent(env, agent), *TINY_TRAINER)
    return (f"+env={env}", f"agent={agent}", *words, "device=cpu")


TINY = tiny("rl_lsfc")


@dataclass(frozen=True)
class Outcome:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str

    def printed(self) -> str:
        """What a command printed that succeeded."""
        assert self.code == 0, self.out + self.err
        return self.out

    @property
    def mistake(self) -> str:
        """The one line that tells a user's mistake; everything else about it is checked here."""
        assert self.code == 2, self
        assert "Traceback" not in self.err, self.err
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: "), self.err
        return lines[0]


@dataclass(frozen=True)
class Command:
    """`python training/NAME.py` without the start of a process."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    name: str = "train"

    def __call__(self, *arguments: str) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", [f"training/{self.name}.py", *arguments])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            run_command(self.name, import_module(f"spotweave.training.{self.name}").main)
        out, err = self.capsys.readouterr()
        code = exited.value.code
        assert isinstance(code, int)
        return Outcome(code, out, err)


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own at the root: Ray leaves files open that would fail other tests."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)


def start_process(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command as its own process, in `directory`."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "training" / "train.py"), *arguments],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
