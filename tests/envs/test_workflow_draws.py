"""Where workflows on rented offers come from: episodes by key, what is drawn, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from envs.simulation.workflows.episodes.reserve import Reserve, on_demand_s
from envs.simulation.workflows.model import Stays
from envs.simulation.world import EpisodeKey, WorldError
from envs.workflows_episodes import DrawnWorkflows, WorkflowsConfig, build_workflows
from tests.envs.offers_cases import answer, valid


def test_a_copied_lane_goes_on_alike() -> None:
    world = build_workflows(WorkflowsConfig(steps=20), 2)
    world.reset([EpisodeKey(0, "test", 1), EpisodeKey(0, "test", 2)])
    rng = np.random.default_rng(0)
    for _ in range(8):
        world.step(np.array([rng.choice(np.flatnonzero(row)) for row in world.observation["action_mask"]]))
    world.copy_lanes(np.array([0]), np.array([1]))
    done = np.zeros(2, np.bool_)
    while not done.any():
        for array in world.observation.values():
            np.testing.assert_array_equal(array[0], array[1])  # type: ignore[index]
        action = int(rng.choice(np.flatnonzero(world.observation["action_mask"][0])))
        rewards, done = world.step(np.array([action, action]))
        assert rewards[0] == rewards[1]
    assert world.metrics(0) == world.metrics(1)


def test_an_episode_is_a_function_of_its_key_and_its_fingerprint_tells_it() -> None:
    world = build_workflows(WorkflowsConfig())
    prints = [world.fingerprint(EpisodeKey(seed, "train", index)) for seed, index in ((0, 0), (0, 1), (1, 0))]
    assert len(set(prints)) == 3
    assert build_workflows(WorkflowsConfig()).fingerprint(EpisodeKey(0, "train", 0)) == prints[0]


def test_what_is_drawn_lies_within_its_bounds_and_what_is_given_is_taken() -> None:
    given = DrawnWorkflows(WorkflowsConfig(deadline_factor=3.0, mean_run_s=600, private_share=1.0))
    for index in range(10):
        case = given.case(EpisodeKey(0, "validation", index))
        assert case.deadline_s == pytest.approx(3.0 * on_demand_s(case))
        assert Reserve(case).least_s <= case.deadline_s
        assert np.mean([step.profile.stages[0].task_s for step in case.workflow.steps]) == pytest.approx(600)
        assert np.all(np.abs(case.actual - 1) <= 0.2)
        assert {file.stays for file in case.workflow.files if file.at} <= {Stays.REGION}
        homes = {file.at for file in case.workflow.files if file.at}
        assert len(homes) == 1


def test_other_clouds_and_recorded_workflows_play(tmp_path: Path) -> None:
    file = tmp_path / "instance.json"
    file.write_text(
        '{"name": "two", "schemaVersion": "1.4", "workflow": {"tasks": ['
        '{"name": "a", "runtimeInSeconds": 900, "files": '
        '[{"name": "x", "sizeInBytes": 1e9, "link": "output"}]},'
        '{"name": "b", "parents": ["a"], "runtimeInSeconds": 60, '
        '"files": [{"name": "x", "sizeInBytes": 1e9, "link": "input"}]}]}}'
    )
    world = build_workflows(WorkflowsConfig(instance=str(file), providers=["aws", "gcp"]))
    assert world.spec.n_clusters == 21
    world.reset([EpisodeKey(0, "test", 0)])
    done = False
    while not done:
        _, done = answer(world, valid(world)[0])
    assert len(world.execution(0).attempts) == 2


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (WorkflowsConfig(family="montane"), "env.family is 'montane': expected one of 1000genome, blast"),
        (WorkflowsConfig(steps=3), "env.steps is 3: expected 10 to 500"),
        (WorkflowsConfig(ratio=0), "env.ratio is 0: expected a number > 0"),
        (WorkflowsConfig(private_share=2), "env.private_share is 2: expected a share, 0 to 1"),
        (WorkflowsConfig(owned_executors=-1), "env.owned_executors is -1: expected a number >= 0"),
        (WorkflowsConfig(spot_quota=0), "market.spot_quota is 0"),
        (WorkflowsConfig(offers=["x"]), "market.offers has 'x'"),
        (WorkflowsConfig(offers=["aws/us-east-1a/p3.2xlarge/spot"]), "env.offers has no on-demand offer"),
        (WorkflowsConfig(instance="none.json"), "env.instance is 'none.json'"),
        (WorkflowsConfig(family="blast", instance="x"), "env.family is 'blast' beside env.instance"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_in_a_line(config: WorkflowsConfig, line: str) -> None:
    with pytest.raises(WorldError) as error:
        build_workflows(config)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
