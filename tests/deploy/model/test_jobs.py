"""What job files may say: mistakes are one line, and what is within bounds can be computed with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from spotweave.deploy.jobfile import read_files, read_job
from spotweave.deploy.model.fields import LEAST_SECONDS, MAX_TEXT_BYTES, MOST_COUNT, MOST_SECONDS
from spotweave.deploy.model.gpus import GpuAsk
from spotweave.deploy.model.jobs import Flower, JobSpec, Profile, Resources, SparkBatch, TaskKey
from spotweave.deploy.model.jobs import Places as PlacesOf
from spotweave.deploy.model.reference import reference
from spotweave.deploy.model.strategies import FedAvg, FedSuda, selection
from spotweave.deploy.model.workflows import MOST_STEPS, Workflow
from spotweave.deploy.runners.bag.runner import check
from spotweave.deploy.scheduler.needs import Need
from spotweave.deploy.yamlfile import ConfigError
from spotweave.documents import first_mistake
from tests.deploy.hostile import BATCH, EXTREME, STREAM, TRAINING, text_of
from tests.deploy.workflows import file, step, workflow


def refused(make: Callable[..., object], *arguments: Any, **more: Any) -> str:
    """The one line that says why something cannot be made."""
    with pytest.raises(ValidationError) as caught:
        make(*arguments, **more)
    line = first_mistake(caught.value)
    assert "\n" not in line
    return line


# Bags of tasks: what a job file may say, and one line for each mistake.


TASK: dict[str, Any] = {"name": "one", "command": ["run.sh", "1"], "minutes": 2}


def job(folder: Path, tasks: list[dict[str, Any]], work: dict[str, Any] | None = None, **parts: Any) -> Path:
    path = folder / "bag.yaml"
    content = {"name": "sums", "work": {"kind": "bag", "tasks": tasks, **(work or {})}, **parts}
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_task_asks_for_what_it_says_and_else_for_what_the_job_says(tmp_path: Path) -> None:
    tasks = [TASK, {**TASK, "name": "two", "vcpus": 4, "minutes": 0.5}]
    spec = read_job(job(tmp_path, tasks, resources={"vcpus": 2, "memory_gib": 3.0}))
    assert spec.tasks == ("one", "two")
    found = [(spec.resources_of(name).vcpus, spec.resources_of(name).memory_gib) for name in spec.tasks]
    assert found == [(2, 3.0), (4, 3.0)]
    assert spec.work.kind == "bag"
    assert [spec.work.standard_s_of(name) for name in spec.tasks] == [120.0, 30.0]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"gpus": 2, "gpu": ["L4", "T4"], "gpu_memory_gib": 16.0}, (2, ("L4", "T4"), 16.0)),
        ({"gpu": "T4"}, (1, ("T4",), None)),
        ({"gpu_memory_gib": 16.0}, (1, None, 16.0)),
        ({"gpus": 3}, (3, None, None)),
        ({}, (0, None, None)),
    ],
)
def test_gpus_are_asked_for_by_count_model_and_memory(
    tmp_path: Path, asked: dict[str, Any], told: tuple[object, ...]
) -> None:
    tasks = [TASK, {**TASK, "name": "two", "gpus": 0}, {**TASK, "name": "three", "gpu": "H100"}]
    spec = read_job(job(tmp_path, tasks, resources=asked))
    one, two, three = (spec.resources_of(name) for name in spec.tasks)
    assert (one.gpu_count, one.gpu, one.gpu_memory_gib) == told
    assert two.gpu_count == 0
    assert (three.gpu_count, three.gpu) == (asked.get("gpus", 1), ("H100",))


@pytest.mark.parametrize(
    ("asked", "gpus", "lacking"),
    [
        ({}, (0, None, 0.0), None),
        ({"gpu": "A100"}, (1, "A100-80GB", 80.0), None),
        ({"gpu": ["L4", "t4"], "gpu_memory_gib": 16.0}, (1, "T4", 15.0), None),
        ({"gpu": "A100"}, (0, None, 0.0), "has no GPU, the job needs A100"),
        ({"gpu": ["A10", "L4"]}, (1, "A10G", 24.0), "has A10G, the job needs A10 or L4"),
        ({"gpus": 2}, (1, "T4", 16.0), "has 1 T4, the job needs 2 GPUs"),
        ({"gpu_memory_gib": 24.0}, (8, "T4", 15.0), "has 15 GiB of GPU memory, the job needs 24"),
    ],
)
def test_what_an_offer_lacks_of_gpus(
    asked: dict[str, Any], gpus: tuple[int, str | None, float], lacking: str | None
) -> None:
    assert GpuAsk.model_validate_json(json.dumps(asked)).lacking(*gpus) == lacking


def test_the_files_that_commands_name_go_with_the_job(tmp_path: Path) -> None:
    for name in ("run.sh", "save.sh", "other.sh"):
        (tmp_path / name).write_text(name)
    spec = read_job(job(tmp_path, [TASK], {"checkpoint": ["sh", "save.sh"]}))
    assert set(read_files(spec, tmp_path)) == {"run.sh", "save.sh"}


@pytest.mark.parametrize(
    ("tasks", "work", "message"),
    [
        ([], {}, "work.bag.tasks: tuple should have at least 1 item"),
        ([{**TASK, "minutes": -1}], {}, "work.bag.tasks.0.minutes: input should be greater than 0, got -1"),
        ([TASK, TASK], {}, "work.bag: two tasks are called 'one': names must differ"),
        ([{**TASK, "cores": 2}], {}, "work.bag.tasks.0.cores: unknown key: remove it"),
        ([{**TASK, "command": "run.sh 1"}], {}, "work.bag.tasks.0.command: input should be a valid"),
        ([{**TASK, "command": [""]}], {}, "work.bag.tasks.0.command: its first word is empty"),
        ([{**TASK, "gpus": 0, "gpu": "T4"}], {}, "work.bag.tasks.0: gpus is 0, and gpu or gpu_memory"),
        ([{**TASK, "gpu": "NVIDIA"}], {}, "work.bag.tasks.0: gpu names 'NVIDIA': expected a model such as"),
        ([{**TASK, "vcpus": 0}], {}, "work.bag.tasks.0.vcpus: input should be greater than 0, got 0"),
        ([{"name": "one", "command": ["a"]}], {}, "work.bag.tasks.0.minutes: field required"),
        ([TASK], {"deadline_s": -5}, "work.bag.deadline_s: input should be greater than or equal to 0.01"),
        ([TASK], {"checkpoint": []}, "work.bag.checkpoint: tuple should have at least 1 item"),
        ([{**TASK, "name": "../x"}], {}, "work.bag.tasks.0.name: string should match pattern"),
        ([{**TASK, "command": ["a\0"]}], {}, "work.bag.tasks.0.command.0: it holds a zero byte"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_value(
    tmp_path: Path, tasks: list[dict[str, Any]], work: dict[str, Any], message: str
) -> None:
    path = job(tmp_path, tasks, work)
    with pytest.raises(ConfigError) as caught:
        read_job(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"resources": {"instances": 2}}, "resources.instances is 2: each task of a bag runs on one"),
        ({"env": {"SPOTWEAVE_X": "1"}}, "env has 'SPOTWEAVE_X'"),
        (
            {"profile": {"checkpoint_interval_s": 60}},
            "profile.checkpoint_interval_s is 60, and work.checkpoint names no command",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_rented(
    tmp_path: Path, parts: dict[str, Any], message: str
) -> None:
    spec: JobSpec = read_job(job(tmp_path, [TASK], **parts))
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        check(spec)


# Job files are untrusted: what is out of bounds is refused, what is within them can be computed with.


@pytest.mark.parametrize("job", EXTREME.values(), ids=EXTREME.keys())
def test_extreme_specs_are_refused_with_one_line(job: Mapping[str, Any]) -> None:
    assert len(refused(JobSpec.model_validate_json, text_of(job))) < 1000


@pytest.mark.parametrize("work", [BATCH, STREAM, TRAINING], ids=["batch", "stream", "training"])
def test_the_same_jobs_without_the_extreme_are_taken(work: Mapping[str, Any]) -> None:
    assert JobSpec.model_validate_json(json.dumps({"name": "job", "work": work})).name == "job"


def test_the_bounds_themselves_are_within() -> None:
    work = {**STREAM, "batches": MOST_COUNT, "period_s": LEAST_SECONDS, "batch_deadline_s": MOST_SECONDS}
    env = {"A": "x" * (MAX_TEXT_BYTES - 1)}
    assert JobSpec.model_validate_json(json.dumps({"name": "job", "work": work, "env": env})).env == env
    larger = {"name": "job", "work": work, "env": {"A": "x" * MAX_TEXT_BYTES}}
    assert "65537 bytes of text" in refused(JobSpec.model_validate_json, json.dumps(larger))


@settings(max_examples=200)
@given(
    standard_s=st.floats(LEAST_SECONDS, MOST_SECONDS),
    profile=st.builds(
        Profile,
        reference_speed=st.floats(0.001, 1000),
        sensitivity=st.none() | st.floats(0.01, 100),
        checkpoint_s=st.floats(0, MOST_SECONDS),
        checkpoint_interval_s=st.just(0.0) | st.floats(1, MOST_SECONDS),
    ),
    speed=st.floats(0.01, 100),
    progress=st.floats(0, 1),
)
def test_what_is_within_bounds_stays_finite_in_32_bits(
    standard_s: float, profile: Profile, speed: float, progress: float
) -> None:
    """Observations are 32-bit floats: one that overflows poisons the whole snapshot."""
    spec = JobSpec(name="job", work=SparkBatch(script="x.py", standard_s=standard_s), profile=profile)
    need = Need(
        TaskKey("job", "main"),
        "general",
        Resources(),
        PlacesOf(),
        standard_s=standard_s,
        progress=progress,
        checkpoint_s=spec.profile.checkpoint_interval_s,
        save_s=spec.profile.checkpoint_s,
        reference_speed=spec.profile.reference_speed,
        sensitivity=spec.profile.sensitivity,
    )
    assert np.isfinite(np.float32(need.left_s(speed)))


# What the `strategy` of a Flower job may say; mistakes are one line.


CLIENTS = [{"name": "a", "epoch_s": 1.0}, {"name": "b", "epoch_s": 1.0}, {"name": "c", "epoch_s": 10.0}]
SUDA = {"kind": "fed_suda", "updates_per_round": 3, "slow_factor": 2.0}


def flower(strategy: Any, **more: Any) -> Flower:
    work = {"kind": "flower", "app": "x", "rounds": 3, "clients": CLIENTS} | more
    if strategy is not None:
        work["strategy"] = strategy
    spec = JobSpec.model_validate_json(json.dumps({"name": "x", "work": work}))
    assert isinstance(spec.work, Flower)
    return spec.work


def test_rounds_are_synchronous_where_nothing_is_said() -> None:
    assert flower(None).strategy == FedAvg()
    assert flower(None).synchronous
    assert not flower({"kind": "fed_async"}).synchronous


def test_slow_is_who_answers_at_most_so_many_times_as_often_as_the_slowest() -> None:
    """Speeds 10, 10 and 1 of the slowest: with L = 2 only c is slow. W_rp = 3 * 2 / 3 = 2, W_sp = 1."""
    strategy = flower(SUDA).strategy
    assert isinstance(strategy, FedSuda)
    assert selection(strategy, {"a": 1.0, "b": 1.0, "c": 10.0}).slow == {2}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({"kind": "hale_fed", "updates_per_round": 2, "brokers": 1}, "brokers: input should be greater than"),
        ({"kind": "fed_async", "staleness_most": -1}, "staleness_most: input should be greater than"),
        ({"kind": "fed_prox"}, "expected tags: 'fedavg', 'fed_async', 'hp_asgd', 'hale_fed', 'fed_suda'"),
        ({"kind": "hp_asgd", "updates_per_round": 2, "brokers": 2}, "brokers: unknown key"),
        ({"kind": "hp_asgd"}, "updates_per_round: field required"),
        ({"kind": "fed_async", "mixing": 1.5}, "mixing: input should be less than 1"),
        ({**SUDA, "slow_factor": 10.0}, "all clients are slow by their epoch_s"),
        ({**SUDA, "updates_per_round": 2}, "2 updates_per_round of 2 regular and 1 slow clients"),
        ({**SUDA, "updates_per_round": 1}, "updates_per_round: input should be greater than or equal to 2"),
    ],
)
def test_a_mistake_is_one_line(strategy: dict[str, Any], expected: str) -> None:
    assert expected in refused(flower, strategy)


def test_fed_suda_has_to_know_how_fast_each_client_is() -> None:
    unknown = [{"name": "a", "epoch_s": 1.0}, {"name": "b"}, {"name": "c"}]
    assert "give epoch_s of client 'b', or of all" in refused(flower, SUDA, clients=unknown)
    assert flower({**SUDA, "slow_factor": 1.0}, clients=[*CLIENTS[:2], {"name": "c", "epoch_s": 2.0}])


def test_what_brokers_add_up_does_not_overflow() -> None:
    """2**20 is the largest sum of weights: two of 2**19 fit, and nothing more."""
    hale = {"kind": "hale_fed", "updates_per_round": 2}
    assert flower(hale, clients=[{"name": "a", "samples": 2**19}])
    larger = [{"name": "a", "samples": 2**19 + 1}]
    assert "count samples in a larger unit" in refused(flower, hale, clients=larger)


# Workflows as users submit them: what cannot run is refused with one line; paths by hand.


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
    # c and e wait for a and b, e alone for c and d.
    assert [flow.waiting_for(name) for name in "abcde"] == [2, 2, 1, 1, 0]
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
        ([step("a", "c-out"), step("b", "a-out"), step("c", "b-out")], (), "steps wait for each other: "),
        ([step("a")], (file("x", stays=True),), "file 'x' stays, and no region keeps it: give its region"),
        (
            [step("a", "north south")],
            PRIVATE,
            "step 'a' could run nowhere: 'north' stays in n, 'south' stays in s; let a step in each",
        ),
        ([step("a", "north", region="s")], PRIVATE, "'north' stays in n, it shall run in s"),
        ([step("a", "open", "kept!")], PRIVATE, "file 'kept' stays where step 'a' runs, which may be"),
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
    assert message in refused(workflow, *steps, files=files)


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
    line = refused(workflow, step("sums", "north"), files=PRIVATE, places={"regions": ["s"]})
    assert "'sums' may run in n only, where places" in line


def test_a_step_asks_for_its_executors_and_takes_its_files_along() -> None:
    flow = workflow(
        step("a", "near far", args=["{near}", "more.txt"], executors=3, memory_gib=2.0),
        files=(file("near"), file("far", "n")),
        resources={"vcpus": 2},
    )
    wanted = flow.resources_of("a")
    assert (wanted.instances, wanted.vcpus, wanted.memory_gib) == (3, 2, 2.0)
    assert set(flow.work.words) == {"a.py", "{near}", "more.txt", "data/near"}


# The reference of the job file is that of the models.


PAGE = Path(__file__).resolve().parents[3] / "docs" / "job-file.md"


def test_the_page_is_as_the_models_are() -> None:
    found = PAGE.read_text(encoding="utf-8")
    assert found == reference(), "stale: python -m spotweave.deploy.model.reference > docs/job-file.md"


def test_every_key_has_a_meaning() -> None:
    rows = [
        row.strip("| ").split(" | ") for row in reference().splitlines() if row.startswith(("| `", "| **`"))
    ]
    assert len(rows) > 60
    assert [row[0] for row in rows if len(row) < 2 or row[1].strip()[:1] in ("(", ".")] == []
