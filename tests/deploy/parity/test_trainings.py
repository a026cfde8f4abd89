"""A federated training of three clients through the live loop is that of the simulated market."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from envs.simulation import columns as col
from tests.deploy.parity.comparing import Comparison, compare
from tests.deploy.parity.playing import Played


def _asked(played: Played) -> list[tuple[bool, bool, bool]]:
    """Of each decision: whether the client was idle, owed its result, and was given an instance to use."""
    found = []
    for step, observation in zip(played.steps, played.observations, strict=True):
        job = observation["jobs"][0]
        found.append((bool(job[col.IDLE]), bool(job[col.OWES]), step.offer is not None))
    return found


def _assert_same(found: Comparison) -> None:
    assert found.live.steps == found.environment.steps
    assert found.columns == {}
    assert found.metrics == {}
    assert found.in_store == {}
    assert found.same


@pytest.mark.real
def test_release_start_before_the_next_round_and_interruption(tmp_path: Path) -> None:
    found = compare("maf+round_cost", 10, 1, tmp_path, training=True)
    _assert_same(found)
    asked = _asked(found.environment)
    assert (True, False, False) in asked  # idle, and released
    assert (False, False, True) in asked  # started again while the others still train
    assert found.environment.metrics["interruptions"] > 0
    assert found.environment.metrics["rounds_per_application"] > 5


@pytest.mark.real
@pytest.mark.parametrize("seed", [0, 5, 7])
def test_other_trainings(seed: int, tmp_path: Path) -> None:
    _assert_same(compare("maf+round_cost", seed, 1, tmp_path, training=True))


@pytest.mark.real
@pytest.mark.parametrize("policy", ["maf+round_cost", "expected_cost"])
def test_one_policy_decides_about_spark_jobs_and_clients(policy: str, tmp_path: Path) -> None:
    """Eight jobs, of which one is the training: two policies behind one, and a rule that knows both kinds."""
    found = compare(policy, 4, 8, tmp_path, training=True)
    _assert_same(found)
    kinds = {float(one["jobs"][0, col.CATEGORY]) for one in found.environment.observations}
    assert len(kinds) > 2
    assert found.environment.metrics["interruptions"] > 0
    assert np.isfinite(found.environment.metrics["cost_usd_eq"])
