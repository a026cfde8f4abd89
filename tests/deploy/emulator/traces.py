"""Recordings made by hand, for pools of any cloud."""

from __future__ import annotations

import json
from pathlib import Path

START_S = 1_750_000_000


def write(folder: Path, rows: str, **about: object) -> Path:
    """A market trace of one spot zone."""
    head = {"format": "spotweave-market-trace", "format_version": 1, "polarity": "available", "tick_s": 100}
    head |= {"provider": "aws", "region": "r", "zone": "ra", "instance_type": "t", "market": "spot"}
    head |= {"start_utc": "2023-02-15T22:08:16Z", "source": "by hand", "licence": "Apache-2.0"}
    folder.mkdir(exist_ok=True)
    (folder / "trace.json").write_text(json.dumps(head | about))
    (folder / "series.csv").write_text(rows)
    return folder


def trace(folder: Path, name: str, rows: list[tuple[int, int, float]]) -> str:
    """A recording of (seconds, available, price); the last row says where it ends."""
    lines = ["time_s,available,price_usd_hour", *(f"{at},{up},{price}" for at, up, price in rows)]
    return write(folder / name, "\n".join(lines) + "\n", tick_s=None).name
