"""Makes the price list that ships, from the history of Google's prices that docs/traces.md describes.

    python -m spotweave.deploy.providers.gcp.build_prices FOLDER [--out prices.json]

FOLDER holds gcp_price_changes.csv and machine_types.csv. What they lack (attached GPUs, disks, moves of data)
is entered by hand below, with the published table that it was compared with.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spotweave.deploy.providers.gcp.prices import GPU_MEMORY_GIB, SHIPPED, PriceList
from spotweave.envs.traces.bundle import DATA_DIR
from spotweave.files import write_bytes

REGIONS = ("us-central1", "us-east1", "us-west1", "europe-west4")
FAMILIES = ("n1-standard", "n2-standard", "e2-standard", "a2-highgpu", "a2-ultragpu", "g2-standard")
SINCE = "2026-01-01"  # earlier steps are left out, but for the one in force then
_GPUS = {"nvidia-tesla-t4": 0.35, "nvidia-tesla-v100": 2.48}
_GPU_REGIONS = ("us-central1", "us-east1", "us-west1")
_DISKS = {"us-central1": 0.10, "us-east1": 0.10, "us-west1": 0.10, "europe-west4": 0.11}
_SOURCES = {
    "types": "https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator, 290 revisions, Apache-2.0, "
    "until 2026-07-30",
    "gpus": "on demand only: T4 and V100 in us-central1, us-east1 and us-west1 as in "
    "https://github.com/skypilot-org/skypilot-catalog, catalogs/v7/gcp/vms.csv, commit 017e2502",
    "disks": "pd-balanced as in https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator, "
    "pricing.yml of 2025-03-06, commit 0166a59",
    "egress": "to another cloud as in the same pricing.yml (the first TB of a month); between regions "
    "unverified: https://cloud.google.com/vpc/network-pricing, entered by hand in "
    "envs/traces/data/list_prices.json",
}


def build(folder: Path) -> PriceList:
    """The list. Raises OSError, ValueError."""
    changes: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with (folder / "gcp_price_changes.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            name, region = row["machine_type"], row["region"]
            if region not in REGIONS or name.rpartition("-")[0] not in FAMILIES:
                continue
            step: dict[str, Any] = {"since": f"{row['snapshot_date']}T00:00:00Z"}
            for column in ("on_demand_usd_hour", "spot_usd_hour"):
                if row[column]:
                    step[column] = round(float(row[column]), 6)
            changes.setdefault((region, name), []).append(step)
    regions: dict[str, dict[str, Any]] = {name: {"types": {}} for name in REGIONS}
    for (region, name), steps in sorted(changes.items()):
        steps.sort(key=lambda step: str(step["since"]))
        old = [step for step in steps if step["since"] < SINCE]
        regions[region]["types"][name] = [*old[-1:], *(step for step in steps if step["since"] >= SINCE)]
    for region, usd in _DISKS.items():
        regions[region]["disk_usd_gib_month"] = {"pd-balanced": usd}
    for region in _GPU_REGIONS:
        regions[region]["gpus"] = {
            name: [{"since": f"{SINCE}T00:00:00Z", "on_demand_usd_hour": usd}] for name, usd in _GPUS.items()
        }
    listed = {name for _, name in changes}
    with (folder / "machine_types.csv").open(newline="") as file:
        types = {
            row["machine_type"]: _hardware(row)
            for row in csv.DictReader(file)
            if row["machine_type"] in listed
        }
    gcp = json.loads((DATA_DIR / "list_prices.json").read_text())["gcp"]
    egress = {**gcp["inter_region_usd_per_gb"], "internet": gcp["internet_egress_usd_per_gb"]}
    return PriceList.model_validate(
        {"format": 1, "sources": _SOURCES, "types": types, "egress": egress, "regions": regions}
    )


def _hardware(row: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"vcpus": max(1, int(float(row["cpu"]))), "memory_gib": float(row["ram"])}
    # The source counts the 80 GB cards of a2-ultragpu under both columns, so the more special one wins.
    for column, gpu in (("a100-80gb", "A100-80GB"), ("a100", "A100"), ("l4", "L4")):
        if row[column] and float(row[column]) >= 1:
            count, memory_gib = int(float(row[column])), GPU_MEMORY_GIB[gpu]
            return {**found, "gpu": gpu, "gpus": count, "gpu_memory_gib": memory_gib}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spotweave.deploy.providers.gcp.build_prices")
    parser.add_argument("folder", type=Path, help="of the two files")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the list")
    given = parser.parse_args(arguments)
    try:
        made = build(given.folder)
        text = made.model_dump_json(indent=1, exclude_none=True, exclude_defaults=True)
        write_bytes(given.out, f"{text}\n".encode())
    except (OSError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
