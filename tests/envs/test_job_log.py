"""Recorded job logs: imported as the archive ships them, and played in the market world."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import numpy as np
import pytest

from envs.market_data import market_data
from envs.multicloud import build_market
from envs.simulation.market.config import MarketWorldConfig, WorkloadConfig
from envs.simulation.market.episodes import EpisodeData
from envs.simulation.market.source import draw_episode
from envs.simulation.snapshot import Category
from envs.simulation.streams import SPLITS
from envs.simulation.world import EpisodeKey, WorldError
from envs.traces.__main__ import main
from envs.traces.storage import TraceError

HEADER = "; MaxProcs: 128\n"


def log_of(folder: Path, jobs: int, packed: bool = False) -> Path:
    """A job trace: job k is submitted at 100 k, runs for 1000 + k s on 1, 2, ..., 20 processors."""
    lines = [
        f"{k + 1} {100 * k} -1 {1000 + k} {k % 20 + 1} -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1"
        for k in range(jobs)
    ]
    text = (HEADER + "\n".join(lines) + "\n").encode()
    path = folder / ("log.swf.gz" if packed else "log.swf")
    path.write_bytes(gzip.compress(text) if packed else text)
    main(["import", str(path), "--format", "swf", "--out", str(folder / path.name.replace(".", "-"))])
    return folder / path.name.replace(".", "-")


def episodes(config: MarketWorldConfig, split: str, count: int = 8) -> list[EpisodeData]:
    world = build_market(config)
    return [draw_episode(config, world.data, EpisodeKey(0, split, k)) for k in range(count)]  # type: ignore[arg-type]


def test_an_episode_plays_jobs_of_the_log_in_a_row_and_no_split_sees_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = log_of(tmp_path, 1000)
    config = MarketWorldConfig(workload=WorkloadConfig(jobs=30, trace=str(folder)))
    kept = [k for k in range(1000) if k % 20 + 1 <= 16]
    seen: dict[str, set[int]] = {}
    with caplog.at_level(logging.WARNING):
        for split in SPLITS:
            for one in episodes(config, split):
                rows = (one.jobs.standard_s - 1000).tolist()
                start = kept.index(rows[0])
                assert rows == kept[start : start + 30]
                assert (one.jobs.executors == np.array(rows) % 20 + 1).all()
                assert (one.jobs.arrival_s == 100 * (np.array(rows) - rows[0])).all()
                assert not (one.jobs.category == Category.STREAMING).any()
                seen.setdefault(split, set()).update(rows)
    assert max(seen["train"]) < min(seen["validation"])
    assert max(seen["validation"]) < min(seen["test"])
    (line,) = {record.getMessage() for record in caplog.records}
    assert line.endswith(
        "200 of 1000 jobs need more than 16 executors, the quota of the largest offer, and are left out"
    )


def test_half_the_arrival_unit_is_twice_the_load(tmp_path: Path) -> None:
    folder = str(log_of(tmp_path, 300))
    (usual,) = episodes(MarketWorldConfig(workload=WorkloadConfig(jobs=9, trace=folder)), "train", 1)
    (dense,) = episodes(
        MarketWorldConfig(workload=WorkloadConfig(jobs=9, trace=folder, arrival_unit_s=80)), "train", 1
    )
    assert (2 * dense.jobs.arrival_s == usual.jobs.arrival_s).all()


def test_a_packed_log_is_the_same_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, packed = log_of(tmp_path, 40), log_of(tmp_path, 40, packed=True)
    assert (plain / "jobs.csv").read_bytes() == (packed / "jobs.csv").read_bytes()
    (tmp_path / "log.swf.gz").write_bytes((tmp_path / "log.swf.gz").read_bytes()[:-9])
    words = ["import", str(tmp_path / "log.swf.gz"), "--format", "swf", "--out", str(tmp_path / "cut")]
    assert main(words) == 1
    assert "log.swf.gz cannot be read: Compressed file ended before" in capsys.readouterr().err


def test_what_cannot_be_played_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = str(log_of(tmp_path, 100))
    with pytest.raises(WorldError, match=r"52 jobs in its train part, workload\.jobs asks for 60: lower"):
        build_market(MarketWorldConfig(workload=WorkloadConfig(jobs=60, trace=folder)))
    with pytest.raises(WorldError, match="jobs of a log are no streams"):
        build_market(
            MarketWorldConfig(
                workload=WorkloadConfig(trace=folder, general=0.0, time_critical=0.0, streaming=1.0)
            )
        )
    config = MarketWorldConfig()
    config.market.traces = folder
    with pytest.raises(TraceError, match=r"it holds jobs, which env\.workload.trace reads"):
        market_data(config.market)
