"""The `spotweave` command: what it lists, and that it passes on what it does not understand."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import training.config
from agents.bags.schedulers import SCHEDULER_SOURCES
from agents.federated.rules import ROUND_RULES
from agents.rules import RULES
from agents.workflows.online.rules import WORKFLOW_RULES
from envs.environments import ENVIRONMENTS
from spotweave import cli
from training.config import CONFIG_DIRECTORY

RUNNER = CliRunner()


def test_every_environment_is_listed_with_its_title() -> None:
    result = RUNNER.invoke(cli.app, ["envs"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [f"+env={name}" for name in ENVIRONMENTS]
    for line, entry in zip(lines, ENVIRONMENTS.values(), strict=True):
        assert (entry.gymnasium or "") in line
        assert entry.title in line


def test_every_rule_and_agent_is_listed_with_its_source() -> None:
    result = RUNNER.invoke(cli.app, ["policies"])
    assert result.exit_code == 0
    listed = {line.split()[0]: line for line in result.stdout.splitlines()[1:]}
    agents = {path.stem for path in (Path(CONFIG_DIRECTORY) / "agent").glob("*.yaml")}
    assert {*RULES, *ROUND_RULES, *SCHEDULER_SOURCES, *WORKFLOW_RULES} | agents == set(listed)
    assert all(RULES[name].source in listed[name] for name in RULES)


def test_the_version_is_that_of_the_installed_package() -> None:
    from importlib.metadata import version

    assert RUNNER.invoke(cli.app, ["version"]).stdout.strip() == version("spotweave")


@pytest.mark.parametrize("command", ["train", "evaluate", "compare"])
def test_everything_after_a_command_reaches_hydra_as_it_stands(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, list[str]]] = []
    body = SimpleNamespace(main=object())

    def run_command(config_name: str, main: object) -> None:
        assert main is body.main
        seen.append((config_name, list(sys.argv)))
        sys.exit(130)

    monkeypatch.setattr(training.config, "run_command", run_command)
    monkeypatch.setitem(sys.modules, f"training.{command}", body)
    monkeypatch.setattr(sys, "argv", ["spotweave"])
    words = ["+env=multicloud", "seed=3", "policies=[maf,eft]", "--help", "-m", "x='a b'"]
    result = RUNNER.invoke(cli.app, [command, *words])
    assert result.exit_code == 130
    assert seen == [(command, [f"training/{command}.py", *words])]


def test_an_unknown_command_is_refused() -> None:
    result = RUNNER.invoke(cli.app, ["trian"])
    assert result.exit_code == 2
    assert "trian" in result.output
