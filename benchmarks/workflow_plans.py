"""Seconds to plan a workflow of 1,000 steps on 20 clusters by annealing."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agents.workflows.planners import plan_workflow
from benchmarks.machine import one_core
from benchmarks.measurement import Measurement
from envs.simulation.streams import Streams
from envs.simulation.workflows.families import drawn_platform, family_workflow, scaled

STEPS = 1200
"""About: this draw has somewhat more than 1,000."""
CLUSTERS = 20
BAR_S = 5.0


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """CPU seconds with all checks, so that neighbours cost nothing; compiled before the clock starts."""
    random = Streams(0).generator("job_sizes")
    platform = drawn_platform(CLUSTERS, random)
    small = family_workflow("montage", 50, random, ("cluster-1",))
    drawn = small if smallest else family_workflow("montage", STEPS, random, ("cluster-1",))
    workflow = scaled(drawn, platform, 60.0, 1.0)
    with one_core():
        plan_workflow("annealing", small, platform)
        started = time.process_time()
        plan_workflow("annealing", workflow, platform)
        seconds = time.process_time() - started
    yield Measurement(
        f"a plan of {len(workflow.steps):,} steps on {CLUSTERS} clusters",
        seconds,
        "s",
        BAR_S,
        higher_is_better=False,
        note="Montage, annealing with its default settings, one core",
    )
