"""Trainings in virtual time: times worked by hand, what the methods do to each other, and the command."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agents.federated.asynchronous.aggregator import UpdateError
from envs.traces.images import Images, load_images
from tests.training.federated.commands import mistake, printed, rows_of
from training.config import UsageError
from training.federated.asynchronous.outcomes import efficiency_index, summarise_trainings
from training.federated.asynchronous.scenario import Band, Method, Scenario
from training.federated.asynchronous.virtual_time import Point, Training, VirtualTime, milestone_slices

SYN, ASYN = Method("fed_avg"), Method("asyn_da")
SUDA = Method("fed_suda", staleness_bound=4)


def a_scenario(**changes: object) -> Scenario:
    plain = Scenario(
        title="Small",
        partition="random_groups",
        bands=(Band(8, 1, 2), Band(2, 20, 20)),
        slow=(8, 9),
        methods={"syn": SYN},
        reference="syn",
        updates=60,
        round_updates=5,
        local_steps=2,
        batch_size=8,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def images() -> Images:
    return load_images(None)


def test_the_same_seed_gives_the_same_training_and_another_does_not(images: Images) -> None:
    first, again, other = (VirtualTime(a_scenario(), images, seed).train(ASYN).points for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_synchronous_round_lasts_as_long_as_its_slowest_response(images: Images) -> None:
    # Everybody takes part in every round, so its length is the largest of all next responses.
    scenario = a_scenario(round_updates=10, updates=30)
    world = VirtualTime(scenario, images, 3)
    responses = world.responses()
    expected, now = [], 0.0
    for _ in range(3):
        now += max(response.next_slices() for response in responses)
        expected.append(now)
    points = world.train(SYN).points
    assert [point.time_slices for point in points] == pytest.approx(expected)
    assert [point.updates for point in points] == [10, 20, 30]
    assert all(point.staleness == 0 for point in points)


def test_asynchronous_rounds_end_with_every_fifth_response(images: Images) -> None:
    world = VirtualTime(a_scenario(), images, 3)
    ends = []
    for response in world.responses():
        now = 0.0
        while now < 200:
            now += response.next_slices()
            ends.append(now)
    ends.sort()
    points = world.train(ASYN).points
    assert [point.time_slices for point in points] == pytest.approx(ends[4:60:5])


def test_responses_have_their_expectation_and_take_half_of_it_at_least(images: Images) -> None:
    response = VirtualTime(a_scenario(), images, 0).responses()[9]
    drawn = np.array([response.next_slices() for _ in range(4000)])
    # Half of 20 exponentially distributed: standard error of the mean 10 / sqrt(4000) = 0.16.
    assert drawn.mean() == pytest.approx(20, abs=0.8)
    assert drawn.min() >= 10


def test_hale_fed_learns_what_it_would_without_shards(images: Images) -> None:
    # A participant gets each model once. With all ten in every round that is what synchronous rounds do.
    scenario = a_scenario(round_updates=10, updates=30)
    plain, sharded = (VirtualTime(scenario, images, 5).train(method) for method in (SYN, Method("hale_fed")))
    assert plain.model is not None
    assert sharded.model is not None
    assert np.allclose(plain.model, sharded.model, atol=1e-5)
    assert plain.column("time_slices").tolist() == sharded.column("time_slices").tolist()


def test_coordination_of_brokers_delays_each_round(images: Images) -> None:
    scenario = a_scenario(round_updates=10, updates=10)
    first, later = (
        VirtualTime(scenario, images, 5).train(Method("hale_fed", coordination_slices=slices)).points[0]
        for slices in (0.0, 7.0)
    )
    assert later.time_slices == pytest.approx(first.time_slices + 7)


def test_fed_suda_does_not_wait_for_the_slow_but_counts_them(images: Images) -> None:
    world = VirtualTime(a_scenario(updates=120), images, 5)
    syn, suda = world.train(SYN), world.train(SUDA)
    assert suda.points[-1].time_slices < 0.6 * syn.points[-1].time_slices
    assert suda.column("staleness").max() <= 4
    # A shadow that is used again is no new update: more rounds than 120 / 5.
    assert len(suda.points) > 24


@pytest.mark.parametrize("algorithm", ["asyn_ma", "fed_async", "fed_buff", "hp_asgd"])
def test_every_method_learns(images: Images, algorithm: str) -> None:
    rate = 0.3 if algorithm == "hp_asgd" else 1.0
    scenario = a_scenario(updates=800, bands=(Band(10, 1, 1.5),), slow=())
    method = Method(algorithm, rate=rate)  # type: ignore[arg-type]
    accuracy = VirtualTime(scenario, images, 5).train(method).column("accuracy")
    assert accuracy[-5:].mean() > 0.3


def test_a_training_ends_at_its_milestone(images: Images) -> None:
    found = VirtualTime(a_scenario(updates=600), images, 5).train(ASYN, until=0.15)
    assert found.points[-1].updates < 600
    assert found.column("accuracy")[-5:].min() >= 0.15
    assert milestone_slices(found, 0.15) == found.points[-5].time_slices


def test_nobody_left_to_compute_and_divergence_are_told(images: Images) -> None:
    with pytest.raises(UsageError, match="more updates per round than possible"):
        VirtualTime(a_scenario(), images, 0).train(Method("hale_fed", round_updates=11))
    with pytest.raises(UpdateError, match="NaN or infinity"):
        VirtualTime(a_scenario(local_rate=1e30), images, 0).train(ASYN)


def test_milestones_need_five_rounds_in_a_row() -> None:
    accuracies = [0.5, 0.9, 0.9, 0.9, 0.9, 0.8, 0.9, 0.9, 0.9, 0.9, 0.95]
    run = Training([Point(10.0 * k, k, accuracy, 0) for k, accuracy in enumerate(accuracies)])
    assert milestone_slices(run, 0.9) == 60.0
    assert milestone_slices(run, 0.8) == 10.0
    assert milestone_slices(run, 0.95) is None


def test_the_summary_of_two_methods_by_hand() -> None:
    slow = [Training([Point(32.0 * t, t, 0.5, 0.0) for t in range(1, 6)]) for _ in range(2)]
    fast = [Training([Point(t * 4.0 * seed, t, 0.5, 1.0) for t in range(1, 6)]) for seed in (1, 2)]
    summary = summarise_trainings({"slow": slow, "fast": fast}, "slow", (0.4, 0.6))
    # 160 slices against 20 and 40: 8 and 4 times as fast, in the geometric mean sqrt(32).
    assert summary["fast"]["training_slices"] == [20.0, 40.0]
    assert summary["fast"]["speed_up"]["mean"] == pytest.approx(32**0.5)
    assert summary["fast"]["at_milestone"]["accuracy"] == 0.4
    assert summary["fast"]["at_milestone"]["speed_up"]["mean"] == pytest.approx(32**0.5)
    assert summary["slow"]["speed_up"]["mean"] == 1
    assert summary["fast"]["milestones"] == {"0.4": [4.0, 8.0], "0.6": [None, None]}
    # EI = 0.5 / 32**0.2 = 0.25 after the first round.
    assert efficiency_index(slow[0])[0] == pytest.approx(0.25)


# The command `spotweave simulate async`.

SCENARIO = """
title: Small
partition: random_groups
bands:
  - {participants: 10, from_slices: 1, to_slices: 2}
round_updates: 5
updates: 50
local_steps: 1
milestones: [0.05]
reference: syn
methods:
  syn: {algorithm: fed_avg}
  asyn: {algorithm: asyn_da}
  fed_suda: {algorithm: fed_suda, staleness_bound: 3}
"""


def test_tables_and_a_picture_are_written(file: Callable[[object], str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = printed("simulate", "async", file(SCENARIO), "--methods", "syn, asyn", "--seeds", 2, "--out", out)
    assert "Small; 2,000 digits of the package" in text
    assert "fed_suda" not in text
    assert (out / "experiment.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))["methods"]
    assert set(summary) == {"syn", "asyn"}
    rows = rows_of(out / "points.csv")
    # Two methods, two seeds, 50 updates of 5 per round.
    assert len(rows) == 2 * 2 * 10
    ends = [float(row["time_slices"]) for row in rows if row["method"] == "asyn" and row["round"] == "10"]
    assert ends == summary["asyn"]["training_slices"]


def test_one_seed_has_no_interval(file: Callable[[object], str]) -> None:
    assert "[" not in printed("simulate", "async", file(SCENARIO), "--seeds", 1)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (SCENARIO, ["--methods", "hp_asgd"], "method 'hp_asgd': expected some of syn, asyn, fed_suda"),
        (SCENARIO, ["--seeds", "0"], "seeds is 0: expected at least 1"),
        (SCENARIO, ["--data", "/nowhere"], "/nowhere has neither"),
        (SCENARIO.replace("updates: 50", "updates: 0"), [], "updates is 0: input should be greater"),
        (SCENARIO.replace("staleness_bound: 3", "staleness_bound: -1"), [], "staleness_bound is -1"),
        (
            SCENARIO.replace(", staleness_bound: 3", ""),
            [],
            "methods.fed_suda: fed_suda needs staleness_bound",
        ),
        (
            SCENARIO.replace("asyn_da}", "asyn_da, mixing: 0.5}"),
            [],
            "asyn_da has no mixing: expected some of",
        ),
        (SCENARIO.replace("local_steps", "local_stepz"), [], "unknown key .local_stepz: did you mean"),
        (SCENARIO.replace("fed_avg", "fedavg"), [], "algorithm is 'fedavg'"),
        (SCENARIO.replace("reference: syn", "reference: sync"), [], "reference is 'sync'"),
        (SCENARIO + "slow: [10]", [], "slow names participant 10: there are 0 to 9"),
        (SCENARIO.replace("round_updates: 5", "round_updates: 11"), [], "expected at most 10"),
        (SCENARIO.replace("participants: 10", "participants: 7"), [], "needs a multiple of 5"),
        ("title: [", [], "is not YAML"),
        ("- a", [], "holds no keys"),
    ],
)
def test_mistakes_are_one_line(
    file: Callable[[object], str], text: str, arguments: list[str], message: str
) -> None:
    assert message in mistake("simulate", "async", file(text), *arguments)


def test_a_missing_scenario_is_told() -> None:
    assert "no scenario at nowhere.yaml" in mistake("simulate", "async", "nowhere.yaml")
