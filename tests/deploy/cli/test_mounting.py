"""The live commands are listed, cost nothing until they run, and say what they lack."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.cli import errors
from tests.deploy.cli.commands import ROOT, refusal, spotweave

COMMANDS = (
    *("serve", "check", "backup", "restore", "record", "token", "clouds", "emulate-aws"),
    *("submit", "jobs", "clusters", "offers", "instances", "costs", "events", "explain", "cancel"),
)


@pytest.mark.real
def test_help_lists_every_live_command() -> None:
    told = spotweave("--help").stdout
    for name in COMMANDS:
        assert f"│ {name} " in told
        assert spotweave(name, "--help").exit_code == 0


def test_listing_them_loads_nothing_of_the_live_side() -> None:
    script = (
        "import sys, spotweave.cli; "
        "print([name for name in ('httpx', 'fastapi', 'sqlalchemy', 'structlog', 'torch', 'pydantic') "
        "if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout == "[]\n"


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "NEEDED", ("sqlalchemy", "no_such_module"))
    for arguments in (
        ("jobs",),
        ("serve", "--config", str(tmp_path / "x.yaml")),
        ("token", "list", "--config", "x"),
    ):
        assert refusal(spotweave(*arguments)).endswith("pip install 'spotweave[deploy]'")
