"""What runs and where it may run: steps, files, clusters and the network (Liu 2022, chapter 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spotweave.envs.simulation.world import WorldError


class Stays(StrEnum):
    """How far a file may be moved from where it lies at the start."""

    FREE = "free"
    REGION = "region"
    """Only to clusters of the regions in which it lies."""
    CLUSTER = "cluster"
    """Not at all."""


@dataclass(frozen=True)
class File:
    """What a step reads or writes."""

    name: str  # unique in its workflow
    gb: float  # its size
    # names of the clusters with a copy at the start; none for a file that a step writes
    at: tuple[str, ...] = ()
    stays: Stays = Stays.FREE  # how far it may be moved


@dataclass(frozen=True)
class Stage:
    """One stage of a Spark job, as profiled."""

    tasks: int  # a of Eq. 3.1, the most tasks in an RDD of the stage
    task_s: float  # l of Eq. 3.1, mean seconds of a task on an executor of speed 1
    # ST of Eq. 3.2, seconds of the shuffle after it at network factor 1; 0 if there is none
    shuffle_s: float = 0.0


@dataclass(frozen=True)
class Profile:
    """What a step needs and how long it takes: profiled stages, or seconds measured on each cluster."""

    stages: tuple[Stage, ...] = ()  # for Eq. 3.2; empty where `run_s` is given
    # SampleSize of Eq. 3.2, the input that was profiled; None if it was all that the step reads
    sample_gb: float | None = None
    # measured seconds by the name of the cluster; a cluster that it lacks cannot run the step
    run_s: Mapping[str, float] = field(default_factory=dict)
    executors: int | None = None  # how many it occupies from start to end; None for all of the cluster
    memory_gib: float = 0.0  # of each executor


@dataclass(frozen=True)
class Divisible:
    """How a step's input may be divided among parts of the step (Liu 2022, Algorithm 1)."""

    part_gb: float  # what each part writes
    # of the step that reads what the parts have written and writes what the whole step would have
    collect: Profile


@dataclass(frozen=True)
class Step:
    """A component job of a workflow."""

    name: str  # unique in its workflow
    profile: Profile  # what it needs and how long it takes
    reads: tuple[str, ...] = ()  # names of files; all must be at its cluster before it starts
    writes: tuple[str, ...] = ()  # names of files; they are at its cluster when it ends
    clusters: tuple[str, ...] = ()  # names of the only clusters that may run it; empty if any may
    divisible: Divisible | None = None  # how it may be divided; None if it may not


@dataclass(frozen=True)
class Workflow:
    """A directed acyclic graph of steps, whose edges are files."""

    name: str  # for people
    files: tuple[File, ...]  # all that its steps read and write
    steps: tuple[Step, ...]  # in any order
    # seconds after the start by which all steps shall have ended; None if there is none
    deadline_s: float | None = None

    def file(self, name: str) -> File:
        """The file of that name; it must exist."""
        return next(file for file in self.files if file.name == name)


@dataclass(frozen=True)
class Cluster:
    """Executors that steps can be put on."""

    name: str  # unique
    executors: int  # how many there are
    speed: float = 1.0  # of an executor; a step's stages take 1 / speed as long
    network_factor: float = 1.0  # nF of Eq. 3.2; a shuffle takes so many times as long
    memory_gib: float = math.inf  # of an executor
    region: str = ""  # for files that may not leave theirs
    price_usd_hour: float = 0.0  # of an executor while a step occupies it; 0 if owned


@dataclass(frozen=True)
class Link:
    """The network between two clusters."""

    gb_s: float  # bandwidth
    # seconds that moving a file takes whatever its size, such as the start of `hdfs distcp`
    latency_s: float = 0.0

    def transfer_s(self, gb: float) -> float:
        """Seconds that moving a file of this size takes: IMO of Eq. 3.3."""
        return self.latency_s + gb / self.gb_s


@dataclass(frozen=True)
class Platform:
    """Clusters and the network between them."""

    clusters: tuple[Cluster, ...]  # where steps may run
    link: Link  # between any two clusters that `pairs` does not hold
    # links by the names of the two clusters, in either order
    pairs: Mapping[frozenset[str], Link] = field(default_factory=dict)

    def cluster(self, name: str) -> Cluster:
        """The cluster of that name; it must exist."""
        return next(cluster for cluster in self.clusters if cluster.name == name)

    def between(self, source: str, target: str) -> Link:
        """The link from one cluster, by name, to another; within one nothing takes time."""
        if source == target:
            return Link(math.inf)
        return self.pairs.get(frozenset((source, target)), self.link)

    def transfer_s(self, gb: float, source: str, target: str) -> float:
        """Seconds that a file takes from one cluster, by name, to another."""
        return self.between(source, target).transfer_s(gb)


class WorkflowError(WorldError):
    """A mistake in a workflow, its clusters or a plan that its user can mend; the message is one line."""


# How long steps take on clusters: Liu 2022, Eq. 3.1 and 3.2.


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
