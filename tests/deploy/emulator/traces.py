"""Recordings made by hand, for pools of any cloud."""

from __future__ import annotations

import json
from pathlib import Path

START_S = 1_750_000_000


def trace(folder: Path, name: str, rows: list[tuple[int, int, float]]) -> str:
    """A recording of (seconds, available, price); the last row says where it ends."""
    place = folder / name
    place.mkdir()
    about = {"provider": "aws", "region": "us-east-1", "zone": "", "instance_type": "t", "market": "spot"}
    about |= {"start_utc": "2026-01-01T00:00:00Z", "source": "by hand", "licence": ""}
    about |= {"format": "spotweave-market-trace", "polarity": "available"}
    (place / "trace.json").write_text(json.dumps({**about, "format_version": 1}))
    lines = ["time_s,available,price_usd_hour", *(f"{at},{up},{price}" for at, up, price in rows)]
    (place / "series.csv").write_text("\n".join(lines) + "\n")
    return name
