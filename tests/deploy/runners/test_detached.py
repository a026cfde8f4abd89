"""Commands that outlive whoever started them."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.detached import Detached, Limits, Result, tail
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.security.sandbox import Box, Mode, Sandbox
from tests.deploy.hostile import TRICKS, terabyte
from tests.deploy.node.agents import wait_until
from tests.deploy.runners.patience import SLIPS_AWAY, alive, insist

UP = "open('up', 'w').close()\nwhile True: time.sleep(600)"
STUBBORN = (
    "import os, signal, time\n"
    "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Detached]:
    detached = Detached(tmp_path / "a process")
    yield detached
    insist(lambda: detached.end(grace_s=0))


def start(process: Detached, code: str, *, again: bool = False) -> None:
    folder = process.folder.parent
    argv = [sys.executable, "-c", code]
    process.start(argv, {"PATH": os.defpath}, folder, folder / "log", again=again)


def start_and_wait(process: Detached, code: str = "import time\n" + UP) -> None:
    """Until the code is up."""
    start(process, code)
    wait_until((process.folder.parent / "up").exists)


def result_of(process: Detached) -> Result:
    """Once it has ended."""
    wait_until(lambda: process.result() is not None)
    result = process.result()
    assert result is not None
    return result


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
    for again, runs in ((False, "x"), (False, "x"), (True, "xx")):
        start(process, code, again=again)
        wait_until(lambda: process.result() is not None and not process.running())
        assert (process.folder.parent / "runs").read_text() == runs


def test_a_second_look_finds_it_and_starts_no_other(process: Detached) -> None:
    start(process, "import time; time.sleep(600)")
    pid = launcher_pid(process)
    found = Detached(process.folder)
    assert found.running()
    start(found, "import time; time.sleep(600)")
    assert launcher_pid(process) == pid


def test_a_command_that_does_not_exist_says_so(process: Detached, tmp_path: Path) -> None:
    process.start(["/nowhere/at/all"], {}, tmp_path, tmp_path / "log")
    result = result_of(process)
    assert result.exit_code == 127
    assert result.error == "cannot start /nowhere/at/all: No such file or directory"


def test_it_dies_with_its_launcher_and_leaves_no_result(process: Detached) -> None:
    start_and_wait(process)
    os.kill(launcher_pid(process), signal.SIGKILL)
    wait_until(lambda: not process.running())
    assert process.was_started()
    assert process.result() is None


def test_how_it_ended_when_it_was_ended_is_known(process: Detached) -> None:
    start_and_wait(process)
    insist(lambda: process.end(grace_s=30))
    assert result_of(process).exit_code == -signal.SIGTERM


def test_its_files_are_private(process: Detached) -> None:
    start(process, "")
    result_of(process)
    files = [file for file in process.folder.iterdir() if file.is_file()]
    assert {file.name for file in files} >= {"command.json", "process.json", "result.json", "lock"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


def test_what_ignores_every_signal_is_asked_once_and_then_killed(process: Detached) -> None:
    start_and_wait(process, STUBBORN + UP)
    with pytest.raises(RunnerError, match="still ends"):
        process.end(grace_s=600.0)
    assert process.running()
    # Another scheduler knows since when, and does not begin with a new grace.
    os.utime(process.folder / "asked", (0, time.time() - 601.0))
    Detached(process.folder).end(grace_s=600.0)
    assert not process.running()


@pytest.mark.parametrize("ends", [False, True])
def test_what_slips_away_without_a_trace_ends_too(process: Detached, ends: bool) -> None:
    start(process, SLIPS_AWAY + ("" if ends else "time.sleep(600)"))
    slipped = process.folder.parent / "slipped"
    wait_until(lambda: slipped.exists() and slipped.read_text().strip())
    pid = int(slipped.read_text())
    if ends:
        # Nothing outlives the command itself, without anybody's asking.
        wait_until(lambda: not process.running())
        result = result_of(process)
        assert result == Result(0, "", result.ended_s)
    else:
        insist(lambda: process.end(grace_s=0))
    assert not alive(pid)


@pytest.mark.nightly
def test_sixty_that_ignore_signals_end_in_one_round_of_asking_and_one_of_killing(tmp_path: Path) -> None:
    all_of_them = [Detached(tmp_path / str(number) / "process") for number in range(60)]
    try:
        for one in all_of_them:
            one.folder.parent.mkdir()
            start(one, STUBBORN + UP)
        for one in all_of_them:
            wait_until((one.folder.parent / "up").exists)
        began_s = time.monotonic()
        for one in all_of_them:
            with pytest.raises(RunnerError, match="still ends"):
                one.end(grace_s=30.0)
        assert time.monotonic() - began_s < 30.0
        for one in all_of_them:
            os.utime(one.folder / "asked", (0, time.time() - 31.0))
        for one in all_of_them:
            one.end(grace_s=30.0)
        assert not any(one.running() for one in all_of_them)
    finally:
        for one in all_of_them:
            insist(lambda one=one: one.end(grace_s=0))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("argv", "env", "reason"),
    [
        ([sys.executable, "-c", "pass"], {"BIG": "x" * 140_000}, "Argument list too long"),
        ([sys.executable, "-c", "pass"], {"NULL": "a\0b"}, "embedded null byte"),
        ([sys.executable, "-c", "pass", "a\0b"], {}, "embedded null byte"),
        (["/" + "x" * 300], {}, "File name too long"),
    ],
)
def test_what_no_try_can_start_has_failed_with_its_reason(
    process: Detached, argv: list[str], env: dict[str, str], reason: str
) -> None:
    process.start(argv, env, process.folder.parent, process.folder.parent / "log")
    result = result_of(process)
    assert result.of_job
    assert reason in result.error


CROWD = "import subprocess as s; all = [s.Popen(['sleep', '600']) for _ in range(30)]"


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("x = bytearray(400 << 20)", Limits(memory_bytes=200 << 20), "its memory came to"),
        (CROWD, Limits(processes=20), "it had more than 20 processes"),
        ("print('x' * (5 << 20), flush=True)", Limits(log_bytes=1 << 20), "its log came to"),
        ("open('own/big', 'wb').write(b'x' * (5 << 20))", Limits(folder_bytes=1 << 20), "its files came to"),
    ],
)
def test_over_a_limit_it_is_killed_and_says_which(
    process: Detached, code: str, limits: Limits, reason: str
) -> None:
    base = process.folder.parent
    (base / "own").mkdir()
    box = Box("a box", "a job", (base / "own",), base / "tmp")
    boxed = Sandbox(Mode.NONE, base), box
    argv = [sys.executable, "-c", f"import time\n{code}\ntime.sleep(600)"]
    process.start(argv, {"PATH": os.defpath}, base, base / "log", boxed=boxed, limits=limits)
    wait_until(lambda: not process.running())
    result = result_of(process)
    assert result.of_job
    assert result.error.startswith(reason)
    assert "runners.driver_" in result.error


def test_a_log_that_was_made_a_link_is_not_written_to(process: Detached) -> None:
    base = process.folder.parent
    (base / "job").mkdir()
    (base / "precious").write_text("as it was")
    (base / "job" / "logs").symlink_to(base)
    log = base / "job" / "logs" / "precious"
    process.start([sys.executable, "-c", "print('x')"], {}, base, log, log_below=base / "job")
    result = result_of(process)
    assert result.of_job
    assert (base / "precious").read_text() == "as it was"


@pytest.mark.parametrize("name", ["process.json", "result.json", "command.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x", "started_s": []}', b"\xff"])
def test_a_damaged_file_of_its_own_is_as_good_as_none(process: Detached, name: str, content: bytes) -> None:
    start(process, "import time; time.sleep(600)")
    wait_until((process.folder / "process.json").exists)
    (process.folder / name).write_bytes(content)
    assert process.running()
    assert process.result() is None
    process.up_s()
    insist(lambda: process.end(grace_s=0))
    # A killed process loses its memory, by which it is known, a moment before its files and so the lock.
    wait_until(lambda: not process.running())


# A folder in which a hostile program writes too.


PLACES = {**TRICKS, "a terabyte": terabyte}
NO_FOLDERS = [name for name in PLACES if name != "a folder"]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Of the scheduler."""
    (tmp_path / "state").mkdir()
    file = tmp_path / "state" / "secret"
    file.write_bytes(b"secret")
    return file


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work/flower").mkdir(parents=True)
    return tmp_path / "work"


def test_a_file_is_read_and_what_is_not_there_is_not(work: Path) -> None:
    (work / "flower/a").write_bytes(b"x" * 100)
    folder = JobFolder(work)
    assert folder.read("flower/a", 100) == b"x" * 100
    with pytest.raises(PoisonError, match="flower/a is larger than"):
        folder.read("flower/a", 99)
    assert folder.read("flower/b", 100) is None
    assert folder.read("nowhere/b", 100) is None
    assert folder.names("flower", 1) == ["a"]
    assert folder.names("nowhere", 1) == []


@pytest.mark.parametrize("trick", PLACES)
def test_nothing_but_a_small_file_is_read(work: Path, secret: Path, trick: str) -> None:
    PLACES[trick](work / "flower/a", secret)
    with pytest.raises(PoisonError) as caught:
        JobFolder(work).read("flower/a", 100)
    assert "flower/a" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("trick", NO_FOLDERS)
def test_no_trick_in_place_of_a_folder_leads_out(work: Path, secret: Path, trick: str) -> None:
    (work / "flower").rmdir()
    PLACES[trick](work / "flower", secret)
    folder = JobFolder(work)
    for act in (
        lambda: folder.read("flower/a", 100),
        lambda: folder.names("flower", 10),
        lambda: folder.write("flower/a", b"ours"),
        lambda: folder.make("flower"),
        lambda: folder.copy_tail(secret, "flower/a", 10),
    ):
        with pytest.raises(PoisonError, match="flower"):
            act()
    assert secret.read_bytes() == b"secret"
    assert os.listdir(secret.parent) == ["secret"]


@pytest.mark.parametrize("trick", NO_FOLDERS)
def test_what_is_written_takes_the_place_of_a_trick(work: Path, secret: Path, trick: str) -> None:
    PLACES[trick](work / "flower/a", secret)
    JobFolder(work).write("flower/a", b"ours")
    assert JobFolder(work).read("flower/a", 100) == b"ours"
    assert secret.read_bytes() == b"secret"
    assert os.listdir(work / "flower") == ["a"]
    assert stat.S_IMODE((work / "flower/a").lstat().st_mode) == 0o600


def test_a_folder_in_the_way_is_poison_and_nothing_is_left(work: Path) -> None:
    (work / "flower/a").mkdir()
    with pytest.raises(PoisonError):
        JobFolder(work).write("flower/a", b"ours")
    assert os.listdir(work / "flower") == ["a"]


def test_a_folder_of_too_many_files_is_poison(work: Path) -> None:
    for number in range(4):
        (work / f"flower/{number}").touch()
    with pytest.raises(PoisonError, match="more than 3 files"):
        JobFolder(work).names("flower", 3)


@pytest.mark.parametrize(("size", "expected"), [(0, 0), (3, 3), (5000, 1000)])
def test_the_end_of_a_log_is_copied(work: Path, tmp_path: Path, size: int, expected: int) -> None:
    log = tmp_path / "log"
    log.write_bytes(bytes(number % 256 for number in range(size)))
    JobFolder(work).copy_tail(log, "flower/log", 1000)
    assert (work / "flower/log").read_bytes() == log.read_bytes()[size - expected :]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_put_into_another_users_folder_is_theirs(work: Path) -> None:
    os.chown(work, 12345, 12346)
    (work / "flower").rmdir()
    JobFolder(work).write("flower/checkpoints/a", b"x")
    for name in ("flower", "flower/checkpoints", "flower/checkpoints/a"):
        found = (work / name).stat()
        assert (found.st_uid, found.st_gid) == (12345, 12346)
