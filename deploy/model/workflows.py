"""Workflows: Spark jobs that read each other's files, on several clusters (Liu 2022, chapter 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, FiniteFloat, model_validator

from spotweave.deploy.model.fields import (
    MAX_ARGUMENTS,
    MOST_SECONDS,
    MOST_TEXT_BYTES,
    Arguments,
    Gigabytes,
    Name,
    Path,
    Seconds,
    Text,
    Texts,
    Work,
    check_distinct,
    check_size,
)
from spotweave.deploy.model.gpus import GpuAsk
from spotweave.documents import StrictModel

# The description of a Spark application: a job of its own, or a step of a workflow.

FILE_CONF = ("spark.submit.pyFiles", "spark.files", "spark.jars", "spark.archives")
"""Settings that name files, separated by commas, which Spark gives to the driver and all executors."""


def _plain(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if "," in name or "#" in name:
            raise ValueError(f"{name!r} has a comma or #, by which Spark separates files: rename it")
    return names


class SparkProgram(StrictModel):
    """A script with its arguments, settings and modules."""

    script: Path
    """Python file or jar, relative to the job file."""
    args: Arguments = ()
    """Arguments, passed without a shell."""
    conf: Texts = Field(default_factory=dict)
    """Spark settings, except those that follow from the instances."""
    py_files: Annotated[tuple[Path, ...], Field(max_length=MAX_ARGUMENTS), AfterValidator(_plain)] = ()
    """Modules for driver and executors: .py, .zip, .egg files or folders."""

    @property
    def named_files(self) -> tuple[str, ...]:
        """Paths below the job file's folder that `py_files` and `conf` name; a URI is none."""
        configured = (name for key in FILE_CONF for name in split_names(self.conf.get(key, "")))
        return (*self.py_files, *(name.partition("#")[0] for name in configured if ":" not in name))


def split_names(names: str) -> list[str]:
    """Split a comma-separated list."""
    return [name.strip() for name in names.split(",") if name.strip()]


MOST_STEPS = 200
MOST_FILES = 1000


class InputFile(StrictModel):
    """A file or folder that exists before the workflow starts."""

    name: Name
    """The name that steps use."""
    path: Path
    """Below the region's `runners.data`; without `region`, next to the job file and sent with it."""
    region: Text | None = None
    """Region whose cluster keeps it; None: sent with the job."""
    gb: Gigabytes = 0.0
    """Size."""
    stays: bool = False
    """Private: read in its region only, never copied."""

    @model_validator(mode="after")
    def _somewhere(self) -> InputFile:
        if self.stays and self.region is None:
            raise ValueError(f"file {self.name!r} stays, and no region keeps it: give its region")
        return self


class OutputFile(StrictModel):
    """A file or folder that a step writes."""

    name: Name
    """The name that other steps use."""
    gb: Gigabytes = 0.0
    """Expected size."""
    stays: bool = False
    """Private to the region where its step ran."""


class Step(SparkProgram, GpuAsk):
    """One Spark application. `{NAME}` in an argument is the path of a file that it reads or writes."""

    name: Name
    """Unique in the workflow."""
    reads: Annotated[tuple[Name, ...], Field(max_length=MOST_FILES)] = ()
    """Names of files of the workflow or of other steps."""
    writes: Annotated[tuple[OutputFile, ...], Field(min_length=1, max_length=MOST_FILES)]
    """Files for other steps, and results."""
    minutes: Annotated[FiniteFloat, Field(gt=0, le=MOST_SECONDS / 60)]
    """Expected run time with all executors at `profile.reference_speed`."""
    executors: Annotated[int, Field(gt=0, le=1000)] = 1
    """Instances, one executor each."""
    vcpus: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """Minimum cores; None: as in `resources`."""
    memory_gib: Annotated[FiniteFloat, Field(ge=0.001, le=1e5)] | None = None
    """Minimum memory; None: as in `resources`."""
    region: Text | None = None
    """Required region; None: any where its files may be read."""


class Workflow(Work):
    """Spark applications that read each other's files; each step is a task."""

    kind: Literal["workflow"] = "workflow"
    files: Annotated[tuple[InputFile, ...], Field(max_length=MOST_FILES)] = ()
    """Files that exist before it starts."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=MOST_STEPS)]
    """In any order; each waits for the steps whose files it reads."""
    deadline_s: Seconds | None = None
    """From submission to the end of the last step."""

    @model_validator(mode="after")
    def _graph(self) -> Workflow:
        check_distinct("steps", self.task_names)
        names = [file.name for file in self.files] + [file.name for file in self._outputs()]
        check_distinct("files", names)
        known = set(names)
        for step in self.steps:
            for name in step.reads:
                if name not in known:
                    raise ValueError(
                        f"step {step.name!r} reads {name!r}, which is no file of the workflow: name it under "
                        "files, or under writes of a step"
                    )
        try:
            self.order()
        except CycleError as error:
            # The sorter names what is waited for first.
            ring = " for ".join(repr(name) for name in reversed(error.args[1]))
            raise ValueError(f"steps wait for each other: {ring}; take one of these files away") from error
        check_size(self.words, MOST_TEXT_BYTES)
        configured = (text for step in self.steps for entry in step.conf.items() for text in entry)
        check_size(configured, MOST_TEXT_BYTES)
        return self

    @model_validator(mode="after")
    def _private(self) -> Workflow:
        for name, regions in self._bound().items():
            if len(regions) > 1:
                told = ", ".join(f"{why} in {region}" for region, why in sorted(regions.items()))
                raise ValueError(
                    f"step {name!r} could run nowhere: {told}; let a step in each write what may leave it"
                )
            for file in self.step(name).writes:
                if file.stays and not regions:
                    raise ValueError(
                        f"file {file.name!r} stays where step {name!r} runs, which may be anywhere: give "
                        "that step a region"
                    )
        return self

    @property
    def task_names(self) -> tuple[str, ...]:
        """See Work."""
        return tuple(step.name for step in self.steps)

    @property
    def words(self) -> tuple[str, ...]:
        """See Work."""
        sent = tuple(file.path for file in self.files if file.region is None)
        named = (word for step in self.steps for word in (step.script, *step.args, *step.named_files))
        return (*named, *sent)

    @property
    def standard_s(self) -> float:
        """Expected seconds of its longest chain of steps (the critical path), starts left out."""
        follow_s = self._follow_s(0.0)
        return max(self.standard_s_of(name) + follow_s[name] for name in follow_s)

    def step(self, name: str) -> Step:
        """One of them. Raises KeyError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)

    def graph(self) -> dict[str, tuple[str, ...]]:
        """By step: those whose files it reads."""
        writers = self.written_by()
        return {
            step.name: tuple(dict.fromkeys(writers[name] for name in step.reads if name in writers))
            for step in self.steps
        }

    def order(self) -> tuple[str, ...]:
        """Names of the steps, each after those whose files it reads. Raises graphlib.CycleError."""
        return tuple(TopologicalSorter(self.graph()).static_order())

    def written_by(self) -> Mapping[str, str]:
        """By file: the step that writes it."""
        return {file.name: step.name for step in self.steps for file in step.writes}

    def before(self, task: str) -> tuple[str, ...]:
        """See Work."""
        return self.graph()[task]

    def region_of(self, task: str) -> str | None:
        """See Work."""
        return next(iter(self._bound()[task]), None)

    def sizes_gb(self) -> Mapping[str, float]:
        """By file: what it holds, as was declared."""
        sizes_gb = {file.name: file.gb for file in self.files}
        return sizes_gb | {file.name: file.gb for file in self._outputs()}

    def standard_s_of(self, task: str) -> float:
        """Expected seconds of a step at the reference speed."""
        return 60.0 * self.step(task).minutes

    def after_s(self, task: str, start_s: float = 0.0) -> float:
        """Expected seconds from the end of a step to that of the whole, at the reference speed.

        The longest chain of steps that follows it: the step's latest end is the deadline less this.

        Args:
            task: the step.
            start_s: what each further step takes until it works.
        """
        return self._follow_s(start_s)[task]

    def waiting_for(self, task: str) -> int:
        """Steps that wait for a step, or for one that waits for it."""
        graph, waiting = self.graph(), {task}
        for name in self.order():
            if not waiting.isdisjoint(graph[name]):
                waiting.add(name)
        return len(waiting) - 1

    def _follow_s(self, start_s: float) -> dict[str, float]:
        graph, follow_s = self.graph(), dict.fromkeys(self.task_names, 0.0)
        for name in reversed(self.order()):
            whole_s = start_s + self.standard_s_of(name) + follow_s[name]
            for before in graph[name]:
                follow_s[before] = max(follow_s[before], whole_s)
        return follow_s

    def asks(self, task: str) -> Mapping[str, object]:
        """See Work."""
        step = self.step(task)
        asked = {"instances": step.executors, "vcpus": step.vcpus, "memory_gib": step.memory_gib}
        return {name: value for name, value in asked.items() if value is not None} | step.asked_gpus

    def _outputs(self) -> Iterator[OutputFile]:
        return (file for step in self.steps for file in step.writes)

    def _bound(self) -> dict[str, dict[str, str]]:
        """By step: the regions where it must run, each with the reason; with two it could run nowhere."""
        private = {file.name: file.region for file in self.files if file.stays}
        kept = {file.name for file in self._outputs() if file.stays}
        writers, found = self.written_by(), dict[str, dict[str, str]]()
        # Each after those whose files it reads, once: there may be very many ways through the graph.
        for name in self.order():
            step = self.step(name)
            mine = {} if step.region is None else {step.region: "it shall run"}
            for file in step.reads:
                region = private.get(file)
                regions = found[writers[file]] if file in kept else () if region is None else (region,)
                for one in regions:
                    mine.setdefault(one, f"{file!r} stays")
            found[name] = mine
        return found
