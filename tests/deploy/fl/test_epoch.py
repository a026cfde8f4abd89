"""An interrupted client resumes its epoch from its latest checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from spotweave.deploy.fl.client import checkpointing_client_app
from spotweave.deploy.fl.epoch import SAVED, Epoch, Saved, share_of
from spotweave.deploy.fl.records import from_record, to_record
from tests.deploy.fl.fake_grid import Killed, context

STEPS = 10


def asked(weight: float = 0.0, number: int = 2) -> Message:
    content = RecordDict(
        {"arrays": to_record({"w": np.array([weight])}), "config": ConfigRecord({"server-round": number})}
    )
    return Message(content, 1, "train")


def adding(
    steps_done: list[int], ends_after: int = STEPS, every_s: float = 0.0, steps: int = STEPS
) -> ClientApp:
    """Each step adds 1 to the weight; its process ends after `ends_after` of them."""
    app = checkpointing_client_app()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        epoch = Epoch(message, context, steps, every_s)
        weight = np.array(from_record(epoch.arrays)["w"])
        for done in range(epoch.done + 1, steps + 1):
            if len(steps_done) == ends_after:
                raise Killed
            weight = weight + 1.0
            steps_done.append(done)
            epoch.save(done, partial(to_record, {"w": weight}))
        return Message(RecordDict({"arrays": to_record({"w": weight})}), reply_to=message)

    return app


@pytest.fixture
def node(tmp_path: Path) -> Callable[[], Context]:
    return lambda: context(1, {"spotweave-state": str(tmp_path)})


def weight(answer: Message) -> float:
    found: ArrayRecord = answer.content.array_records["arrays"]
    return float(from_record(found)["w"][0])


def weights(folder: Path) -> list[str]:
    """The files of checkpoints in a state folder."""
    return [path.name for path in folder.glob("epoch-*.npz")]


def interrupted(node: Callable[[], Context], after: int, every_s: float = 0.0) -> None:
    with pytest.raises(Killed):
        adding([], after, every_s)(asked(), node())


def test_it_resumes_after_the_latest_saved_step(node: Callable[[], Context], tmp_path: Path) -> None:
    interrupted(node, 7)
    saved = Saved.load(tmp_path / SAVED)
    assert saved is not None
    assert (saved.round, saved.share) == (2, 0.7)
    assert [saved.weights] == weights(tmp_path)
    assert saved.sha256 == hashlib.sha256((tmp_path / saved.weights).read_bytes()).hexdigest()
    steps: list[int] = []
    answer = adding(steps)(asked(), node())
    assert steps == [8, 9, 10]
    assert weight(answer) == 10.0
    assert share_of(answer.content) == pytest.approx(0.3), "three steps are no whole epoch"


def test_killed_between_the_two_files_of_a_checkpoint_it_resumes_from_the_one_before(
    node: Callable[[], Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_at_step_7(saved: Saved, path: Path) -> None:
        if saved.share == 0.7:
            raise Killed
        save(saved, path)

    save = Saved.save
    monkeypatch.setattr(Saved, "save", killed_at_step_7)
    interrupted(node, STEPS)
    steps: list[int] = []
    monkeypatch.setattr(Saved, "save", save)
    assert weight(adding(steps)(asked(), node())) == 10.0
    assert steps == [7, 8, 9, 10]


def test_an_uninterrupted_epoch_is_whole(node: Callable[[], Context]) -> None:
    answer = adding([])(asked(), node())
    assert (weight(answer), share_of(answer.content)) == (10.0, 1.0)
    # Its checkpoints do not count for the next round.
    steps: list[int] = []
    assert weight(adding(steps)(asked(10.0, number=3), node())) == 20.0
    assert steps[0] == 1


def test_a_damaged_checkpoint_and_one_of_other_weights_or_lengths_are_ignored(
    node: Callable[[], Context], tmp_path: Path
) -> None:
    interrupted(node, 7)
    other_weights: list[int] = []
    adding(other_weights)(asked(1.0), node())
    interrupted(node, 7)
    other_length: list[int] = []
    adding(other_length, 12, steps=12)(asked(), node())
    interrupted(node, 7)
    (file,) = (tmp_path / name for name in weights(tmp_path))
    file.write_bytes(file.read_bytes()[:-1])
    damaged: list[int] = []
    adding(damaged)(asked(), node())
    assert other_weights[0] == other_length[0] == damaged[0] == 1


def test_it_is_saved_no_more_often_than_asked_for(node: Callable[[], Context], tmp_path: Path) -> None:
    interrupted(node, 7, every_s=3600.0)
    assert weights(tmp_path) == []


def test_outside_of_spotweave_nothing_is_saved() -> None:
    assert weight(adding([])(asked(), context(1))) == 10.0


@pytest.mark.parametrize(
    ("said", "share"), [(0.3, 0.3), (-1.0, 0.01), (7.0, 1.0), ("half", 1.0), (True, 1.0)]
)
def test_a_share_is_one(said: float | str, share: float) -> None:
    content = RecordDict({"spotweave-epoch": ConfigRecord({"share": said})})
    assert share_of(content) == share
