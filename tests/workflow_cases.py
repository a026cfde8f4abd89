"""Small workflows: by hand, and drawn."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from spotweave.envs.simulation.workflows import model
from tests.envs.checks import put

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
    return put(GIS, path.replace(".", "/"), ... if value is None else value)


# Topcuoglu, Hariri and Wu 2002, Figure 2: seconds of 10 tasks on three processors, and what their edges cost.
RUN_S = (
    (14, 13, 11, 13, 12, 13, 7, 5, 18, 21),
    (16, 19, 13, 8, 13, 16, 15, 11, 12, 7),
    (9, 18, 19, 17, 10, 9, 11, 14, 20, 16),
)
"""Of the first processor, the second and the third."""
EDGES = {
    1: {2: 18, 3: 12, 4: 9, 5: 11, 6: 14},
    2: {8: 19, 9: 16},
    3: {7: 23},
    4: {8: 27, 9: 23},
    5: {9: 13},
    6: {8: 15},
    7: {10: 17},
    8: {10: 11},
    9: {10: 13},
}


def topcuoglu() -> tuple[model.Workflow, model.Platform]:
    """The example of HEFT's and CPOP's publication; 1 GB takes 1 s."""
    files = {(a, b): model.File(f"{a}-{b}", float(gb)) for a, ends in EDGES.items() for b, gb in ends.items()}
    steps = tuple(
        model.Step(
            str(i),
            model.Profile(run_s={f"p{k}": float(row[i - 1]) for k, row in enumerate(RUN_S, start=1)}),
            tuple(file.name for (_, b), file in files.items() if b == i),
            tuple(file.name for (a, _), file in files.items() if a == i),
        )
        for i in range(1, 11)
    )
    return model.Workflow("figure 2", tuple(files.values()), steps), model.Platform(
        tuple(model.Cluster(f"p{k}", 1) for k in (1, 2, 3)), model.Link(1)
    )


@st.composite
def drawn(
    draw: st.DrawFn, most_steps: int = 8, most_clusters: int = 3
) -> tuple[model.Workflow, model.Platform]:
    """A random graph whose first file may be private, on clusters of one to three executors."""
    n = draw(st.integers(1, most_steps))
    clusters = tuple(
        model.Cluster(
            f"c{k}", draw(st.integers(1, 3)), draw(st.sampled_from((0.5, 1.0, 2.0))), region=f"r{k % 2}"
        )
        for k in range(draw(st.integers(1, most_clusters)))
    )
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if draw(st.booleans())]
    files = [
        model.File(
            "in", draw(st.sampled_from((0.0, 4.0))), ("c0",), draw(st.sampled_from(tuple(model.Stays)))
        )
    ]
    files += [model.File(f"{i}-{j}", draw(st.sampled_from((0.0, 1.0, 5.0)))) for i, j in edges]
    steps = tuple(
        model.Step(
            f"s{i}",
            model.Profile(
                (model.Stage(draw(st.integers(1, 4)), draw(st.sampled_from((0.0, 2.0, 3.5))), 1.0),),
                executors=draw(st.sampled_from((None, 1))),
            ),
            (*(("in",) if draw(st.booleans()) else ()), *(f"{a}-{b}" for a, b in edges if b == i)),
            tuple(f"{a}-{b}" for a, b in edges if a == i),
        )
        for i in range(n)
    )
    return model.Workflow("drawn", tuple(files), steps), model.Platform(clusters, model.Link(1.0, 0.5))
