"""Curves go to TensorBoard and, where it is asked for, to a tracker as well."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.commands import TINY, Command
from training import config
from training.config import UsageError
from training.run_directory import RunDirectory
from training.trainers.curves import Curves


class Server:
    """What an MLflow server keeps, behind the calls of `mlflow.MlflowClient` that are made."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.points: list[tuple[str, str, float, int]] = []
        self.status: dict[str, str] = {}
        self.down = False

    def get_experiment_by_name(self, name: str) -> None:
        if self.down:
            raise ConnectionError("nobody answers")

    def create_experiment(self, name: str) -> str:
        return name

    def create_run(self, experiment: str, run_name: str) -> Any:
        self.runs.append(f"{experiment}/{run_name}")
        return SimpleNamespace(info=SimpleNamespace(run_id=self.runs[-1]))

    def log_artifact(self, run_id: str, path: str) -> None:
        assert Path(path).is_file()

    def update_run(self, run_id: str, status: str) -> None:
        self.status[run_id] = status

    set_terminated = update_run

    def log_batch(self, run_id: str, metrics: list[tuple[str, float, int, int]]) -> None:
        if self.down:
            raise ConnectionError("nobody answers")
        self.points += [(run_id, name, value, step) for name, value, _, step in metrics]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    there = Server()
    entities = SimpleNamespace(Metric=lambda *fields: fields)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: there, entities=entities))
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return there


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("seed: 1\n")
    return RunDirectory(tmp_path / "run")


def test_a_resumed_run_goes_on_where_it_began(server: Server, run: RunDirectory) -> None:
    for episode, finished in ((10, False), (20, True)):
        kept = Curves(run, "mlflow")
        assert server.status["spotweave/run"] == "RUNNING"
        kept.add({"validation/cost": episode / 4}, episode)
        kept.close(finished)
        assert server.status["spotweave/run"] == ("FINISHED" if finished else "KILLED")
    assert server.runs == ["spotweave/run"]
    assert server.points == [("spotweave/run", "validation/cost", e / 4, e) for e in (10, 20)]
    assert list((run.path / "tensorboard").iterdir())


def test_a_server_that_goes_away_ends_the_tracking_not_the_training(
    server: Server, run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Curves(run, "mlflow")
    server.down = True
    for episode in (1, 2):
        kept.add({"validation/cost": 1.0}, episode)
    kept.close(finished=True)
    assert capsys.readouterr().err == "tracking stopped, TensorBoard's curves go on: nobody answers\n"


def test_a_server_that_is_not_there_is_one_line(server: Server, run: RunDirectory) -> None:
    server.down = True
    with pytest.raises(UsageError, match=r"^tracking=mlflow does not work: nobody answers$"):
        Curves(run, "mlflow")


def test_a_library_that_is_missing_is_named_with_its_extra_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(config, "find_spec", lambda name: None)
    command = Command(monkeypatch, capsys)
    told = command(*TINY, "tracking=wandb", f"out={tmp_path / 'run'}").mistake
    assert told.endswith("needs a library that is not installed: pip install 'spotweave[wandb]'")
    assert "tracking is 'comet'" in command(*TINY, "tracking=comet").mistake
    assert list(tmp_path.iterdir()) == []
