"""The benchmarks' bookkeeping: ratios, the choice of benchmarks, the file. No test here asserts a speed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import benchmarks.__main__ as command
from benchmarks.measurement import Benchmark, Measurement


def test_a_ratio_above_one_meets_the_bar_in_either_direction() -> None:
    assert Measurement("speed", 30.0, "steps/s", bar=20.0).ratio == 1.5
    assert Measurement("memory", 4.0, "GiB", bar=2.0, higher_is_better=False).ratio == 0.5
    assert Measurement("latency", 4.0, "ms").ratio is None


def quick(value: float) -> Iterator[Measurement]:
    yield Measurement("quick thing", value, "steps/s", bar=10.0)


def unwanted(smallest: bool) -> Iterator[Measurement]:
    raise AssertionError("a long benchmark ran without being asked for")


@pytest.fixture
def latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    two = (
        Benchmark("quick", "a quick one", lambda smallest: quick(25.0)),
        Benchmark("slow", "a long one", unwanted, long=True),
    )
    monkeypatch.setattr(command, "BENCHMARKS", two)
    monkeypatch.setattr(command, "LATEST", tmp_path / "latest.json")
    return tmp_path / "latest.json"


def test_all_short_benchmarks_are_run_and_written(latest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    printed = capsys.readouterr().out
    assert "quick thing" in printed
    assert "2.50" in printed
    content = json.loads(latest.read_text())
    assert content["benchmarks"]["quick"][0]["ratio"] == 2.5
    assert content["machine"]["cores"] >= 1
    assert content["commit"]


def test_a_part_is_printed_but_does_not_replace_the_file(latest: Path, tmp_path: Path) -> None:
    assert command.main(["--only", "quick"]) == 0
    assert not latest.exists()
    assert command.main(["--only", "quick", "--out", str(tmp_path / "part.json")]) == 0
    assert json.loads((tmp_path / "part.json").read_text())["benchmarks"].keys() == {"quick"}


def test_an_unknown_name_is_refused(latest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--only", "qick"])
    assert ended.value.code == 2
    assert "qick" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.parametrize("one", command.BENCHMARKS, ids=lambda one: one.name)
def test_every_benchmark_runs_at_its_smallest_size(one: Benchmark) -> None:
    rows = list(one.measure(smallest=True))
    assert rows
    assert all(math.isfinite(row.value) for row in rows)
