"""What a hostile ServerApp may tell."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from deploy.fl.checkpoints import Participation, Status
from deploy.runners.flower.status import read_status
from deploy.runners.jobfolder import JobFolder, PoisonError


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "flower").mkdir()
    return tmp_path


def read(work: Path, content: str | bytes) -> Status | None:
    (work / "flower/status.json").write_bytes(content.encode() if isinstance(content, str) else content)
    return read_status(JobFolder(work), rounds=4)


POISON = [
    "",
    "{",
    "null",
    "[]",
    "\0",
    b"\xff\xfe",
    "[" * 100_000,
    '{"run": 1, "completed": ' + "1" + "0" * 30 + "}",
    '{"run": 1, "completed": ' + "9" * 100_000 + "}",
    '{"run": 1, "completed": -1}',
    '{"run": 1, "completed": 5}',
    '{"run": 1, "completed": NaN}',
    '{"run": 1, "completed": 0.5}',
    '{"run": 1, "completed": "a lot"}',
    '{"run": -1}',
    '{"run": 1e400}',
    '{"completed": 1}',
    '{"run": 1, "more": 1}',
    '{"run": 1, "error": "' + "x" * 1001 + '"}',
    '{"run": 1, "resumed_from": "' + "x" * 1001 + '"}',
    '{"run": 1, "metrics": {"a": "b"}}',
    '{"run": 1, "history": {"-1": {}}}',
    *(
        json.dumps({"run": 1, "clients": {"a": {key: value}}})
        for key, value in [
            ("last_epoch_s", math.nan),
            ("last_epoch_s", math.inf),
            ("last_epoch_s", -1.0),
            ("last_epoch_s", 1e300),
            ("asked_s", math.nan),
            ("asked_s", -1e300),
            ("delivered", -1),
            ("delivered", 10**400),
            ("error_attempt", 10**400),
            ("owes", "perhaps"),
        ]
    ),
    " " * (4 << 20) + '{"run": 1}',
]


@pytest.mark.parametrize("content", POISON, ids=range(len(POISON)))
def test_what_no_serverapp_says_is_refused_in_one_short_line(work: Path, content: str | bytes) -> None:
    with pytest.raises(PoisonError) as caught:
        read(work, content)
    assert str(caught.value).startswith("flower/status.json ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_what_a_serverapp_says_is_read(work: Path) -> None:
    said = Status(
        run=2, completed=4, clients={"a": Participation(owes=False, last_epoch_s=0.0)}, metrics={"loss": 0.5}
    )
    assert read(work, said.model_dump_json()) == said


def test_a_training_that_has_diverged_says_so(work: Path) -> None:
    """Its metrics were written as null, which nobody could read again."""
    said = Status(run=1, metrics={"loss": math.nan, "norm": math.inf}, history={1: {"loss": math.nan}})
    found = read(work, said.model_dump_json(indent=1))
    assert found is not None
    assert math.isnan(found.metrics["loss"])
    assert found.metrics["norm"] == math.inf
    assert math.isnan(found.history[1]["loss"])


def test_nothing_said_is_nothing(work: Path) -> None:
    assert read_status(JobFolder(work), 4) is None
