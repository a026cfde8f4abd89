"""Workflows as users submit them: what cannot run is refused with one line; paths by hand."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from deploy.model.workflows import MOST_STEPS, Workflow
from deploy.yamlfile import first_mistake
from tests.deploy.workflows import file, step, workflow


def work(*args: Any, **kwargs: Any) -> Workflow:
    found = workflow(*args, **kwargs).work
    assert isinstance(found, Workflow)
    return found


def test_what_follows_a_step_is_the_longest_chain_behind_it() -> None:
    # a (1 min) and b (2) before c (3); c and d (5, alone) before e (1).
    flow = work(
        step("e", "c-out d-out"),
        step("c", "a-out b-out a-out", minutes=3.0),
        step("a"),
        step("b", minutes=2.0),
        step("d", minutes=5.0),
    )
    assert flow.before("c") == ("a", "b")
    assert flow.before("a") == ()
    order = flow.order()
    assert all(order.index(one) < order.index("c") for one in ("a", "b"))
    assert order[-1] == "e"
    # a: c and e, 180 + 60, and two starts of 10 s.
    assert [flow.after_s(name, 10.0) for name in "abcde"] == [260.0, 260.0, 70.0, 70.0, 0.0]
    # d and e take 360 s; b, c and e 120 + 180 + 60.
    assert flow.standard_s == 360.0


PRIVATE = (file("north", "n", stays=True), file("south", "s", stays=True), file("open", "n"))


@pytest.mark.parametrize(
    ("steps", "files", "message"),
    [
        ([step("a"), step("a", writes="x")], (), "two steps are called 'a': names must differ"),
        ([step("a", writes="x"), step("b", writes="x")], (), "two files are called 'x': names must differ"),
        ([step("a", writes="x")], (file("x"),), "two files are called 'x': names must differ"),
        ([step("a", "nothing")], (), "step 'a' reads 'nothing', which is no file of the workflow"),
        ([step("a", "a-out")], (), "steps wait for each other: 'a' for 'a'; take one"),
        (
            [step("a", "c-out"), step("b", "a-out"), step("c", "b-out")],
            (),
            "steps wait for each other: ",
        ),
        ([step("a")], (file("x", stays=True),), "file 'x' stays, and no region keeps it: give its region"),
        (
            [step("a", "north south")],
            PRIVATE,
            "step 'a' could run nowhere: 'north' stays in n, 'south' stays in s; let a step in each",
        ),
        ([step("a", "north", region="s")], PRIVATE, "'north' stays in n, it shall run in s"),
        (
            [step("a", "open", "kept!")],
            PRIVATE,
            "file 'kept' stays where step 'a' runs, which may be",
        ),
        # What a step writes of private data stays with them if it says so, whoever reads it.
        (
            [step("a", "north", "kept!"), step("b", "kept", "more!"), step("c", "more south")],
            PRIVATE,
            "step 'c' could run nowhere: 'more' stays in n, 'south' stays in s",
        ),
        ([step("a", writes="x", minutes=0.0)], (), "minutes"),
        ([step(f"s{k}") for k in range(MOST_STEPS + 1)], (), "200"),
    ],
)
def test_a_workflow_that_cannot_run_is_refused_with_one_line(
    steps: list[dict[str, Any]], files: tuple[dict[str, Any], ...], message: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        workflow(*steps, files=files)
    line = first_mistake(refused.value)
    assert message in line
    assert "\n" not in line


def test_private_data_say_where_a_step_may_run_and_what_it_made_of_them_may_leave() -> None:
    flow = workflow(
        step("sums", "north open", "sums"),
        step("kept", "north", "kept!"),
        step("again", "kept", "again"),
        step("all", "sums again", region="s"),
        step("other", "open"),
        files=PRIVATE,
    )
    where = {task: flow.places_of(task).regions for task in flow.tasks}
    assert where == {"sums": ("n",), "kept": ("n",), "again": ("n",), "all": ("s",), "other": None}


def test_private_files_along_very_many_ways_take_no_time() -> None:
    # 2 ** 100 ways lead from the last step to the first.
    steps = [step("s0", "north", "a0! b0!")]
    steps += [step(f"s{k}", f"a{k - 1} b{k - 1}", f"a{k}! b{k}!") for k in range(1, 101)]
    assert work(*steps, files=PRIVATE).region_of("s100") == "n"


def test_private_data_where_the_job_may_not_run_are_refused() -> None:
    with pytest.raises(ValidationError, match="step 'sums' may run in n only, where places"):
        workflow(step("sums", "north"), files=PRIVATE, places={"regions": ["s"]})


def test_a_step_asks_for_its_executors_and_takes_its_files_along() -> None:
    flow = workflow(
        step("a", "near far", args=["{near}", "more.txt"], executors=3, memory_gib=2.0),
        files=(file("near"), file("far", "n")),
        resources={"vcpus": 2},
    )
    wanted = flow.resources_of("a")
    assert (wanted.instances, wanted.vcpus, wanted.memory_gib) == (3, 2, 2.0)
    assert set(flow.work.words) == {"a.py", "{near}", "more.txt", "data/near"}
