"""Builds the committed bundle of recorded markets from the raw collections (see docs/traces.md)."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from spotweave.envs.traces.storage import TraceError, write_file

FORMAT_VERSION = 1
CLOCK_START = pd.Timestamp("2023-02-15T22:08:16Z")
TICK_S = 195
# GCP spot prices are recorded from 2023-05-08 on. 210 days are 30 whole weeks, so weekdays agree, and they
# put two rounds of real price changes (2023-09-28, 2023-10-26) on days 14 and 42 of the clock.
GCP_SHIFT_DAYS = 210
GCP_TYPES = ("a2-highgpu-1g", "g2-standard-8", "a2-ultragpu-1g")
GCP_REGIONS = ("us-central1", "us-east1", "us-east4", "us-west1", "europe-west4")

_V100_TYPE = "p3.2xlarge"
_SERIES_KEY = ["provider", "region", "zone", "instance_type", "market", "quantity"]
_SOURCES: dict[str, dict[str, str]] = {
    "aws_v100_2023": {
        "source": "https://github.com/andylizf/skynomad-artifact @62b9aaa",
        "licence": "Apache-2.0",
        "what": "spot availability and price of p3.2xlarge in nine zones, prices of transfer between regions",
    },
    "gcp_prices": {
        "source": "https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator, 290 revisions",
        "licence": "Apache-2.0",
        "what": "on-demand and spot prices, machine types",
    },
    "aws_on_demand": {
        "source": (
            "https://github.com/aws/karpenter-provider-aws "
            "@1d927085dd81a9df9301e613f371dac5b4d16bfe and history"
        ),
        "licence": "Apache-2.0",
        "what": "us-east-1 on-demand prices and instance types",
    },
}


def build_bundle(source: Path, out: Path) -> None:
    """Write series and egress as parquet, and bundle.json next to them.

    Args:
        source: folder that holds aws_v100_2023, gcp_prices and aws_on_demand.
        out: folder of the bundle, beside list_prices.json.

    Raises:
        TraceError: for a missing or unexpected input, in one line.
    """
    missing = [name for name in _SOURCES if not (source / name).is_dir()]
    if missing:
        raise TraceError(
            f"{source} has no folder {missing[0]}: give the folder that holds {', '.join(_SOURCES)}"
        )
    series = pd.concat(
        [
            _aws_spot(source / "aws_v100_2023"),
            _aws_on_demand(source / "aws_on_demand"),
            _gcp(source / "gcp_prices"),
        ]
    )
    tables = {
        "series": series,
        "egress": pd.read_csv(source / "aws_v100_2023" / "aws_egress_pricing.csv").sort_values(
            ["from_region", "to_region"]
        ),
    }
    for name, table in tables.items():
        arrow = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        write_file(out / f"{name}.parquet", partial(pq.write_table, arrow, compression="zstd"))
    record_end_s = int(series.loc[series["quantity"] == "available", "time_s"].max()) + TICK_S
    meta: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "clock_start_utc": CLOCK_START.isoformat(),
        "tick_s": TICK_S,
        "record_end_s": max(record_end_s, _last_tick_s(source / "aws_v100_2023") + TICK_S),
        "gcp_shift_days": GCP_SHIFT_DAYS,
        "polarity": "available",
        "sources": {
            name: {**facts, "sha256": _folder_hash(source / name)} for name, facts in _SOURCES.items()
        },
    }
    text = json.dumps(meta, indent=2) + "\n"
    write_file(out / "bundle.json", lambda path: path.write_text(text))


def _last_tick_s(folder: Path) -> int:
    dates = pd.read_csv(sorted(folder.glob("*_v100_1.csv"))[0], usecols=["date"])["date"]
    return int((pd.Timestamp(dates.iloc[-1], tz="UTC") - CLOCK_START).total_seconds())


def _folder_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.csv")) + sorted(folder.glob("*.json")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _changes(times_s: Any, values: Any) -> pd.DataFrame:
    """Only the rows where the value differs from the row before."""
    kept = np.concatenate([[True], np.asarray(values)[1:] != np.asarray(values)[:-1]])
    return pd.DataFrame(
        {"time_s": np.asarray(times_s, dtype=np.int64)[kept], "value": np.asarray(values, np.float64)[kept]}
    )


def _labelled(table: pd.DataFrame, *key: str) -> pd.DataFrame:
    return table.assign(**dict(zip(_SERIES_KEY, key, strict=True)))[[*_SERIES_KEY, "time_s", "value"]]


def _aws_spot(folder: Path) -> pd.DataFrame:
    prices = json.loads((folder / "v100_spot_prices.json").read_text())
    parts = []
    for path in sorted(folder.glob("*_v100_1.csv")):
        zone = path.name.removesuffix("_v100_1.csv")
        ticks = pd.read_csv(path)
        times_s = (pd.to_datetime(ticks["date"], utc=True) - CLOCK_START).dt.total_seconds()
        price = prices[path.name.removesuffix(".csv")]
        if len(price) != len(ticks) or times_s.iloc[0] != 0:
            raise TraceError(
                f"{path.name}: {len(ticks)} ticks from {ticks['date'].iloc[0]} against {len(price)} prices "
                f"from {CLOCK_START:%Y-%m-%d %H:%M:%S}: use the release that docs/traces.md names"
            )
        key = ("aws", zone[:-1], zone, _V100_TYPE, "spot")
        parts.append(_labelled(_changes(times_s, ticks["availability"]), *key, "available"))
        parts.append(_labelled(_changes(times_s, price), *key, "price_usd_hour"))
    return pd.concat(parts)


def _aws_on_demand(folder: Path) -> pd.DataFrame:
    types = pd.read_csv(folder / "aws_instance_types.csv")
    with_gpu = (types["instance-gpu-manufacturer"] == "nvidia") & (types["instance-gpu-count"] >= 1)
    gpu_types = set(types.loc[with_gpu, "instance_type"])
    log = pd.read_csv(folder / "aws_on_demand_us_east_1_changes.csv")
    log = log[log["instance_type"].isin(gpu_types) | log["instance_type"].str.startswith("p3.")]
    return _price_series(log, "generated_at", "on_demand_usd_hour", "aws", "on_demand", shift_days=0)


def _gcp(folder: Path) -> pd.DataFrame:
    log = pd.read_csv(folder / "gcp_price_changes.csv")
    log = log[log["machine_type"].isin(GCP_TYPES) & log["region"].isin(GCP_REGIONS)]
    log = log.rename(columns={"machine_type": "instance_type"})
    return pd.concat(
        [
            _price_series(
                log.dropna(subset=[column]), "snapshot_date", column, "gcp", market, shift_days=GCP_SHIFT_DAYS
            )
            for market, column in (("on_demand", "on_demand_usd_hour"), ("spot", "spot_usd_hour"))
        ]
    )


def _price_series(
    log: pd.DataFrame, date: str, column: str, provider: str, market: str, shift_days: int
) -> pd.DataFrame:
    """A price list of a region as series; a negative time is before the clock's start."""
    parts = []
    for (instance_type, region), rows in log.sort_values(date).groupby(["instance_type", "region"]):
        since = pd.to_datetime(rows[date], utc=True) - pd.Timedelta(days=shift_days) - CLOCK_START
        table = _changes(since.dt.total_seconds(), rows[column])
        parts.append(
            _labelled(table, provider, str(region), "", str(instance_type), market, "price_usd_hour")
        )
    return pd.concat(parts)
