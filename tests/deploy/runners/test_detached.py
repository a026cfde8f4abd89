"""Commands that outlive whoever started them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.node import procfs
from deploy.runners.detached import Detached, tail
from tests.deploy.node.agents import wait_until


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Detached]:
    detached = Detached(tmp_path / "a process")
    yield detached
    detached.end(grace_s=0)


def start(process: Detached, code: str, *, again: bool = False) -> None:
    log = process.folder.parent / "log"
    process.start([sys.executable, "-c", code], {"PATH": os.defpath}, process.folder.parent, log, again=again)


def launcher_pid(process: Detached) -> int:
    return int(json.loads((process.folder / "process.json").read_bytes())["pid"])


def test_its_end_is_written_down_with_its_exit_code(process: Detached) -> None:
    start(process, "print('hello'); raise SystemExit(3)")
    wait_until(lambda: not process.running())
    result = process.result()
    assert result is not None
    assert (result.exit_code, result.error) == (3, "")
    assert tail(process.folder.parent / "log") == "hello\n"


def test_it_is_started_once_for_ever(process: Detached) -> None:
    code = "open('runs', 'a').write('x')"
    start(process, code)
    wait_until(lambda: process.result() is not None and not process.running())
    start(process, code)
    assert (process.folder.parent / "runs").read_text() == "x"
    start(process, code, again=True)
    wait_until(lambda: process.result() is not None and not process.running())
    assert (process.folder.parent / "runs").read_text() == "xx"


def test_a_second_look_finds_it_and_starts_no_other(process: Detached) -> None:
    start(process, "import time; time.sleep(600)")
    pid = launcher_pid(process)
    found = Detached(process.folder)
    assert found.running()
    start(found, "import time; time.sleep(600)")
    assert launcher_pid(process) == pid


def test_a_command_that_does_not_exist_says_so(process: Detached, tmp_path: Path) -> None:
    process.start(["/nowhere/at/all"], {}, tmp_path, tmp_path / "log")
    wait_until(lambda: process.result() is not None)
    result = process.result()
    assert result is not None
    assert result.exit_code == 127
    assert result.error == "cannot start /nowhere/at/all: No such file or directory"


def test_it_dies_with_its_launcher_and_leaves_no_result(process: Detached) -> None:
    start(process, "import time; open('up', 'w').close(); time.sleep(600)")
    wait_until((process.folder.parent / "up").exists)
    os.kill(launcher_pid(process), signal.SIGKILL)
    wait_until(lambda: not process.running())
    assert process.was_started()
    assert process.result() is None


def test_everything_that_it_started_ends_with_it_whatever_session_it_is_in(process: Detached) -> None:
    child = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('up', 'w').close();"
        " time.sleep(600)"
    )
    start(
        process,
        f"import subprocess, sys, time; c = subprocess.Popen([sys.executable, '-c', {child!r}],"
        " start_new_session=True); open('pid', 'w').write(str(c.pid)); time.sleep(600)",
    )
    wait_until((process.folder.parent / "up").exists)
    pid = int((process.folder.parent / "pid").read_text())
    process.end(grace_s=0.2)
    assert not process.running()
    found = procfs.read(pid)
    assert found is None or not found.alive


def test_how_it_ended_when_it_was_ended_is_known(process: Detached) -> None:
    start(process, "import time; open('up', 'w').close(); time.sleep(600)")
    wait_until((process.folder.parent / "up").exists)
    process.end(grace_s=30)
    result = process.result()
    assert result is not None
    assert result.exit_code == -signal.SIGTERM


def test_its_files_are_private(process: Detached) -> None:
    start(process, "")
    wait_until(lambda: process.result() is not None)
    files = [file for file in process.folder.iterdir() if file.is_file()]
    assert {file.name for file in files} >= {"command.json", "process.json", "result.json", "lock"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
