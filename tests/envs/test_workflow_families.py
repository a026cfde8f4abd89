"""Recorded workflows read, and random ones of families: structure, determinism and scale."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from envs.simulation.workflows.checks import predecessors, require_runnable, require_sound
from envs.simulation.workflows.families import FAMILIES, drawn_platform, family_workflow, scaled
from envs.simulation.workflows.model import WorkflowError, files_by_name
from envs.simulation.workflows.wfformat import is_instance, workflow_of_instance

# a splits a text for b and c; d waits for both, but reads only what c wrote.
SINCE_1_5: dict[str, Any] = {
    "name": "by hand",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {
                    "name": "a",
                    "id": "a1",
                    "parents": [],
                    "children": ["b1", "c1"],
                    "inputFiles": ["text"],
                    "outputFiles": ["x", "y"],
                },
                {"name": "b", "id": "b1", "parents": ["a1"], "children": ["d1"], "inputFiles": ["x"]},
                {
                    "name": "c",
                    "id": "c1",
                    "parents": ["a1"],
                    "children": ["d1"],
                    "inputFiles": ["y"],
                    "outputFiles": ["z"],
                },
                {"name": "d", "id": "d1", "parents": ["b1", "c1"], "children": [], "inputFiles": ["z"]},
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
    for task in specification["tasks"]:
        entry: dict[str, Any] = {"name": task["id"], "type": "compute", "parents": task["parents"]}
        entry["runtime" if old else "runtimeInSeconds"] = ran[task["id"]]["runtimeInSeconds"]
        if "coreCount" in ran[task["id"]]:
            entry["cores"] = 2
            entry["memory" if old else "memoryInBytes"] = 4 * 2**30 / (1000 if old else 1)
        entry["files"] = [
            {"link": link, "name": name, "size" if old else "sizeInBytes": sizes[name]}
            for link, key in (("input", "inputFiles"), ("output", "outputFiles"))
            for name in task.get(key, [])
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
    assert {name: file.gb for name, file in files.items()} == {
        "text": 2.0,
        "x": 0.5,
        "y": 1.5,
        "z": 0.0,
        "b1 before d1": 0.0,
    }
    assert files["text"].at == ("home",)
    b = workflow.steps[1].profile
    assert (b.executors, b.stages[0].tasks, b.stages[0].task_s, b.memory_gib) == (2, 2, 3.0, 2.0)


def broken(change: str) -> dict[str, Any]:
    """The instance with one mistake."""
    document = copy.deepcopy(SINCE_1_5)
    specification, execution = document["workflow"]["specification"], document["workflow"]["execution"]
    if change == "version":
        document["schemaVersion"] = "0.2"
    elif change == "parent":
        specification["tasks"][3]["parents"] = ["e1"]
    elif change == "size":
        del specification["files"][1]
    elif change == "run time":
        del execution["tasks"][2]
    elif change == "negative":
        execution["tasks"][0]["runtimeInSeconds"] = -5
    elif change == "execution":
        del document["workflow"]["execution"]
    elif change == "shape":
        specification["tasks"] = [["a1"]]
    return document


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("version", "schemaVersion is '0.2', expected one of 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6"),
        ("parent", "task 'd1' has the parent 'e1', which is no task"),
        ("size", "file 'x' has no size"),
        ("run time", "task 'c1' has no run time"),
        ("negative", "run time of 'a1' is -5, expected a number >= 0"),
        ("execution", "has no execution, so that its run times are unknown"),
        ("shape", "does not follow WfFormat"),
    ],
)
def test_a_broken_instance_is_one_line(change: str, said: str) -> None:
    with pytest.raises(WorkflowError, match=said):
        workflow_of_instance(broken(change), "home")


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
    tasks = [
        {"id": "a", "parents": [], "children": children},
        {"id": "b", "parents": parents, "children": []},
    ]
    ran = [{"id": "a", "runtimeInSeconds": 3.5}, {"id": "b", "runtimeInSeconds": 4}]
    parts = {"specification": {"tasks": tasks, "files": []}, "execution": {"tasks": ran}}
    workflow = workflow_of_instance({"name": "two", "schemaVersion": "1.5", "workflow": parts}, "home")
    assert workflow.steps[1].reads == workflow.steps[0].writes == ("a before b",)
