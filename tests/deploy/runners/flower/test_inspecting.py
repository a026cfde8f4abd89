"""Hostile apps: whatever is in them, the scheduler copies plain files and reads back a bounded answer."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.runners.flower import inspecting
from deploy.runners.flower.inspecting import Inspector
from deploy.security.sandbox import Mode, Sandbox, SandboxError
from deploy.security.trial import choose
from tests.deploy.runners.flower.world import MEAN

pytestmark = pytest.mark.real

Attack = Callable[[Path], object]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox | None:
    """That of this machine, where it has one."""
    state = tmp_path_factory.mktemp("state").resolve()
    try:
        return choose(Mode.BUBBLEWRAP, trust=False, state=state, numbers=(61184, 65519))
    except SandboxError:
        return None


@pytest.fixture
def inspector(sandbox: Sandbox | None, tmp_path: Path) -> Inspector:
    state = tmp_path.resolve() / "state" if sandbox is None else sandbox.state / tmp_path.name
    return Inspector(state, sandbox)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    shutil.copytree(MEAN, folder / "app")
    (tmp_path / "secret").write_text("another submitter's")
    return folder


def test_an_app_is_built_and_nothing_is_left(inspector: Inspector, job: Path) -> None:
    found = inspector.look(job, "app")
    assert found.declared["num-server-rounds"]
    assert found.content.startswith(b"PK")
    assert list(inspector._state.iterdir()) == []


def _moved(job: Path) -> None:
    shutil.move(job / "app", job.parent / "real")
    (job / "app").symlink_to(job.parent / "real")


def _sparse(job: Path) -> None:
    (job / "app" / "huge.bin").touch()
    os.truncate(job / "app" / "huge.bin", 1 << 40)


def _gitignore(job: Path) -> None:
    # A pattern that takes minutes to see that it does not match.
    (job / "app" / ".gitignore").write_text("*a" * 12 + "b.py\n")
    (job / "app" / ("a" * 40 + ".py")).touch()


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (_moved, "a link is in the way"),
        (lambda job: (job / "app" / "mean" / "x.py").symlink_to(job.parent / "secret"), "x.py is a link"),
        (lambda job: (job / "app" / "more").symlink_to(job.parent), "more is a link"),
        (lambda job: os.link(job.parent / "secret", job / "app" / "x.py"), "x.py is not a plain file"),
        (lambda job: os.mkfifo(job / "app" / "x.py"), "x.py is not a plain file"),
        (lambda job: os.mknod(job / "app" / "mean.sock", stat.S_IFSOCK), "mean.sock is a link, or no file"),
        (_sparse, "its files are too large together"),
        (lambda job: [(job / "app" / f"{k}").touch() for k in range(20_001)], "more than 20000 files"),
        (lambda job: shutil.rmtree(job / "app"), "there is no such folder"),
        (_gitignore, "reading it takes longer than 4 s"),
        (lambda job: (job / "app" / "pyproject.toml").write_text("tool = 5"), "it cannot be read"),
    ],
)
def test_hostile_apps_are_refused_in_one_line_and_read_nothing_else(
    inspector: Inspector, job: Path, attack: Attack, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting, "_CPU_S", 4)
    attack(job)
    with pytest.raises(ValueError) as caught:
        inspector.look(job, "app")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(inspector._state.iterdir()) == []


@pytest.mark.parametrize("name", ["../job/app", "/etc", "app/../../job"])
def test_an_app_lies_below_its_job(inspector: Inspector, job: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leads elsewhere"):
        inspector.look(job, name)


def test_a_folder_that_becomes_a_link_meanwhile_gives_nothing_away(inspector: Inspector, job: Path) -> None:
    """The job's code may run while its app is inspected again."""
    other = job.parent / "other"
    shutil.copytree(MEAN, other)
    (other / "mean" / "secret.py").write_text("KEY = 'another submitter'")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(job / "app", job / "kept")
            (job / "app").symlink_to(other)
            time.sleep(0.001)
            (job / "app").unlink()
            os.rename(job / "kept", job / "app")
            time.sleep(0.001)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(6):
            try:
                assert b"secret.py" not in inspector.look(job, "app").content
            except ValueError:
                continue
    finally:
        stop.set()
        swapping.join()
