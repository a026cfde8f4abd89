"""Tokens of runs are nobody's to read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.runners.flower import superexec

SHOW = """
import pathlib, sys
given = pathlib.Path(sys.argv[sys.argv.index("--token-file") + 1])
found = given.is_file(), given.read_text(), pathlib.Path("/proc/self/cmdline").read_text()
pathlib.Path(sys.argv[1]).write_text(repr(found))
"""


def test_an_app_reads_its_token_and_its_command_line_does_not_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    superexec.launch([sys.executable, "-c", SHOW, str(tmp_path / "found")], "secret")
    assert started[0].wait(60) == 0
    is_file, token, line = eval((tmp_path / "found").read_text())
    assert (is_file, token) == (True, "secret")
    assert "--token-file" in line
    assert "\0secret" not in line


@pytest.mark.real
def test_what_is_started_finds_ours_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    superexec.put_first(tmp_path / "bin")
    done = subprocess.run(["flower-superexec", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "--runtime-api-address" in done.stdout
    which = subprocess.run(["sh", "-c", "command -v flower-superexec"], capture_output=True, text=True)
    assert which.stdout.strip() == str(tmp_path / "bin/flower-superexec")
