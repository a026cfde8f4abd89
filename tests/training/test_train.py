"""The training command from end to end, in small: every agent, every environment, every file it promises."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from spotweave.agents.stored import load_policy_state
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.training.checkpoint import RunDirectory, load_policy, load_state
from spotweave.training.config import world_config
from spotweave.training.evaluation.episodes import default_rules
from spotweave.training.trainers.session import Session
from tests.training.commands import TINY, TINY_TRAINER, TINY_WORLD, Command, start_process, tiny, tiny_agent
from tests.training.trainers.test_session import assert_same_files


def tiny_in(env: str, *more: str) -> tuple[str, ...]:
    named = [word.removeprefix("agent=") for word in more if word.startswith("agent=")]
    agent = tiny_agent(env, named[0] if named else ENVIRONMENTS[env].default_agent)
    return (f"+env={env}", *TINY_WORLD[env], *agent, *TINY_TRAINER, "device=cpu", *more)


def saved_config(run: Path) -> dict[str, Any]:
    container = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


@pytest.mark.real
@pytest.mark.parametrize(
    ("env", "agent"), [(env, name) for env in sorted(ENVIRONMENTS) for name in ("rl_lsfc", "rl_fc", None)]
)
def test_every_agent_trains_on_every_environment(
    env: str, agent: str | None, command: Command, tmp_path: Path
) -> None:
    """Without a name, the environment's default agent."""
    named = [] if agent is None else [f"agent={agent}"]
    outcome = command(*tiny_in(env, *named, "out=run", "seed=4")).printed()
    agent = agent or ENVIRONMENTS[env].default_agent
    run = tmp_path / "run"
    assert "policy: run/policy.pt" in outcome
    for name in ("policy.pt", "state.pt", "config.yaml", "provenance.json", "validation.csv", "done.json"):
        assert (run / name).is_file(), name
    assert list((run / "tensorboard").glob("events.*"))
    config = saved_config(run)
    assert (config["seed"], config["agent"]["name"], config["env"]["name"]) == (4, agent, env)
    world = ENVIRONMENTS[env].build(world_config(config["env"]), 1)
    assert load_policy(run, world.spec).name == agent
    card = load_policy_state(run / "policy.pt")["training"]
    assert card["seed"] == 4
    assert f"+env={env}" in card["command"]
    assert set(card["validation"]) == set(world.spec.metrics)
    assert card["commit"]
    # Nothing else is left lying about, and the run itself holds no half-written file.
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_a_training_that_found_nothing_better_says_what_it_kept(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Session, "_validate", lambda self, _: [dict.fromkeys(self.player.world().spec.metrics, 1.0)]
    )
    told = command(*tiny_in("multicluster", "trainer.episodes=2", "out=run"))
    assert "no validation beat the untrained policy, which follows tuned, so that one is kept" in told.out


def test_without_out_the_run_names_itself(command: Command, tmp_path: Path) -> None:
    assert command(*tiny_in("multicluster", "trainer.episodes=2", "seed=9")).code == 0
    (run,) = (tmp_path / "runs" / "multicluster").iterdir()
    assert run.name.startswith("mtdqn-seed9-")


def test_a_finished_run_may_be_resumed_and_changes_nothing(command: Command, finished_run: Path) -> None:
    before = [(finished_run / name).read_bytes() for name in ("state.pt", "policy.pt")]
    command("resume=run").printed()
    assert [(finished_run / name).read_bytes() for name in ("state.pt", "policy.pt")] == before


def test_a_run_that_stopped_before_its_first_save_starts_anew(command: Command, finished_run: Path) -> None:
    straight = load_state(finished_run / "state.pt")["trainer"]["regression"]["network"]
    (finished_run / "state.pt").unlink()
    assert command("resume=run").code == 0
    again = load_state(finished_run / "state.pt")["trainer"]["regression"]["network"]
    assert all(torch.equal(straight[key], again[key]) for key in straight)


@pytest.mark.real
def test_training_ends_with_a_table_against_the_strongest_rules(command: Command, tmp_path: Path) -> None:
    outcome = command(*TINY, "out=run", "trainer.episodes=2", "trainer.test_episodes=2").printed()
    summary = json.loads((tmp_path / "run" / "test" / "summary.json").read_text())
    assert summary["suite"]["name"] == "test"
    assert set(summary["policies"]) == {"rl_lsfc", *(ENVIRONMENTS["multicluster"].rivals or ())}
    assert (tmp_path / "run" / "test" / "report.html").is_file()
    assert "maf" in outcome
    assert "report: run/test/report.html" in outcome


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_a_training_is_compared_with_few_rules_that_know_its_world(name: str) -> None:
    rivals = ENVIRONMENTS[name].rivals
    known = default_rules({"name": name})
    assert rivals is None or (len(rivals) <= 7 and set(rivals) <= set(known))


# Ctrl-C in a real process: exit code 130, how to go on, and the same weights as if nothing had happened.


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
        command(*arguments).printed()
    assert_same_files(RunDirectory(tmp_path / "straight"), RunDirectory(tmp_path / "stopped"))
