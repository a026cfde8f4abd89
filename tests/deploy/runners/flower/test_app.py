"""What is refused before anything is rented, and how settings reach the app."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from spotweave.deploy.model.fields import MAX_TEXT_BYTES
from spotweave.deploy.model.jobs import Flower, JobSpec, Resources
from spotweave.deploy.runners.flower import app, inspecting
from spotweave.deploy.runners.flower.inspecting import App, Inspector, inspect
from spotweave.deploy.security.sandbox import NO_SANDBOX, Mode, Sandbox, SandboxError
from spotweave.deploy.security.trial import choose
from tests.deploy.node.agents import ROOT
from tests.deploy.runners.flower.world import MEAN, job_spec

Edit = Callable[[Path], object]


def replace(old: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        file = folder / "pyproject.toml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return edit


def look(folder: Path, name: str) -> App:
    return inspect(folder / name, name)


def changed(**values: object) -> JobSpec:
    return job_spec("mean", 1, {"a": {}}).model_copy(update=values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(MEAN, tmp_path / "mean")
    return tmp_path


def test_good_apps_pass(folder: Path) -> None:
    app.check(job_spec("mean", 2, {"a": {"target": "1"}}, epoch_s="0.5", fault="x"), folder, look)
    app.check(job_spec("federated_mnist", 3, {"a": {"partition": "0"}}), ROOT / "examples", look)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (replace('publisher = "spotweave"', ""), '"publisher" missing'),
        (replace('version = "1.0.0"', ""), '"version" missing'),
        (replace("mean.server_app:app", "mean.nothing:app"), "there is no mean/nothing.py"),
        (replace('clientapp = "mean.client_app:app"', ""), '"clientapp" missing'),
        (replace("[project]", "[project"), "pyproject.toml: Expected ']'"),
        (replace('name = "mean"', 'name = "a_mean"'), "letters, digits, and hyphens"),
        (replace('name = "mean"', "a" + ".a" * 2048 + " = 1"), "a line of 4101 characters"),
        (replace('name = "mean"', "a" + '."\u2028"' * 1024 + " = 1"), "a line of 4101 characters"),
        (replace('name = "mean"', "# nothing\n" * 6553), "expected at most 65536 and 4096"),
        (lambda folder: (folder / "pyproject.toml").unlink(), "cannot read pyproject.toml"),
    ],
)
def test_a_folder_that_is_no_app_is_refused_in_one_line(folder: Path, edit: Edit, message: str) -> None:
    edit(folder / "mean")
    with pytest.raises(ValueError) as caught:
        app.check(job_spec("mean", 1, {"a": {}}), folder, look)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (job_spec("../mean", 1, {"a": {}}), "leads out of the job's folder"),
        (job_spec("mean", 1, {"a": {}}, speed="1"), "run_config has 'speed'"),
        (job_spec("mean", 1, {"a": {}}, epoch_s="fast"), "epoch-s is 'fast': expected a float"),
        (job_spec("mean", 1, {"a": {'x"y': "1"}}), "expected letters, digits, - and _"),
        (job_spec("mean", 1, {"a": {"x": 'a"b'}}), "quotes are not possible"),
        (job_spec("mean", 1, {"a": {"client-name": "b"}}), "is set by spotweave"),
        (changed(resources=Resources(instances=2)), "resources.instances is 2"),
        # They open doors.
        (changed(env={"FLWR_INTERNAL_GRPC_CONTROL_API": "1"}), "are set by spotweave"),
        (changed(env={"SPOTWEAVE_FL_SETUP": "1"}), "are set by spotweave"),
    ],
)
def test_settings_that_cannot_be_passed_are_refused(folder: Path, spec: JobSpec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        app.check(spec, folder, look)


def test_the_largest_settings_that_are_accepted_can_be_given_to_a_process(folder: Path) -> None:
    """The bounds of a job file are narrow enough for one argument with all of a client's settings."""
    config = {f"x{number}": "y" * 320 for number in range(200)}
    env = {"A": "x" * (MAX_TEXT_BYTES - 1)}
    spec = job_spec("mean", 1, {"a": config}).model_copy(update={"env": env})
    app.check(spec, folder, look)
    given = app.node_config(config, "a", "/state")
    subprocess.run(["/bin/true", given], env=env, check=True)


def test_flower_reads_a_clients_settings_as_they_were_meant() -> None:
    given = {"partition": "2", "rate": "0.5", "warm": "true", "site": "St. Mary", "code": "007", "none": ""}
    text = app.node_config(given, "large", "/nodes/one two/state")
    assert parse_config_args([text]) == {
        "partition": 2,
        "rate": 0.5,
        "warm": True,
        "site": "St. Mary",
        "code": "007",
        "none": "",
        "client-name": "large",
        "spotweave-state": "/nodes/one two/state",
    }


def test_the_jobs_rounds_replace_the_apps(folder: Path) -> None:
    work = job_spec("mean", 7, {"a": {}}, fault="12", epoch_s="2").work
    assert isinstance(work, Flower)
    # `fault` is text in the app, so it stays text.
    assert app.overrides(work, look(folder, "mean").declared) == {
        "num-server-rounds": 7,
        "fault": "12",
        "epoch-s": 2,
    }


# Hostile apps: whatever is in them, the scheduler copies plain files and reads back a bounded answer.


Attack = Callable[[Path], object]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """That of this machine, where it has one."""
    state = tmp_path_factory.mktemp("state").resolve()
    try:
        return choose(Mode.BUBBLEWRAP, trust=False, state=state, numbers=(61184, 65519))
    except SandboxError:
        return Sandbox(Mode.NONE, state)


@pytest.fixture
def inspector(sandbox: Sandbox, tmp_path: Path) -> Inspector:
    return Inspector(sandbox.state / tmp_path.name, sandbox)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    shutil.copytree(MEAN, folder / "app")
    (tmp_path / "secret").write_text("another submitter's")
    return folder


def test_an_app_is_built_in_a_process_of_its_own_and_nothing_is_left(job: Path, tmp_path: Path) -> None:
    inspector = Inspector(tmp_path.resolve() / "state", NO_SANDBOX)
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


@pytest.mark.real
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


@pytest.mark.real
@pytest.mark.parametrize("name", ["../job/app", "/etc", "app/../../job"])
def test_an_app_lies_below_its_job(inspector: Inspector, job: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leads elsewhere"):
        inspector.look(job, name)


@pytest.mark.real
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
