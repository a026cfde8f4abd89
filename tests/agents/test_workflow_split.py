"""Algorithm 1 of Liu 2022: what is divided, what is combined, and that the work remains the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.workflows.split import SplitSettings, transform
from envs.simulation.workflows.model import (
    Cluster,
    Divisible,
    File,
    Link,
    Platform,
    Profile,
    Stage,
    Stays,
    Step,
    Workflow,
)
from envs.simulation.workflows.performance import files_by_name, input_gb, run_s

NAMES = ("a", "b", "c")
PLATFORM = Platform((Cluster("a", 2), Cluster("b", 4), Cluster("c", 6)), Link(0.1))
COLLECT = Divisible(0.002, Profile((Stage(1, 49.0),)))
COUNT = Step(
    "count", Profile((Stage(800, 8.0),)), ("text",), ("counts",), divisible=COLLECT
)  # 800 tasks of 8 s
WORDCOUNT = Workflow("wordcount", (File("text", 102.4, NAMES), File("counts", 0.002)), (COUNT,))


def test_a_step_is_divided_in_proportion_to_the_clusters_that_have_its_input() -> None:
    # 102.4 GB are 800 blocks of 0.128 GB, more than 10 * 6 executors
    found = transform(WORDCOUNT, PLATFORM)
    files = files_by_name(found)
    assert [step.name for step in found.steps] == ["count-1", "count-2", "count-3", "count-collect"]
    assert [input_gb(step, files) for step in found.steps[:3]] == pytest.approx([51.2, 102.4 / 3, 102.4 / 6])
    assert files["text.1"].at == NAMES
    # half of 800 * 8 s / 6 executors; the part that is not, whatever its size, is the collecting step
    assert run_s(found.steps[0], 51.2, PLATFORM.cluster("c")) == pytest.approx(800 * 8 / 6 / 2)
    collect = found.steps[3]
    assert (collect.reads, collect.writes) == (("count-1.part", "count-2.part", "count-3.part"), ("counts",))
    assert collect.profile == COLLECT.collect


@pytest.mark.parametrize(
    ("settings", "workflow"),
    [
        (SplitSettings(most_blocks=800), WORDCOUNT),  # 800 blocks are not more than that
        (SplitSettings(most_parts=1), WORDCOUNT),
        (SplitSettings(), replace(WORDCOUNT, steps=(replace(COUNT, divisible=None),))),
        (SplitSettings(), replace(WORDCOUNT, files=(File("text", 102.4, ("a",)), WORDCOUNT.files[1]))),
    ],
)
def test_a_step_stays_whole(settings: SplitSettings, workflow: Workflow) -> None:
    assert transform(workflow, PLATFORM, settings) == workflow


def test_the_largest_clusters_are_taken_where_parts_are_limited() -> None:
    found = transform(WORDCOUNT, PLATFORM, SplitSettings(most_parts=2))
    assert [file.gb for file in found.files[:2]] == pytest.approx([102.4 * 0.6, 102.4 * 0.4])


def test_a_private_input_stays_private_in_its_pieces() -> None:
    private = replace(WORDCOUNT, files=(File("text", 102.4, ("a", "b"), Stays.CLUSTER), WORDCOUNT.files[1]))
    found = transform(private, PLATFORM)
    assert [(file.at, file.stays) for file in found.files[:2]] == [(("a", "b"), Stays.CLUSTER)] * 2


def test_a_dependent_step_is_divided_by_its_blocks_and_its_writer_writes_the_pieces() -> None:
    first = Step("parse", Profile((Stage(8, 1.0),)), ("raw",), ("text",))
    files = (File("raw", 0.1, ("a",)), File("text", 102.4), File("counts", 0.002))
    found = transform(
        Workflow("chain", files, (first, replace(COUNT, profile=Profile(run_s={"a": 90.0})))),
        PLATFORM,
        SplitSettings(most_blocks=300),
    )
    # 800 blocks / 300: three parts
    assert found.steps[0].writes == ("text.1", "text.2", "text.3")
    assert [step.profile.run_s["a"] for step in found.steps[1:4]] == [30.0] * 3


def chain(first_gb: float, *, elsewhere: bool = False) -> Workflow:
    """Two steps of which the first writes `first_gb` and the second 1 GB."""
    files = (
        File("in", 2.0, ("a",)),
        File("side", 1.0, ("b" if elsewhere else "a",)),
        File("between", first_gb),
        File("out", 1.0),
    )
    first = Step("first", Profile((Stage(4, 3.0, 1.0),), sample_gb=1.0, executors=2), ("in",), ("between",))
    second = Step("second", Profile((Stage(2, 5.0),), executors=1), ("between", "side"), ("out",))
    return Workflow("chain", files, (first, second))


def test_steps_are_combined_where_that_keeps_much_data_from_moving() -> None:
    found = transform(chain(4.0), PLATFORM)  # 1 of 5 GB are left, less than half
    assert [step.name for step in found.steps] == ["first+second"]
    whole = found.steps[0]
    assert (whole.reads, whole.writes, whole.profile.executors) == (("in", "side"), ("out",), 2)
    # first: 2 GB / 1 GB * (4 * 3 / 2 + 1) = 14 s; second on the two executors: 2 * 5 / 2 = 5 s
    assert run_s(whole, 3.0, PLATFORM.cluster("a")) == 19
    assert "between" not in files_by_name(found)


def test_steps_stay_apart_where_little_is_saved_or_no_cluster_has_all_their_input() -> None:
    assert len(transform(chain(1.0), PLATFORM).steps) == 2  # 1 of 2 GB: not less than half
    assert len(transform(chain(4.0, elsewhere=True), PLATFORM).steps) == 2
    assert len(transform(chain(4.0), PLATFORM, SplitSettings(combined_share=0.2)).steps) == 2
    # another step waits for what is between them
    other = Step("other", Profile((Stage(1, 1.0),)), ("between",))
    shared = replace(chain(4.0), steps=(*chain(4.0).steps, other))
    assert len(transform(shared, PLATFORM).steps) == 3
