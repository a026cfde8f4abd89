"""Where workflows on rented offers come from: episodes by key, what is drawn, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from envs.simulation.workflows.episodes.options import Reserve, on_demand_s
from envs.simulation.workflows.model import Stays
from envs.simulation.world import EpisodeKey
from envs.workflows_episodes import DrawnWorkflows, WorkflowsConfig, build_workflows
from tests.envs.offers_cases import answer, valid


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
