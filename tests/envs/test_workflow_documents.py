"""Workflow files: read back as written, and one clear line for every mistake."""

from __future__ import annotations

from typing import Any

import pytest

from envs.simulation.workflows.checks import allowed
from envs.simulation.workflows.documents import workflow_document, workflow_of
from envs.simulation.workflows.model import Stays, WorkflowError, run_s, stage_s
from tests.workflow_cases import GIS, changed


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


MISTAKES: dict[str, tuple[str, object, str]] = {
    "a cycle": ("steps.sum-1.reads", ["half-1", "means"], "sum-1 -> mean -> sum-1 wait for each other"),
    "an unknown file": ("steps.mean.reads", ["sums-3"], "step 'mean' names the file 'sums-3', which is not"),
    "two writers": ("steps.sum-2.writes", ["sums-1"], "both 'sum-1' and 'sum-2' write the file 'sums-1'"),
    "a file from nowhere": ("files.half-2.at", None, "'half-2' is written by no step and lies nowhere"),
    "a written file that lies": ("files.means.at", ["first"], "'means' is written by step 'mean' and lies"),
    "a written file that stays": ("files.means.stays", True, "'means' stays, but is written by step 'mean'"),
    "a file read twice": ("steps.mean.reads", ["sums-1", "sums-1"], "'sums-1' is given 2 times"),
    "no steps": ("steps", {}, "steps is {}, expected at least one entry"),
    "a negative size": ("files.sums-1.gb", -1, "files.sums-1.gb is -1, expected a number >= 0"),
    "no number": ("files.sums-1.gb", float("nan"), "files.sums-1.gb is nan, expected a number >= 0"),
    "a deadline of zero": ("deadline_s", 0, "deadline_s is 0, expected a number > 0"),
    "where it lies": (
        "files.half-2.at",
        ["third"],
        "'half-2' lies at 'third', expected one of first, second",
    ),
    "stays": ("files.half-1.stays", "home", "files.half-1.stays is 'home', expected one of free, region"),
    "an unknown cluster": ("steps.mean.clusters", ["third"], "step 'mean' names the cluster 'third'"),
    "measured elsewhere": ("steps.mean.run_s", {"third": 1}, "step 'mean' names the cluster 'third'"),
    "fits nowhere": (
        "steps.sum-2.executors",
        9,
        "step 'sum-2' fits nowhere: no cluster that may run it has 9",
    ),
    "unreadable": (
        "steps.sum-1.executors",
        8,
        "step 'sum-1' reads private data that no cluster with room for it may read: "
        "'half-1' (cluster: first); room is at centre",
    ),
    "no profile": ("steps.mean.run_s", None, "steps.mean has neither stages nor run_s, expected either"),
    "no stage": ("steps.sum-1.stages", [], "steps.sum-1.stages is empty"),
    "a wave": ("steps.sum-1.stages", [{"tasks": 0, "task_s": 1}], "steps.sum-1.stages[0].tasks is 0"),
    "a mistyped key": ("steps.mean.read", ["sums-1"], "steps.mean has the unknown key 'read'"),
    "speed": ("clusters.first.speed", 0, "clusters.first.speed is 0, expected a number > 0"),
    "bandwidth": ("network.gb_s", 0, "network.gb_s is 0, expected a number > 0"),
    "a pair of one": (
        "network.pairs",
        [{"between": ["first"], "gb_s": 1}],
        "expected the names of two clusters",
    ),
    "a pair unknown": (
        "network.pairs",
        [{"between": ["first", "third"], "gb_s": 1}],
        "network.pairs[0].between is 'third', expected one of first, second, centre",
    ),
    "a pair twice": (
        "network.pairs",
        [{"between": ["first", "second"], "gb_s": 1}, {"between": ["second", "first"], "gb_s": 2}],
        "network.pairs[1].between first and second is given before",
    ),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_one_line_that_names_it(name: str) -> None:
    path, value, said = MISTAKES[name]
    with pytest.raises(WorkflowError) as raised:
        workflow_of(changed(path, value))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_data_that_may_not_leave_a_region_must_lie_in_one() -> None:
    document: dict[str, Any] = changed("clusters.first.region", "")
    document["files"]["half-1"]["stays"] = "region"
    with pytest.raises(WorkflowError, match="may not leave its region, but cluster 'first' has none"):
        workflow_of(document)
