"""How long steps take on clusters: Liu 2022, Eq. 3.1 and 3.2."""

from __future__ import annotations

from envs.simulation.workflows.model import Cluster, File, Stage, Step, Workflow


def stage_s(stage: Stage, executors: int, speed: float = 1.0) -> float:
    """Eq. 3.1: l * a / c seconds. The number of waves a / c is not rounded, as in the print.

    Args:
        stage: its tasks and their mean seconds.
        executors: c.
        speed: of an executor.
    """
    return stage.task_s * stage.tasks / (executors * speed)


def run_s(step: Step, input_gb: float, cluster: Cluster) -> float:
    """Eq. 3.2: seconds that a step runs on a cluster; as measured where its profile says so.

    Args:
        step: it must fit on the cluster.
        input_gb: InputSize, all that it reads.
        cluster: where it runs.
    """
    profile = step.profile
    if profile.run_s:
        return profile.run_s[cluster.name]
    ratio = 1.0 if profile.sample_gb is None else input_gb / profile.sample_gb
    executors = occupied(step, cluster)
    computing_s = sum(stage_s(stage, executors, cluster.speed) for stage in profile.stages)
    return ratio * (computing_s + sum(stage.shuffle_s for stage in profile.stages) * cluster.network_factor)


def occupied(step: Step, cluster: Cluster) -> int:
    """Executors of the cluster that the step occupies."""
    return cluster.executors if step.profile.executors is None else step.profile.executors


def input_gb(step: Step, files: dict[str, File]) -> float:
    """What a step reads in all, GB."""
    return sum(files[name].gb for name in step.reads)


def files_by_name(workflow: Workflow) -> dict[str, File]:
    """The files of a workflow by name."""
    return {file.name: file for file in workflow.files}
