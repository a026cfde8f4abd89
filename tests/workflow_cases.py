"""Small workflows: by hand, and drawn."""

from __future__ import annotations

import copy
from typing import Any

# Two private halves are summed where they lie, and joined at the centre.
GIS: dict[str, Any] = {
    "name": "gis",
    "deadline_s": 600.0,
    "files": {
        "half-1": {"gb": 5.0, "at": ["first"], "stays": True},
        "half-2": {"gb": 5.0, "at": ["second"]},
        "sums-1": {"gb": 0.5},
        "sums-2": {"gb": 0.5},
        "means": {"gb": 0.25},
    },
    "steps": {
        "sum-1": {
            "reads": ["half-1"],
            "writes": ["sums-1"],
            "stages": [{"tasks": 8, "task_s": 6.0, "shuffle_s": 2.0}, {"tasks": 4, "task_s": 3.0}],
            "sample_gb": 2.5,
        },
        "sum-2": {"reads": ["half-2"], "writes": ["sums-2"], "stages": [{"tasks": 8, "task_s": 6.0}]},
        "mean": {"reads": ["sums-1", "sums-2"], "writes": ["means"], "run_s": {"first": 10.0, "centre": 4.0}},
    },
    "clusters": {
        "first": {"executors": 4, "region": "eu"},
        "second": {"executors": 4, "region": "us", "speed": 2.0, "network_factor": 3.0},
        "centre": {"executors": 8, "region": "eu", "memory_gib": 16.0, "price_usd_hour": 0.5},
    },
    "network": {
        "gb_s": 0.1,
        "latency_s": 20.0,
        "pairs": [{"between": ["first", "second"], "gb_s": 0.05, "latency_s": 1.0}],
    },
}


def changed(path: str, value: object) -> dict[str, Any]:
    """GIS with the entry at a dotted path replaced, or removed where the value is None."""
    document = copy.deepcopy(GIS)
    *parents, last = path.split(".")
    entry = document
    for key in parents:
        entry = entry[key]
    if value is None:
        del entry[last]
    else:
        entry[last] = value
    return document
