"""How live facts become the columns of a snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deploy.model.jobs import Places, Resources
from deploy.scheduler.snapshot.needs import Round
from deploy.scheduler.snapshot.occupancy import SAMPLE_S, Occupancy
from deploy.scheduler.snapshot.writer import snapshot_of
from envs.simulation import columns as col
from envs.simulation.snapshot import Category, encode
from tests.deploy.scheduler.cases import need, offer


def test_columns_are_in_physical_units_and_the_encoder_derives_the_rest() -> None:
    offers = [offer("spot"), offer("sure", "on_demand", speed=2.0)]
    needs = [need(kind="deadline", slack_s=700.0, age_s=100.0, waited_s=50.0, restart_s=20.0)]
    observation = encode(snapshot_of(offers, needs, {"spot": 1}, Occupancy()), 3)
    clusters, jobs, pairs = (observation[name] for name in ("clusters", "jobs", "pairs"))
    assert clusters[0, col.USED] == 1
    assert clusters[1, col.HETERO_FACTOR] == 2 * clusters[0, col.HETERO_FACTOR]
    assert jobs[0, col.CATEGORY] == Category.TIME_CRITICAL
    assert jobs[0, col.SLACK_S] == 700
    # 60 s of launch, 20 of set-up, 600 of work, or 300 on the faster type.
    assert pairs[0, 0, col.FINISH_S] == 680
    assert pairs[0, 1, col.FINISH_S] == 380
    assert pairs[0, 1, col.COST_USD] == pytest.approx(380 / 3600)
    assert pairs[0, 0, col.IMPROPER] == 0
    assert observation["action_mask"].reshape(3, 3).tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0]]


def test_a_deadline_that_an_offer_cannot_meet_is_seen() -> None:
    observation = encode(
        snapshot_of([offer("spot")], [need(kind="deadline", slack_s=650.0)], {}, Occupancy()), 1
    )
    assert observation["pairs"][0, 0, col.IMPROPER] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"places": Places(markets=("on_demand",))},
        {"places": Places(regions=("there",))},
        {"places": Places(providers=("aws",))},
        {"places": Places(instance_types=("large",))},
        {"resources": Resources(vcpus=8)},
        {"resources": Resources(memory_gib=16.0)},
        {"resources": Resources(gpu="T4")},
        {"resources": Resources(instances=5)},
    ],
)
def test_what_a_job_may_not_use_is_never_valid(changes: dict[str, Any]) -> None:
    observation = encode(snapshot_of([offer("spot")], [need(**changes)], {}, Occupancy()), 1)
    assert observation["action_mask"].tolist() == [0, 1]


def test_an_offer_without_room_is_not_valid_and_one_with_just_enough_is() -> None:
    wants_two = need(resources=Resources(instances=2))
    for used, valid in ((2, 1), (3, 0)):
        observation = encode(snapshot_of([offer("spot")], [wants_two], {"spot": used}, Occupancy()), 1)
        assert observation["action_mask"].tolist() == [valid, 1]


def test_an_idle_task_may_keep_what_it_holds_even_where_nothing_can_be_rented() -> None:
    idle = need(kind="federated", here="spot", round=Round(idle=True, owes=False, round_left_s=100.0))
    observation = encode(snapshot_of([offer("spot", available=False)], [idle], {"spot": 1}, Occupancy()), 1)
    assert observation["action_mask"].tolist() == [1, 1]
    assert observation["jobs"][0, col.IDLE] == 1


def test_occupation_is_sampled_like_in_the_simulated_market() -> None:
    occupancy = Occupancy()
    occupancy.sample(SAMPLE_S - 1.0)  # the first moment at which something is known
    occupancy.hold({"spot": 2})
    occupancy.sample(3 * SAMPLE_S)  # at 1, 2 and 3 times: what was in use until then
    occupancy.hold({"spot": 4})
    occupancy.sample(4 * SAMPLE_S)
    occupancy.hold({"late": 4})
    occupancy.sample(5 * SAMPLE_S)
    ratios = occupancy.ratios("spot", 4)
    assert ratios[-5:].tolist() == [0.5, 0.5, 0.5, 1.0, 0.0]
    assert not ratios[:-5].any()
    assert occupancy.mean("spot", 4) == pytest.approx(2.5 / 5)
    assert occupancy.mean("late", 4) == pytest.approx(1 / 5)  # it was free in the four samples before
    assert occupancy.ratios("other", 4).sum() == 0


def test_more_used_than_the_quota_still_is_a_ratio() -> None:
    occupancy = Occupancy()
    occupancy.hold({"spot": 9})
    occupancy.sample(SAMPLE_S)
    assert occupancy.ratios("spot", 4).max() == 1.0
    assert np.isfinite(snapshot_of([offer("spot")], [], {"spot": 9}, occupancy).clusters).all()
