"""Random clusters, and workflows brought to the scale of a Spark workflow on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.simulation.workflows.model import Cluster, File, Link, Platform, Profile, Stage, Step, Workflow


def drawn_platform(clusters: int, random: np.random.Generator) -> Platform:
    """Clusters of 1 to 4 executors and speed 0.5 to 2, with 0.05 to 0.2 GB/s and 1 s between any two."""
    names = [f"cluster-{k + 1}" for k in range(clusters)]
    drawn = tuple(
        Cluster(name, int(random.integers(1, 5)), float(random.uniform(0.5, 2.0))) for name in names
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
        ratio: mean seconds of moving a file to a step that reads it, by `mean_run_s`; latency left out, and
            files that lie at every cluster.
    """
    work_s = [step.profile.stages[0].task_s for step in workflow.steps]
    longer = mean_run_s / float(np.mean(work_s))
    moves = {file.name: file.gb for file in workflow.files if len(file.at) < len(platform.clusters)}
    moved_gb = [moves[name] for step in workflow.steps for name in step.reads if name in moves]
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


def random_workflow(steps: int, random: np.random.Generator, home: str) -> Workflow:
    """A random graph: each two steps are joined with probability 0.3; run times and sizes vary tenfold.

    Steps of one executor take 10 to 100 s, files have 0.5 to 5 GB; each step without predecessors reads one
    that lies at `home`.
    """
    edges = [(i, j) for j in range(steps) for i in range(j) if random.random() < 0.3]
    files, made = [], []
    for i in range(steps):
        reads = [f"{a}-{b}" for a, b in edges if b == i]
        if not reads:
            files.append(File(f"in-{i}", float(random.uniform(0.5, 5.0)), (home,)))
            reads = [f"in-{i}"]
        writes = tuple(f"{a}-{b}" for a, b in edges if a == i)
        files += [File(name, float(random.uniform(0.5, 5.0))) for name in writes]
        profile = Profile((Stage(1, float(random.uniform(10.0, 100.0))),), executors=1)
        made.append(Step(f"step-{i}", profile, tuple(reads), writes))
    return Workflow("random", tuple(files), tuple(made))
