"""Fine-tuning: it starts from the checkpoint, and what became of it takes its place only if it is better."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from spotweave.agents.policy import Policy
from spotweave.agents.stored import RELEASED, load_policy_state
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import Observation
from spotweave.training.adaptation import judge
from spotweave.training.checkpoint import RunDirectory
from spotweave.training.evaluation.episodes import Suite
from spotweave.training.trainers.session import Session
from tests.training.commands import TINY_TRAINER, TINY_WORLD, Command
from tests.training.test_train import saved_config
from tests.training.toy import Myopic, ToyWorld

ADAPT = (
    "+env=multicloud",
    *TINY_WORLD["multicloud"],
    "trainer=adapt",
    *TINY_TRAINER,
    "trainer.max_minutes=0",
    "device=cpu",
    "out=run",
)
RELEASED_POLICY = RELEASED / "multicloud" / "policy.pt"


def vectors(path: Path) -> torch.Tensor:
    found: torch.Tensor = load_policy_state(path)["network"]["vector"]
    return found


def scripted(monkeypatch: pytest.MonkeyPatch, *costs: float) -> None:
    """Validations of the policy that come to these costs, one after the other."""
    script = iter(costs)
    real = Session._validate

    def validate(self: Session, policy: Policy) -> list[dict[str, float]]:
        found = real(self, policy)
        if policy is not self.trainer.policy:
            return found
        cost = next(script)
        return [{**metrics, self.objective: cost} for metrics in found]

    monkeypatch.setattr(Session, "_validate", validate)


def test_what_is_worse_is_refused(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = RELEASED_POLICY.read_bytes()
    scripted(monkeypatch, 10.0, 10.0, 11.0)
    outcome = command(*ADAPT).printed()
    line = next(line for line in outcome.splitlines() if line.startswith("the adapted policy is "))
    assert "on validation episodes: cost_usd_eq " in line
    assert line.endswith("(2 paired episodes): the original policy is kept")
    run = tmp_path / "run"
    assert (run / "start.pt").read_bytes() == before
    assert torch.equal(vectors(run / "policy.pt"), vectors(RELEASED_POLICY))
    assert load_policy_state(run / "policy.pt")["training"]["episodes"] == 0
    assert RELEASED_POLICY.read_bytes() == before
    assert saved_config(run)["agent"]["own_size"] == load_policy_state(RELEASED_POLICY)["agent"]["own_size"]


def test_what_is_better_is_accepted(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, 10.0, 9.0, 9.5)
    outcome = command(*ADAPT).printed()
    assert "(2 paired episodes): it is accepted" in outcome
    adapted = tmp_path / "run" / "policy.pt"
    assert load_policy_state(adapted)["training"]["episodes"] == 4
    assert not torch.equal(vectors(adapted), vectors(RELEASED_POLICY))
    # A small step away, with the scaler of the original.
    assert np.abs(vectors(adapted) - vectors(RELEASED_POLICY)).max() < 0.02


@pytest.mark.real
def test_a_policy_that_learning_ruined_is_refused(command: Command, tmp_path: Path) -> None:
    """No script: rates a thousand times too large."""
    rate = "trainer.learning_rate={start: 3.0, end: 3.0}"
    jobs = ("env.workload.jobs=20", "env.market.owned_executors=0", "trainer.validation_episodes=4")
    outcome = command(*ADAPT, *jobs, rate).printed()
    assert "the adapted policy is worse on validation episodes: cost_usd_eq +" in outcome
    assert "the original policy is kept" in outcome
    assert torch.equal(vectors(tmp_path / "run" / "policy.pt"), vectors(RELEASED_POLICY))
    again = command("resume=run").printed()
    assert again.splitlines()[-2:] == outcome.splitlines()[-2:]


@pytest.mark.real
def test_a_resumed_run_starts_from_its_own_copy(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("policy.pt", "policy.pt.sha256"):
        shutil.copy(RELEASED_POLICY.with_name(name), mine / name)
    scripted(monkeypatch, 10.0, 9.0, 9.5, 10.0, 9.0, 9.5)
    assert command(*ADAPT, "checkpoint=mine").code == 0
    straight = vectors(tmp_path / "run" / "policy.pt")
    shutil.rmtree(mine)
    (tmp_path / "run" / "state.pt").unlink()
    command("resume=run").printed()
    assert torch.equal(vectors(tmp_path / "run" / "policy.pt"), straight)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("agent=rl_fc",),
            "checkpoint=multicloud was given to start from, which agent=rl_fc cannot: expected agent=mtd",
        ),
        (("checkpoint=liu2022/rl_lsfc",), "holds a policy of agent=rl_lsfc, not of agent=mtdqn"),
        (("agent.own_size=8",), "agent.own_size is 8, but "),
    ],
)
def test_what_cannot_be_started_from_is_one_line(
    command: Command, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in command(*ADAPT, *words).mistake
    assert not (tmp_path / "run").exists()


def test_a_policy_of_another_world_is_not_gone_on_with(command: Command) -> None:
    message = "was trained for +env=multicloud, not for +env=federated"
    assert message in command("+env=federated", "trainer=adapt").mistake


@pytest.mark.parametrize("env", ["multicluster", "anyclusters"])
def test_it_goes_on_from_the_policy_for_any_clusters(command: Command, tmp_path: Path, env: str) -> None:
    """With steps of nearly nothing it stays where it started."""
    released = RELEASED / "liu2022" / "any_clusters" / "policy.pt"
    rate = "trainer.learning_rate={start: 1.0e-5, end: 1.0e-5}"
    words = (f"+env={env}", *TINY_WORLD[env], "trainer=adapt", *TINY_TRAINER, "device=cpu", "out=run")
    outcome = command(*words, rate).printed()
    assert "on validation episodes: s " in outcome
    run = tmp_path / "run"
    assert (run / "start.pt").read_bytes() == released.read_bytes()
    before = load_policy_state(released)["network"]["vector"]
    state = RunDirectory.reopen(str(run))[0].load_state()
    assert state is not None
    reached = state["trainer"]["average"]
    assert not torch.equal(reached, before)
    torch.testing.assert_close(reached, before, rtol=0.0, atol=1e-4)


class Optimal(Myopic):
    """Knows what a choice costs others."""

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        costs = observations["pairs"][:, 0, :, col.EXECUTION_S]
        best: NDArray[np.int64] = (costs + observations["clusters"][:, :, col.PRICE_USD_HOUR]).argmin(axis=1)
        return best


@pytest.mark.parametrize(
    ("adapted", "original", "word"), [(Optimal(), Myopic(), "better"), (Myopic(), Optimal(), "worse")]
)
def test_a_verdict_has_the_figures(adapted: Myopic, original: Myopic, word: str) -> None:
    """The objective of the toy world is better when it is higher, whatever its sign."""
    suite = Suite("toy", "validation", seed=5, episodes=20)
    verdict = judge(adapted, original, [ToyWorld(5)], suite, accepted=word == "better")
    assert f"the adapted policy is {word} on validation episodes: objective " in str(verdict)
    gain = verdict.paired.difference
    assert gain > 0 if word == "better" else gain < 0
    assert verdict.paired.interval.excludes(0.0)
    assert f"{gain:+.2f} [{verdict.paired.interval.low:+.2f}" in str(verdict)
    assert verdict.episodes == 20
