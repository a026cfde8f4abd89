"""What is refused before anything is rented, and how settings reach the app."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from deploy.model.fields import MAX_TEXT_BYTES
from deploy.model.jobs import Flower, JobSpec, Resources
from deploy.runners.flower import app
from deploy.runners.flower.inspecting import App, inspect
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
