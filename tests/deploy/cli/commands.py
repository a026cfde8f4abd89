"""The real `spotweave` command: in this process, or as one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from spotweave import cli

ROOT = Path(__file__).resolve().parents[3]
OFFERS = ROOT / "configs" / "deploy" / "local_offers.yaml"
START_S = 300.0
NO_JAVA = {"JAVA_HOME": "/nowhere"}


def spotweave(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    """In this process."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], env=env)


def out(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def refusal(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("error: ")
    return result.stderr.strip()


def deployment(folder: Path, **changes: object) -> Path:
    """A deployment's file: rules decide, any free port, no tokens; jobs need not be kept apart."""
    content: dict[str, object] = {
        "state": str(folder / "state"),
        "policy": {"market": "cheapest", "federated": "round_cost"},
        "scheduler": {"period_s": 0.2},
        "http": {"port": 0, "tokens": False},
        "providers": {"local": str(OFFERS)},
        "runners": {"trust_submitters": True},
    }
    path = folder / "deployment.yaml"
    path.write_text(yaml.safe_dump({**content, **changes}), encoding="utf-8")
    return path


@dataclass
class Served:
    """`spotweave serve` as a process."""

    process: subprocess.Popen[str]
    url: str
    line: str

    def end(self, how: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code and stderr."""
        self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=START_S)
        return self.process.returncode, errors


@contextmanager
def served(config: Path, *options: str) -> Iterator[Served]:
    """Serve until the end of the block. Without Java, so that no Spark master is started."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spotweave.cli", "serve", "--config", str(config), *options],
        cwd=ROOT,
        env={**os.environ, **NO_JAVA, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"spotweave serve ended: {process.communicate()[1]}")
        yield Served(process, line.split()[2], line.strip())
    finally:
        process.kill()
        process.communicate()
