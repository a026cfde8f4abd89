"""Traces as users write them, and the command line that imports and shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotweave.envs.traces.command import main
from spotweave.envs.traces.format import MarketTrace, load_traces

META: dict[str, Any] = {
    "format": "spotweave-market-trace",
    "format_version": 1,
    "provider": "aws",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instance_type": "p3.2xlarge",
    "market": "spot",
    "start_utc": "2023-02-15T22:08:16Z",
    "source": "a test",
    "licence": "Apache-2.0",
    "polarity": "available",
    "tick_s": 195,
}
SERIES = "time_s,available,price_usd_hour\n0,1,0.9\n195,1,0.9\n390,0,0.95\n"


def write_trace(folder: Path, series: str = SERIES, **changes: Any) -> Path:
    """A trace of ours; a change to "REMOVED" leaves the key out."""
    folder.mkdir(parents=True, exist_ok=True)
    meta = {key: value for key, value in {**META, **changes}.items() if value != "REMOVED"}
    write(folder / "trace.json", meta)
    write(folder / "series.csv", series)
    return folder


def write(path: Path, content: Any) -> Path:
    """A file with this text, or with anything else as JSON."""
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def entry(zone: str, time: str, price: Any, **changes: Any) -> dict[str, Any]:
    """One price of an EC2 price history."""
    facts = {"InstanceType": "g5.xlarge", "ProductDescription": "Linux/UNIX", **changes}
    return {"AvailabilityZone": zone, "SpotPrice": price, "Timestamp": time, **facts}


def importing(source_format: str, *sources: Path, options: str = "") -> list[str]:
    """The words that import files to the folder "market" beside the first."""
    out = ["--out", str(sources[0].parent / "market")]
    return ["import", *map(str, sources), "--format", source_format, *out, *options.split()]


def imported(source_format: str, *sources: Path, options: str = "") -> tuple[MarketTrace, ...]:
    """The traces that an import makes of files."""
    assert main(importing(source_format, *sources, options=options)) == 0
    return load_traces(sources[0].parent / "market")


def series_of(trace: MarketTrace) -> tuple[list[int], list[bool] | None, list[float] | None]:
    """Its times, whether it was available, and its prices."""
    up, price = trace.available, trace.price_usd_hour
    return (
        trace.times_s.tolist(),
        up if up is None else up.tolist(),
        price if price is None else price.tolist(),
    )


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line of a command that has to fail."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err
