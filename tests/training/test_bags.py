"""`spotweave simulate bag`: its table, its picture, and one line with exit code 2 for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training.federated.commands import mistake, printed, table

TYPES = {
    name: {
        "vcpu": 1,
        "memory": 1.0,
        "markets": {"on-demand": "yes", "spot": "yes"},
        "burstable": {"burstable": "no", "cpu_credit_rate": 0, "baseline": 0},
        "prices": {"on-demand": 0.36, "spot": 0.036},
    }
    for name in ("one", "other")
}
JOB = {
    "job_id": 7,
    "job_name": "two",
    "description": "200 s and 100 s",
    "tasks": {
        str(number): {
            "command": "run",
            "memory": 10.0,
            "runtime": {"one": runtime_s, "other": runtime_s},
        }
        for number, runtime_s in enumerate((200.0, 100.0))
    },
}


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    """Both tasks on one spot VM, beside their job.json and env.json."""
    (tmp_path / "env.json").write_text(json.dumps({"instances": TYPES}))
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    printed(
        "plan",
        "bag",
        tmp_path / "job.json",
        tmp_path / "env.json",
        "--deadline",
        2000,
        "-o",
        tmp_path / "map.json",
    )
    return tmp_path / "map.json"


def test_without_hibernation_the_bill_is_the_work(map_file: Path) -> None:
    rows = table(printed("simulate", "bag", map_file, "--scenario", "none", "--seeds", 2))
    # Checkpoints of 12.99 + 0.22 s after every 132.1 s of work: one in 200 s, none in 100 s. 313.21 s at
    # 0.00001 USD; 300 s at 0.0001 USD on demand.
    assert rows["hads"] == ["0", "of", "2", "0.0031", "313", *["0.00"] * 5]
    assert rows["burst-hads"] == rows["hads"]
    assert rows["on-demand"] == ["0", "of", "2", "0.0300", "300", *["0.00"] * 5]


def test_one_scheduler_with_ranges_and_a_picture(map_file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    words = ("--scenario", "sc_4", "--seeds", 20, "--scheduler", "hads", "--picture", picture)
    output = printed("simulate", "bag", map_file, *words)
    assert set(table(output)) >= {"hads"}
    assert "burst-hads" not in output
    assert "0 of 20" in output
    assert "to" in table(output)["hads"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--scenario", "sc_8"), "there is no scenario 'sc_8': expected one of none, sc_1"),
        (
            ("--scheduler", "fifo"),
            "there is no scheduler 'fifo': expected one of hads, burst-hads, on-demand",
        ),
        (("--seeds", "0"), "seeds is 0, expected at least 1"),
        (("--job", "missing.json"), "cannot read missing.json: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(map_file: Path, words: tuple[str, ...], line: str) -> None:
    assert line in mistake("simulate", "bag", map_file, *words)
