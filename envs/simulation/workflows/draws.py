"""Random clusters, and workflows brought to the scale of a Spark workflow on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.simulation.workflows.checks import writers
from envs.simulation.workflows.model import Cluster, Link, Platform, Stage, Workflow

REGIONS = ("eu", "us")


def drawn_platform(clusters: int, random: np.random.Generator) -> Platform:
    """Clusters of 1 to 4 executors and speed 0.5 to 2, with 0.05 to 0.2 GB/s and 1 s between any two."""
    names = [f"cluster-{k + 1}" for k in range(clusters)]
    drawn = tuple(
        Cluster(
            name,
            int(random.integers(1, 5)),
            float(random.uniform(0.5, 2.0)),
            region=REGIONS[k % len(REGIONS)],
        )
        for k, name in enumerate(names)
    )
    pairs = {
        frozenset((one, other)): Link(float(random.uniform(0.05, 0.2)), 1.0)
        for k, one in enumerate(names)
        for other in names[:k]
    }
    return Platform(drawn, Link(0.1, 1.0), pairs)


def scaled(workflow: Workflow, platform: Platform, mean_run_s: float, ratio: float) -> Workflow:
    """The workflow with a mean run time and a communication-to-computation ratio (CCR; Topcuoglu 2002).

    The proportions among run times and among sizes remain.

    Args:
        workflow: each step of one stage.
        platform: whose mean bandwidth counts.
        mean_run_s: of the steps on one executor of speed 1.
        ratio: mean seconds of moving what one step writes for another, by `mean_run_s`; latency left out.
    """
    work_s = [step.profile.stages[0].task_s for step in workflow.steps]
    longer = mean_run_s / float(np.mean(work_s))
    written, sizes = writers(workflow), {file.name: file.gb for file in workflow.files}
    moved_gb = [sizes[name] for step in workflow.steps for name in step.reads if name in written]
    s_gb = float(np.mean([1 / link.gb_s for link in (*platform.pairs.values(), platform.link)]))
    larger = ratio * mean_run_s / (float(np.mean(moved_gb)) * s_gb)
    steps = tuple(
        replace(
            step,
            profile=replace(step.profile, stages=(Stage(1, step.profile.stages[0].task_s * longer),)),
        )
        for step in workflow.steps
    )
    files = tuple(replace(file, gb=file.gb * larger) for file in workflow.files)
    return replace(workflow, files=files, steps=steps)
