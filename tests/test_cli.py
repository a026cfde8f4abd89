"""The `spotweave` command: it passes on what it does not understand, and tells mistakes at once."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import spotweave.training.config
from spotweave import cli
from spotweave.training.config import CONFIG_DIRECTORY

RUNNER = CliRunner()


def test_the_version_is_that_of_the_installed_package() -> None:
    from importlib.metadata import version

    assert RUNNER.invoke(cli.app, ["--version"]).stdout.strip() == version("spotweave")


@pytest.mark.parametrize("command", ["train", "evaluate", "compare", "repeat", "tune"])
def test_everything_after_a_command_reaches_hydra_as_it_stands(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, list[str]]] = []
    body = SimpleNamespace(main=object())

    def run_command(config_name: str, main: object) -> None:
        assert main is body.main
        seen.append((config_name, list(sys.argv)))
        sys.exit(130)

    monkeypatch.setattr(spotweave.training.config, "run_command", run_command)
    monkeypatch.setitem(sys.modules, f"spotweave.training.{command}", body)
    monkeypatch.setattr(sys, "argv", ["spotweave"])
    words = ["+env=multicloud", "seed=3", "policies=[maf,eft]", "--help", "-m", "x='a b'"]
    result = RUNNER.invoke(cli.app, [command, *words])
    assert result.exit_code == 130
    assert seen == [(command, [f"training/{command}.py", *words])]


# What is wrong with a command is told at once: nothing that takes long to import is imported before.

MISTAKES = [
    ("trian", "No such command 'trian'. Did you mean 'train'?"),
    ("plan bgs", "No such command 'bgs'"),
    ("jobs --limt 3", "No such option '--limt'. Did you mean '--limit'?"),
    ("check", "there is no spotweave.yaml here"),
    ("train env=multiclod", "env is 'multiclod': expected one of anyclusters, bags"),
    ("train env=multicloud sede=3", "unknown key sede: did you mean 'seed'?"),
    ("train env=multicloud agent=dqn", "agent is 'dqn': expected one of decima"),
    ("train env=multicloud agent.lstm_siz=3", "unknown key agent.lstm_siz: did you mean 'lstm_size'?"),
    ("train env=multicloud trainer.episodes=many", "trainer.episodes is 'many': input should be a valid int"),
    ("train env=multicloud trainer.guide=mfa", "unknown rule 'mfa' (did you mean 'maf'?)"),
    ("train env=multicloud checkpoint=nowhere", "no checkpoint at nowhere"),
    ("evaluate env=multicloud policy=expected_cots", "did you mean 'expected_cost'?"),
    ("compare polices=[maf]", "unknown key polices: did you mean 'policies'?"),
    ("compare env=multicloud policies=[maf,eff]", "did you mean 'eft'?"),
    ("compare env=multicloud checkpoint={mine:nowhere}", "no checkpoint at nowhere"),
    ("repeat experiment=liu2022/trainigs", "experiment/liu2022 is 'trainigs'"),
    ("tune", "nothing to search: give"),
]
HEAVY = ("torch", "scipy", "numba", "matplotlib", "pandas", "pyarrow", "sqlalchemy", "httpx", "ray")
PROBE = """
import contextlib, io, json, sys
from spotweave import cli
for words in json.load(sys.stdin):
    sys.argv, told, code = ["spotweave", *words], io.StringIO(), 0
    with contextlib.redirect_stderr(told):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, told.getvalue(), [name for name in HEAVY if name in sys.modules]]))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, tuple[int, str, list[str]]]:
    """Of each mistake: exit code, standard error and what was imported, all in one process."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE.replace("HEAVY", repr(HEAVY))],
        input=json.dumps([shlex.split(words) for words, _ in MISTAKES]),
        cwd=Path(CONFIG_DIRECTORY).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        words: json.loads(line) for (words, _), line in zip(MISTAKES, ended.stdout.splitlines(), strict=True)
    }


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_told_before_anything_heavy_is_imported(
    words: str, message: str, told: dict[str, tuple[int, str, list[str]]]
) -> None:
    code, text, imported = told[words]
    assert code == 2
    assert text.count("\n") == 1
    assert text.startswith("error: ")
    assert message in text
    assert imported == []
