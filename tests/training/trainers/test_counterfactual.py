"""Counterfactual training: labels computed by hand, copies that leave play alone, a toy that is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from envs.simulation import columns as col
from envs.simulation.snapshot import Observation
from envs.simulation.world import EpisodeKey
from tests.training.tiny_trainers import CPU, slice_trainer, toy_counterfactual, toy_regret
from tests.training.toy import Myopic, ToyWorld
from training.settings import CounterfactualSettings, ScheduleSettings
from training.trainers.counterfactual import CounterfactualTrainer

C = 3


def labelling(**changes: int | float) -> CounterfactualSettings:
    """No further arrivals: a copy ends once the jobs at hand are placed."""
    base = CounterfactualSettings(states_per_episode=4, further_arrivals=0, copies=120, candidates=6)
    for name, value in changes.items():
        setattr(base, name, value)
    return base


def centred_totals(trainer: CounterfactualTrainer, row: int) -> tuple[NDArray[np.float64], list[int]]:
    """What the label says the tried choices of one decision came to, minus their mean; the choices."""
    batch = trainer.replay.rows(np.array([row]), CPU)
    tried = batch.tried[0]
    totals = batch.outcomes[0, tried].double().sum(-1).numpy()
    return totals - totals.mean(), batch.choices[0, tried].tolist()


def test_labels_by_hand() -> None:
    trainer = toy_counterfactual(gradient_steps=1, counterfactual=labelling())
    trainer.round()
    trainer.round()
    assert trainer.replay.size > 40
    batch = trainer.replay.rows(np.arange(trainer.replay.size), CPU)
    costs = batch.inputs.pairs[:, 0, :, col.EXECUTION_S].double().numpy()
    prices = batch.inputs.clusters[..., col.PRICE_USD_HOUR].double().numpy()
    # What the other job comes to, and the luck of the episode, are the same for every cluster and cancel.
    total = -(costs + prices)
    expected = total - total.mean(1, keepdims=True)
    for row in range(trainer.replay.size):
        got, choices = centred_totals(trainer, row)
        assert choices == [0, 1, 2]
        assert got == pytest.approx(expected[row], abs=1e-3)


def test_the_own_component_is_the_decided_jobs() -> None:
    trainer = toy_counterfactual(gradient_steps=1)
    trainer.round()
    batch = trainer.replay.rows(np.arange(trainer.replay.size), CPU)
    for row, column in zip(*np.nonzero(batch.tried.numpy()), strict=True):
        cost = batch.inputs.pairs[row, 0, batch.choices[row, column], col.EXECUTION_S]
        assert batch.outcomes[row, column, 0] == -cost


def test_copies_leave_the_episodes_alone() -> None:
    guided = ScheduleSettings(0.0, 0.0)
    everything = labelling(states_per_episode=1000, further_arrivals=3)
    trainer = toy_counterfactual(epsilon_1=guided, epsilon_2=guided, counterfactual=everything)
    trainer.label_chance = 1.0
    world = ToyWorld(20)
    world.reset([EpisodeKey(0, "train", index) for index in range(20)])
    while world.waiting(0):
        world.step(Myopic().act_batch(world.observation, np.arange(20)))
    expected = np.mean([world.metrics(lane)["objective"] for lane in range(20)])
    report = trainer.round()
    assert report.decisions == 160
    assert trainer.replay.size == 160  # every decision had choices to try
    assert report.metrics["objective"] == pytest.approx(expected)


@pytest.mark.parametrize("copies", [6, 7, 50])
def test_few_copies_give_the_same_labels(copies: int) -> None:
    # Copies are played to their ends when no further decision fits, whenever that is.
    trainers = [
        toy_counterfactual(gradient_steps=1, counterfactual=labelling(copies=count))
        for count in (120, copies)
    ]
    for trainer in trainers:
        trainer.label_chance = 1.0
        trainer.round()
    many, few = (trainer.replay.state_dict()["columns"] for trainer in trainers)
    assert all(torch.equal(many[name], few[name]) for name in many)


def test_candidates_are_limited_and_include_the_choice_taken() -> None:
    trainer = toy_counterfactual(gradient_steps=1, counterfactual=labelling(candidates=2, copies=50))
    taken_choices: list[int] = []
    branch = trainer._branch

    def record(lane: int, taken: int) -> None:
        before = len(trainer._pending)
        branch(lane, taken)
        assert len(trainer._pending) == before + 1
        pending = trainer._pending[-1]
        assert len(set(pending.targets.tolist())) == 2
        assert taken % (C + 1) in pending.targets
        assert taken in pending.actions
        assert (pending.actions // (C + 1) == taken // (C + 1)).all()
        taken_choices.append(taken)

    trainer._branch = record  # type: ignore[method-assign]
    trainer.label_chance = 1.0
    trainer.round()
    assert len(taken_choices) == 160


def test_copies_follow_the_guide_first_and_the_policy_later() -> None:
    trainer = toy_counterfactual(episodes=40, gradient_steps=1, counterfactual=labelling(self_play_share=0.5))
    n_lanes = trainer.settings.lanes
    asked: dict[str, int] = {"guide": 0, "policy": 0}

    def count(name: str, act):  # type: ignore[no-untyped-def]
        def wrapped(observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
            asked[name] += int((lanes >= n_lanes).sum())
            chosen: NDArray[np.int64] = act(observations, lanes)
            return chosen

        return wrapped

    trainer.guide.act_batch = count("guide", trainer.guide.act_batch)  # type: ignore[method-assign]
    trainer.policy.act_batch = count("policy", trainer.policy.act_batch)  # type: ignore[method-assign]
    trainer.round()
    assert asked["guide"] > 0
    assert asked["policy"] == 0
    asked["guide"] = 0
    trainer.round()
    assert asked["guide"] == 0
    assert asked["policy"] > 0


def test_the_labelled_share_adapts_to_the_length_of_the_episodes() -> None:
    trainer = toy_counterfactual(gradient_steps=1, counterfactual=labelling(states_per_episode=2))
    trainer.round()
    assert trainer.label_chance == pytest.approx(2 / 8)


def test_a_first_round_without_labels_learns_later() -> None:
    # One short episode: with the first chance of 5 % there is often nothing to label.
    trainer = toy_counterfactual(lanes=1, episodes=30)
    trainer.label_chance = 0.0
    empty = trainer.round()
    assert empty.losses == {}
    assert (empty.epsilon_1, trainer.replay.size) == (1.0, 0)
    for _ in range(10):
        report = trainer.round()
    assert set(report.losses) == {"own", "mutual"}
    assert trainer.policy.network.state_dict()["pair_scaler.fitted"] == 1.0


def test_it_learns_the_toy_world_far_better_than_its_guide() -> None:
    trainer = toy_counterfactual()
    before = toy_regret(Myopic())
    while trainer.episodes_done < trainer.settings.episodes:
        report = trainer.round()
    assert before > 2.0
    assert toy_regret(trainer.policy) < 0.15 * before
    assert report.losses["own"] < 0.01


def test_it_runs_on_the_slice_world() -> None:
    trainer = slice_trainer("pairwise")
    assert isinstance(trainer, CounterfactualTrainer)
    for _ in range(3):
        report = trainer.round()
    assert report.decisions == 3 * 25
    assert trainer.replay.size > 0
    assert all(np.isfinite(loss) for loss in report.losses.values())


def test_two_runs_with_one_seed_are_equal() -> None:
    states = []
    for _ in range(2):
        trainer = slice_trainer("pairwise", seed=3)
        trainer.round()
        trainer.round()
        states.append(trainer.policy.network.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def varied(seed: int = 0) -> CounterfactualTrainer:
    """Two clusters in every second round, three in the others."""
    trainer = toy_counterfactual(seed, counterfactual=labelling())
    lanes = CounterfactualTrainer.lanes_needed(trainer.settings)
    trainer.draw_world = lambda number: ToyWorld(lanes, n_clusters=2) if number % 2 else None
    return trainer


def test_rounds_may_be_played_in_other_worlds() -> None:
    trainer = varied()
    worlds = []
    while trainer.episodes_done < trainer.settings.episodes:
        trainer.round()
        worlds.append(trainer.world.spec.n_clusters)
    assert worlds == [3, 2, 3, 2, 3, 2]
    batch = trainer.replay.rows(np.arange(trainer.replay.size), CPU)
    here = (batch.inputs.clusters[..., col.SEQUENCE] > 0).sum(-1)
    assert set(here.tolist()) == {2, 3}
    assert bool((batch.choices.amax(-1) < here).all())
    assert toy_regret(trainer.policy) < 0.3 * toy_regret(Myopic())


def test_a_training_in_several_worlds_resumes_exactly() -> None:
    straight, first = varied(), varied()
    for _ in range(4):
        straight.round()
    for _ in range(2):
        first.round()
    second = varied()
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        second.round()
    one, other = straight.policy.network.state_dict(), second.policy.network.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
