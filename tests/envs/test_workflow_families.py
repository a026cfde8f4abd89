"""Workflow files and recorded workflows read, and random ones of families: structure, mistakes and scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spotweave.envs.documents.workflows import (
    is_instance,
    workflow_document,
    workflow_of,
    workflow_of_instance,
)
from spotweave.envs.simulation.workflows.families import FAMILIES, drawn_platform, family_workflow, scaled
from spotweave.envs.simulation.workflows.model import Stays, WorkflowError, files_by_name, run_s, stage_s
from spotweave.envs.simulation.workflows.problem import allowed, predecessors, require_runnable, require_sound
from tests.envs.checks import put, refused
from tests.workflow_cases import GIS, changed


def task(name: str, parents: list[str], children: list[str], **files: list[str]) -> dict[str, Any]:
    return {"name": name, "id": f"{name}1", "parents": parents, "children": children, **files}


# a splits a text for b and c; d waits for both, but reads only what c wrote.
SINCE_1_5: dict[str, Any] = {
    "name": "by hand",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                task("a", [], ["b1", "c1"], inputFiles=["text"], outputFiles=["x", "y"]),
                task("b", ["a1"], ["d1"], inputFiles=["x"]),
                task("c", ["a1"], ["d1"], inputFiles=["y"], outputFiles=["z"]),
                task("d", ["b1", "c1"], [], inputFiles=["z"]),
            ],
            "files": [
                {"id": "text", "sizeInBytes": 2_000_000_000},
                {"id": "x", "sizeInBytes": 500_000_000},
                {"id": "y", "sizeInBytes": 1_500_000_000},
                {"id": "z", "sizeInBytes": 0},
            ],
        },
        "execution": {
            "makespanInSeconds": 20,
            "executedAt": "20201219T213153Z",
            "tasks": [
                {"id": "a1", "runtimeInSeconds": 5.0},
                {"id": "b1", "runtimeInSeconds": 3.0, "coreCount": 2.0, "memoryInBytes": 4 * 2**30},
                {"id": "c1", "runtimeInSeconds": 4.0},
                {"id": "d1", "runtimeInSeconds": 1.0},
            ],
        },
    },
}


def until_1_4(version: str) -> dict[str, Any]:
    """The same instance as versions up to 1.4 write it."""
    old = version != "1.4"
    specification = SINCE_1_5["workflow"]["specification"]
    ran = {entry["id"]: entry for entry in SINCE_1_5["workflow"]["execution"]["tasks"]}
    sizes = {entry["id"]: entry["sizeInBytes"] for entry in specification["files"]}
    tasks = []
    for one in specification["tasks"]:
        entry: dict[str, Any] = {"name": one["id"], "type": "compute", "parents": one["parents"]}
        entry["runtime" if old else "runtimeInSeconds"] = ran[one["id"]]["runtimeInSeconds"]
        if "coreCount" in ran[one["id"]]:
            entry["cores"] = 2
            entry["memory" if old else "memoryInBytes"] = 4 * 2**30 / (1000 if old else 1)
        entry["files"] = [
            {"link": link, "name": name, "size" if old else "sizeInBytes": sizes[name]}
            for link, key in (("input", "inputFiles"), ("output", "outputFiles"))
            for name in one.get(key, [])
        ]
        tasks.append(entry)
    key = "jobs" if version < "1.3" else "tasks"
    return {"name": "by hand", "schemaVersion": version, "workflow": {key: tasks}}


@pytest.mark.parametrize("version", ["1.0", "1.3", "1.4", "1.5", "1.6"])
def test_an_instance_of_each_version_is_the_same_workflow(version: str) -> None:
    document = {**SINCE_1_5, "schemaVersion": version} if version in ("1.5", "1.6") else until_1_4(version)
    assert is_instance(document)
    workflow = workflow_of_instance(document, "home")
    assert predecessors(workflow) == {"a1": (), "b1": ("a1",), "c1": ("a1",), "d1": ("c1", "b1")}
    files = files_by_name(workflow)
    sizes_gb = {"text": 2.0, "x": 0.5, "y": 1.5, "z": 0.0, "b1 before d1": 0.0}
    assert {name: file.gb for name, file in files.items()} == sizes_gb
    assert files["text"].at == ("home",)
    b = workflow.steps[1].profile
    assert (b.executors, b.stages[0].tasks, b.stages[0].task_s, b.memory_gib) == (2, 2, 3.0, 2.0)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schemaVersion", "0.2", "schemaVersion is '0.2', expected one of 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6"),
        ("workflow/specification/tasks/3/parents", ["e1"], "task 'd1' has the parent 'e1', which is no task"),
        ("workflow/specification/files/1", ..., "file 'x' has no size"),
        ("workflow/execution/tasks/2", ..., "task 'c1' has no run time"),
        (
            "workflow/execution/tasks/0/runtimeInSeconds",
            -5,
            "tasks.a1.run_s: input should be greater",
        ),
        ("workflow/execution", ..., "has no execution, so that its run times are unknown"),
        ("workflow/specification/tasks", [["a1"]], "does not follow WfFormat"),
    ],
)
def test_a_broken_instance_is_one_line(path: str, value: Any, said: str) -> None:
    with refused(WorkflowError, said):
        workflow_of_instance(put(SINCE_1_5, path, value), "home")


@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_family_gives_sound_workflows_of_about_the_size_that_repeat(name: str) -> None:
    random = np.random.default_rng(5)
    platform = drawn_platform(4, random)
    workflow = require_sound(family_workflow(name, 60, random, ("cluster-1",)))
    require_runnable(workflow, platform)
    assert 0.5 * 60 <= len(workflow.steps) <= 1.6 * 60
    random = np.random.default_rng(5)
    assert drawn_platform(4, random) == platform
    assert family_workflow(name, 60, random, ("cluster-1",)) == workflow


def kinds(name: str) -> dict[str, set[str]]:
    """For each kind of step the kinds that it waits for."""
    workflow = family_workflow(name, 60, np.random.default_rng(0), ("cluster-1",))
    found: dict[str, set[str]] = {}
    for step, before in predecessors(workflow).items():
        kind = step.rpartition("-")[0]
        found.setdefault(kind, set()).update(one.rpartition("-")[0] for one in before)
    return found


def test_families_have_their_recorded_structure() -> None:
    # montage-chameleon-2mass-005d-001
    assert kinds("montage") == {
        "mProject": set(),
        "mDiffFit": {"mProject"},
        "mConcatFit": {"mDiffFit"},
        "mBgModel": {"mConcatFit"},
        "mBackground": {"mBgModel", "mProject"},
        "mImgtbl": {"mBackground"},
        "mAdd": {"mImgtbl", "mBackground"},
        "mViewer": {"mAdd"},
    }
    # epigenomics-chameleon-hep-1seq-100k-001
    assert kinds("epigenomics")["mapMerge"] == {"map", "mapMerge"}
    # 1000genome-chameleon-2ch-250k-001
    assert kinds("1000genome")["frequency"] == {"individuals_merge", "sifting"}
    # cycles-chameleon-1l-1c-9p-001
    assert kinds("cycles")["fertilizer_increase_output_parser"] == {"cycles", "fertilizer_increase_cycles"}
    # soykb-chameleon-10fastq-10ch-001
    assert kinds("soykb")["indel_realign"] == {"add_replace", "realign_target_creator"}
    assert kinds("soykb")["genotype_gvcfs"] == {"haplotype_caller"}
    # bwa-chameleon-small-001
    assert kinds("bwa")["bwa"] == {"fastq_reduce", "bwa_index"}


def test_a_scaled_workflow_has_the_mean_run_time_and_ratio_asked_for() -> None:
    random = np.random.default_rng(1)
    platform = drawn_platform(4, random)
    workflow = scaled(family_workflow("epigenomics", 40, random, ("cluster-1",)), platform, 60.0, 0.5)
    assert np.mean([step.profile.stages[0].task_s for step in workflow.steps]) == pytest.approx(60)
    # The inputs lie at one cluster of four, so that they may have to be moved as well.
    files = files_by_name(workflow)
    moved_gb = np.mean([files[name].gb for step in workflow.steps for name in step.reads])
    s_gb = np.mean([1 / link.gb_s for link in (*platform.pairs.values(), platform.link)])
    assert moved_gb * s_gb == pytest.approx(30)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(WorkflowError, match="no family 'sipht': use 1000genome"):
        family_workflow("sipht", 10, np.random.default_rng(0), ("a",))


@pytest.mark.parametrize(("parents", "children"), [([], ["b"]), (["a"], []), (["a"], ["b"])])
def test_an_edge_of_parents_or_of_children_is_an_edge(parents: list[str], children: list[str]) -> None:
    first = {"id": "a", "parents": [], "children": children}
    tasks = [first, {"id": "b", "parents": parents, "children": []}]
    ran = [{"id": "a", "runtimeInSeconds": 3.5}, {"id": "b", "runtimeInSeconds": 4}]
    parts = {"specification": {"tasks": tasks, "files": []}, "execution": {"tasks": ran}}
    workflow = workflow_of_instance({"name": "two", "schemaVersion": "1.5", "workflow": parts}, "home")
    assert workflow.steps[1].reads == workflow.steps[0].writes == ("a before b",)


def test_what_is_written_reads_back_as_the_same() -> None:
    workflow, platform = workflow_of(GIS)
    assert workflow_of(workflow_document(workflow, platform)) == (workflow, platform)
    assert workflow.deadline_s == 600
    assert workflow.file("half-1").stays == Stays.CLUSTER
    assert platform.transfer_s(1.0, "second", "first") == 1 / 0.05 + 1
    assert platform.transfer_s(1.0, "second", "centre") == 1 / 0.1 + 20
    assert platform.transfer_s(1.0, "centre", "centre") == 0


def test_a_divisible_step_reads_back_as_the_same() -> None:
    document = changed(
        "steps.sum-2.divisible", {"part_gb": 0.1, "collect": {"run_s": {"first": 3}, "executors": 2}}
    )
    workflow, platform = workflow_of(document)
    assert workflow_of(workflow_document(workflow, platform)) == (workflow, platform)
    divisible = workflow.steps[1].divisible
    assert divisible is not None
    assert (divisible.part_gb, divisible.collect.executors) == (0.1, 2)


def test_run_times_are_those_of_equations_3_1_and_3_2() -> None:
    workflow, platform = workflow_of(GIS)
    first, second, centre = platform.clusters
    step = workflow.steps[0]
    assert stage_s(step.profile.stages[0], 4) == 12  # 6 s * 8 tasks / 4 executors
    # 5 GB / 2.5 GB * (6*8/4 + 3*4/4 + 2 s of shuffle) = 2 * 17
    assert run_s(step, 5.0, first) == 34
    # second is twice as fast, its network three times as slow: 2 * (6 + 1.5 + 6)
    assert run_s(step, 5.0, second) == 27
    # without a sample the profile is of the whole input: 6*8/8
    assert run_s(workflow.steps[1], 5.0, centre) == 6
    assert run_s(workflow.steps[2], 1.0, centre) == 4  # as measured


def test_private_data_decide_which_clusters_may_run_a_step() -> None:
    workflow, platform = workflow_of(GIS)
    assert allowed(workflow, platform) == {
        "sum-1": ("first",),  # half-1 may not leave it
        "sum-2": ("first", "second", "centre"),
        "mean": ("first", "centre"),  # measured there only
    }
    regional, platform = workflow_of(changed("files.half-1.stays", "region"))
    assert allowed(regional, platform)["sum-1"] == ("first", "centre")  # both in eu


def pair(*between: str) -> dict[str, Any]:
    return {"between": list(between), "gb_s": 1}


MISTAKES: dict[str, tuple[str, object, str]] = {
    "a cycle": ("steps.sum-1.reads", ["half-1", "means"], "sum-1 -> mean -> sum-1 wait for each other"),
    "an unknown file": ("steps.mean.reads", ["sums-3"], "step 'mean' names the file 'sums-3', which is not"),
    "two writers": ("steps.sum-2.writes", ["sums-1"], "both 'sum-1' and 'sum-2' write the file 'sums-1'"),
    "a file from nowhere": ("files.half-2.at", None, "'half-2' is written by no step and lies nowhere"),
    "a written file that lies": ("files.means.at", ["first"], "'means' is written by step 'mean' and lies"),
    "a written file that stays": ("files.means.stays", True, "'means' stays, but is written by step 'mean'"),
    "a file read twice": ("steps.mean.reads", ["sums-1", "sums-1"], "'sums-1' is given 2 times"),
    "no steps": (
        "steps",
        {},
        "steps: dictionary should have at least 1 item",
    ),
    "a negative size": (
        "files.sums-1.gb",
        -1,
        "files.sums-1.gb: input should be greater than or equal to 0",
    ),
    "a deadline of zero": ("deadline_s", 0, "deadline_s: input should be greater than 0, got 0"),
    "where it lies": ("files.half-2.at", ["third"], "'half-2' lies at 'third', expected one of first"),
    "stays": ("files.half-1.stays", "home", "files.half-1.stays"),
    "an unknown cluster": ("steps.mean.clusters", ["third"], "step 'mean' names the cluster 'third'"),
    "measured elsewhere": ("steps.mean.run_s", {"third": 1}, "step 'mean' names the cluster 'third'"),
    "fits nowhere": ("steps.sum-2.executors", 9, "'sum-2' fits nowhere: no cluster that may run it has 9"),
    "unreadable": (
        "steps.sum-1.executors",
        8,
        "step 'sum-1' reads private data that no cluster with room for it may read: "
        "'half-1' (cluster: first); room is at centre",
    ),
    "no profile": ("steps.mean.run_s", None, "steps.mean: expected either stages or run_s, neither"),
    "no stage": ("steps.sum-1.stages", [], "steps.sum-1.stages: tuple should have at least 1 item"),
    "a wave": (
        "steps.sum-1.stages",
        [{"tasks": 0, "task_s": 1}],
        "steps.sum-1.stages.0.tasks: input",
    ),
    "a mistyped key": ("steps.mean.read", ["sums-1"], "steps.mean.read: unknown key"),
    "speed": ("clusters.first.speed", 0, "clusters.first.speed: input should be greater than 0, got 0"),
    "bandwidth": ("network.gb_s", 0, "network.gb_s: input should be greater than 0, got 0"),
    "a pair unknown": (
        "network.pairs",
        [pair("first", "third")],
        "network.pairs.0.between is 'third', expected one of first, second, centre",
    ),
    "a pair twice": (
        "network.pairs",
        [pair("first", "second"), pair("second", "first")],
        "network.pairs.1.between first and second is given before",
    ),
}


@pytest.mark.parametrize(("path", "value", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_that_names_it(path: str, value: object, said: str) -> None:
    with refused(WorkflowError, said):
        workflow_of(changed(path, value))


def test_data_that_may_not_leave_a_region_must_lie_in_one() -> None:
    document: dict[str, Any] = changed("clusters.first.region", "")
    document["files"]["half-1"]["stays"] = "region"
    with pytest.raises(WorkflowError, match="may not leave its region, but cluster 'first' has none"):
        workflow_of(document)
