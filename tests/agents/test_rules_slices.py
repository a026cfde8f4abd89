"""The rules in the chapter 5 world against the figures of the prototype that the tuned rule was found on."""

from __future__ import annotations

import numpy as np
import pytest

from agents.rules import make_rule
from envs.simulation.slices.world import SliceWorld
from envs.simulation.snapshot import Observation
from envs.simulation.world import EpisodeKey

EPISODES = 50


def play(name: str) -> dict[str, np.ndarray]:
    """(EPISODES,) of each metric: the rule on validation episodes of the default world (Uniform b=33)."""
    world = SliceWorld(n_lanes=EPISODES)
    world.reset([EpisodeKey(0, "validation", index) for index in range(EPISODES)])
    rule = make_rule(name)
    for lane in range(EPISODES):
        rule.begin(lane, lane)
    active = np.ones(EPISODES, np.bool_)
    actions = np.zeros(EPISODES, np.int64)
    while active.any():
        lanes = np.flatnonzero(active)
        shown = world.observation
        chosen: Observation = {
            "clusters": shown["clusters"][lanes],
            "occupation": shown["occupation"][lanes],
            "jobs": shown["jobs"][lanes],
            "pairs": shown["pairs"][lanes],
            "action_mask": shown["action_mask"][lanes],
        }
        actions[lanes] = rule.act_batch(chosen, lanes)
        _, done = world.step(actions, active)
        active &= ~done
    episodes = [world.metrics(lane) for lane in range(EPISODES)]
    return {metric: np.array([episode[metric] for episode in episodes]) for metric in episodes[0]}


@pytest.mark.parametrize(
    ("name", "tmdl", "ajer"),
    [
        ("maf", 342.0, 93.38),
        ("eft", 66.7, 85.77),
        ("tuned", 20.7, 85.25),
        ("ih_filter", 6.2, 93.49),
    ],
)
def test_rules_land_on_the_prototypes_figures(name: str, tmdl: float, ajer: float) -> None:
    metrics = play(name)
    for metric, expected in (("tmdl", tmdl), ("ajer", ajer)):
        values = metrics[metric]
        # Both means come from 50 episodes, other ones, so the difference has sqrt(2) standard errors.
        band = 3 * np.sqrt(2) * values.std(ddof=1) / np.sqrt(EPISODES)
        assert values.mean() == pytest.approx(expected, abs=band)


def test_deadline_safe_is_near_the_prototypes_figures() -> None:
    # The prototype's rule is known by its figures only, 24.0 / 87.70: ours is a reading of its name.
    metrics = play("deadline_safe")
    assert metrics["tmdl"].mean() == pytest.approx(24.0, abs=10.0)
    assert metrics["ajer"].mean() == pytest.approx(87.70, abs=0.5)


@pytest.mark.real
def test_the_tuned_rule_is_the_rule_to_beat() -> None:
    tuned, eft, random = play("tuned"), play("eft"), play("random")
    # The prototype's S of the tuned rule is 717, of EFT 645.
    band = 3 * np.sqrt(2) * tuned["s"].std(ddof=1) / np.sqrt(EPISODES)
    assert tuned["s"].mean() == pytest.approx(717.0, abs=band)
    gain = tuned["s"] - eft["s"]
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(EPISODES)
    # "RAN and RR at b=33: about 1800 / 140."
    assert random["tmdl"].mean() > 1500
    assert random["ajer"].mean() > 130
