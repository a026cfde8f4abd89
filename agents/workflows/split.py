"""The workflow transformation of Liu 2022, Algorithm 1: steps are divided among clusters, or combined."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from spotweave.envs.simulation.workflows.model import (
    File,
    Platform,
    Profile,
    Step,
    Workflow,
    files_by_name,
    input_gb,
)
from spotweave.envs.simulation.workflows.problem import fits, require_sound, writers


@dataclass(frozen=True)
class SplitSettings:
    """When steps are divided or combined."""

    block_gb: float = 0.128  # blocksize, that of HDFS
    # threshold1; None for the print's 10 times the executors of the largest cluster
    most_blocks: float | None = None
    # threshold2, the share of what steps write in all below which they are combined; the print gives none
    combined_share: float = 0.5
    # the most clusters that a step without dependencies is divided among; None: all that have its input
    most_parts: int | None = None


def transform(workflow: Workflow, platform: Platform, settings: SplitSettings | None = None) -> Workflow:
    """Algorithm 1. Only steps that are declared divisible are divided.

    The parts of a step without dependencies are in proportion to the executors and speed of the clusters that
    have its input, as those of Table 3.1; those of others are equal.

    Raises:
        WorkflowError: if the workflow is not sound.
    """
    chosen = settings or SplitSettings()
    most_blocks = chosen.most_blocks
    if most_blocks is None:
        most_blocks = 10.0 * max(cluster.executors for cluster in platform.clusters)
    divided: set[str] = set()
    for step in require_sound(workflow).steps:
        shares = _shares(workflow, platform, step.name, chosen, most_blocks)
        if len(shares) > 1:
            before = {one.name for one in workflow.steps}
            workflow = _divide(workflow, step.name, shares)
            divided |= {one.name for one in workflow.steps} - before
    while combined := _combine(workflow, platform, divided, chosen, most_blocks):
        workflow = combined
    return require_sound(workflow)


def _shares(
    workflow: Workflow, platform: Platform, name: str, settings: SplitSettings, most_blocks: float
) -> list[float]:
    """The shares into which a step is divided, lines 3 to 8; one if it is not."""
    step = next(one for one in workflow.steps if one.name == name)
    files, written = files_by_name(workflow), writers(workflow)
    blocks = input_gb(step, files) / settings.block_gb
    if step.divisible is None or blocks <= most_blocks:
        return [1.0]
    if any(read in written for read in step.reads):
        parts = math.ceil(blocks / most_blocks)
        return [1 / parts] * parts
    power = [
        cluster.executors * cluster.speed
        for cluster in platform.clusters
        if fits(step, cluster) and all(cluster.name in files[read].at for read in step.reads)
    ]
    power = sorted(power, reverse=True)[: settings.most_parts]
    return [one / sum(power) for one in power]


def _divide(workflow: Workflow, name: str, shares: list[float]) -> Workflow:
    """One step becomes a part for each share and a step that collects what the parts write."""
    step = next(one for one in workflow.steps if one.name == name)
    divisible = step.divisible
    assert divisible is not None
    pieces = {read: [f"{read}.{k + 1}" for k in range(len(shares))] for read in step.reads}
    results = [f"{name}-{k + 1}.part" for k in range(len(shares))]
    files: list[File] = []
    for file in workflow.files:
        if file.name in pieces:
            files += [
                replace(file, name=piece, gb=file.gb * share)
                for piece, share in zip(pieces[file.name], shares, strict=True)
            ]
        else:
            files.append(file)
    files += [File(result, divisible.part_gb) for result in results]
    parts = [
        replace(
            step,
            name=f"{name}-{k + 1}",
            profile=_of_share(step.profile, share),
            reads=tuple(pieces[read][k] for read in step.reads),
            writes=(results[k],),
            divisible=None,
        )
        for k, share in enumerate(shares)
    ]
    collect = Step(f"{name}-collect", divisible.collect, tuple(results), step.writes, step.clusters)
    others = [
        replace(
            one,
            reads=tuple(piece for read in one.reads for piece in pieces.get(read, [read])),
            writes=tuple(piece for file in one.writes for piece in pieces.get(file, [file])),
        )
        for one in workflow.steps
        if one.name != name
    ]
    return replace(workflow, files=tuple(files), steps=(*others, *parts, collect))


def _of_share(profile: Profile, share: float) -> Profile:
    """The profile of a part.

    What was profiled with a sample follows its input (Eq. 3.2). Otherwise there are fewer tasks, and shuffles
    take as long as before: so it is in Table 3.1, where a tenth of the text has almost as many words.
    """
    if profile.run_s:
        return replace(profile, run_s={name: seconds * share for name, seconds in profile.run_s.items()})
    if profile.sample_gb is not None:
        return profile
    # Without the rounding errors of shares, which would add a task.
    stages = (replace(one, tasks=math.ceil(one.tasks * share - 1e-9)) for one in profile.stages)
    return replace(profile, stages=tuple(stages))


def _combine(
    workflow: Workflow, platform: Platform, divided: set[str], settings: SplitSettings, most_blocks: float
) -> Workflow | None:
    """Lines 13 to 17 for the first step for which they hold; None if there is none."""
    files, written = files_by_name(workflow), writers(workflow)
    readers = Counter(read for step in workflow.steps for read in step.reads)
    for step in workflow.steps:
        before = list({written[read].name: written[read] for read in step.reads if read in written}.values())
        inner = [file for one in before for file in one.writes]
        if (
            not before
            or any(one.name in divided for one in (step, *before))
            or input_gb(step, files) / settings.block_gb >= most_blocks
            # What others read as well must not wait for the whole.
            or any(readers[file] != 1 or file not in step.reads for file in inner)
        ):
            continue
        new_gb = sum(files[file].gb for file in step.writes)
        old_gb = new_gb + sum(files[file].gb for file in inner)
        if old_gb == 0 or new_gb / old_gb >= settings.combined_share:
            continue
        whole = _joined([*before, step], inner, files)
        if whole is None or not _has_input(whole, platform, files, written):
            continue
        members = {one.name for one in (*before, step)}
        return replace(
            workflow,
            files=tuple(file for file in workflow.files if file.name not in inner),
            steps=(*(one for one in workflow.steps if one.name not in members), whole),
        )
    return None


def _joined(members: list[Step], inner: list[str], files: dict[str, File]) -> Step | None:
    """One step that does the members' work one after the other; None where their profiles do not add up."""
    if any(one.profile.run_s or one.divisible for one in members):
        return None
    stages = []
    for one in members:
        sample_gb = one.profile.sample_gb
        ratio = 1.0 if sample_gb is None else input_gb(one, files) / sample_gb
        stages += [
            replace(stage, task_s=stage.task_s * ratio, shuffle_s=stage.shuffle_s * ratio)
            for stage in one.profile.stages
        ]
    needs = [one.profile.executors for one in members]
    limited = [set(one.clusters) for one in members if one.clusters]
    clusters = set.intersection(*limited) if limited else set()
    if limited and not clusters:
        return None
    return Step(
        "+".join(one.name for one in members),
        Profile(
            tuple(stages),
            executors=None if None in needs else max(need for need in needs if need is not None),
            memory_gib=max(one.profile.memory_gib for one in members),
        ),
        tuple(dict.fromkeys(read for one in members for read in one.reads if read not in inner)),
        members[-1].writes,
        tuple(sorted(clusters)),
    )


def _has_input(whole: Step, platform: Platform, files: dict[str, File], written: dict[str, Step]) -> bool:
    """Whether one cluster that may run the whole has all of its input that no step writes."""
    given = [files[read] for read in whole.reads if read not in written]
    return any(
        fits(whole, cluster) and all(cluster.name in file.at for file in given)
        for cluster in platform.clusters
    )
