"""A session: when it validates, what it keeps as the best policy, what it writes, and when it stops."""

from __future__ import annotations

import itertools
import math
import os
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spotweave.agents.stored import load_policy_state
from spotweave.training.checkpoint import RunDirectory, load_state, save_state
from spotweave.training.evaluation.episodes import SuitePlayer
from spotweave.training.trainers.session import Best, InterruptedTraining, Session
from spotweave.training.trainers.trainer import RoundReport, Trainer
from tests.training.toy import Myopic, ToyWorld, slice_trainer, toy_monte_carlo


class Recorder:
    """A session on the toy world whose validations follow a script."""

    def __init__(
        self,
        directory: Path,
        scores: Sequence[float | tuple[float, ...]] | None = None,
        guided: tuple[float, ...] = (-10.0,),
        **changes: Any,
    ) -> None:
        wanted = {"episodes": 100, "validation_every": 40, "validation_episodes": 5, "gradient_steps": 1}
        self.trainer = trainer = toy_monte_carlo("rl_fc", **{**wanted, **changes})
        self.cards: list[dict[str, Any]] = []
        self.run = RunDirectory(directory)
        player = SuitePlayer([ToyWorld] * len(guided), 5)
        self.session = Session(
            trainer, player, Myopic(), trainer.settings, self.run, lambda card: self.cards.append(card)
        )
        if scores is not None:
            script = iter(scores)
            self.validated: list[int] = []
            real = self.session._validate

            def scripted(policy: Any) -> list[dict[str, float]]:
                reached = guided
                if policy is trainer.policy:
                    self.validated.append(trainer.episodes_done)
                    found = next(script)
                    reached = found if isinstance(found, tuple) else (found,)
                return [
                    {**metrics, "objective": one} for metrics, one in zip(real(policy), reached, strict=True)
                ]

            self.session._validate = scripted  # type: ignore[method-assign]


def test_a_run_validates_keeps_the_best_and_writes_cards_tables_and_curves(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [-9.0, -5.0, -3.0, -4.0])
    recorder.session.run()
    assert recorder.validated == [0, 40, 80, 100]
    # The best on validation is saved, not the last.
    assert [card["episodes"] for card in recorder.cards] == [0, 40, 80]
    assert recorder.session.best == Best(70.0, 80)
    for card in recorder.cards:
        assert card["guide"] == "myopic"
        assert set(card["validation"]) == set(card["validation_guide"]) == {"objective", "regret"}
        assert card["validation_guide"]["regret"] > 1.0
        assert card["decisions"] == card["episodes"] * 8
    header, *rows = recorder.run.validations.read_text().splitlines()
    assert header == "episode,decisions,objective,regret"
    validations = [["0", "0", "-9.0"], ["40", "320", "-5.0"], ["80", "640", "-3.0"], ["100", "800", "-4.0"]]
    assert [row.split(",")[:3] for row in rows] == validations
    curves = EventAccumulator(str(tmp_path / "tensorboard"))
    curves.Reload()
    assert set(curves.Tags()["scalars"]) == CURVES
    rounds = curves.Scalars("charts/decisions")
    assert [(event.step, event.value) for event in rounds] == [(20 * k, 160.0 * k) for k in range(1, 6)]


CURVES = {
    *(f"charts/{name}" for name in ("return", "decisions", "decisions_per_second", "epsilon_1")),
    *("charts/learning_rate", "losses/value", "validation/gain_over_guide_pct"),
    *(f"{part}/{name}" for part in ("train", "validation", "guide") for name in ("objective", "regret")),
}


def test_of_several_worlds_each_counts_alike(tmp_path: Path) -> None:
    # Gains of 0 and 0 %, then -20 and 5 % though the sum is better, then 10 and -1 %, then 0 and 0 %.
    scores = [(-10.0, -1000.0), (-12.0, -950.0), (-9.0, -1010.0), (-10.0, -1000.0)]
    recorder = Recorder(tmp_path, scores, guided=(-10.0, -1000.0))
    recorder.session.run()
    assert [card["episodes"] for card in recorder.cards] == [0, 80]
    assert recorder.session.best.episode == 80
    assert recorder.session.best.gain_pct == pytest.approx(4.5)
    assert recorder.cards[1]["validation"]["objective"] == -509.5


def test_decisions_in_the_table_are_those_learned_from(tmp_path: Path) -> None:
    """Some worlds count those of an episode among their metrics."""
    recorder = Recorder(tmp_path)
    recorder.session._validate = lambda policy: [{"objective": -9.0, "decisions": 7.0}]  # type: ignore[method-assign]
    recorder.session.run()
    rows = [row.split(",") for row in recorder.run.validations.read_text().splitlines()]
    assert rows[0] == ["episode", "decisions", "objective"]
    assert [row[1] for row in rows[1:]] == ["0", "320", "640", "800"]


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        pytest.param([-9.0, -2.0, -3.0, -8.0], [0, 80], id="an early one does not count"),
        pytest.param([-9.0, -2.0, -9.5, -8.0], [0, 100], id="the last one"),
        pytest.param([-9.0, -2.0, -9.5, -9.8], [0], id="the untrained policy, if no late one is better"),
    ],
)
def test_early_validations_choose_no_policy_where_they_shall_not(
    scores: list[float], kept: list[int], tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path, scores, choose_from=0.8)
    recorder.session.run()
    assert recorder.validated == [0, 40, 80, 100]
    assert [card["episodes"] for card in recorder.cards] == kept


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        pytest.param([-9.0, -2.0, -3.0, -8.0], [0, 80, 100], id="the last one"),
        pytest.param([-9.0, -2.0, -3.0, -9.5], [0, 80], id="else the best of those that count"),
    ],
)
def test_the_last_policy_is_preferred_if_it_gains(
    scores: list[float], kept: list[int], tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path, scores, choose_from=0.8, prefer_last=True)
    recorder.session.run()
    assert [card["episodes"] for card in recorder.cards] == kept


def test_what_is_no_number_improves_on_nothing_but_there_is_a_policy(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [math.nan, math.nan, -30.0, math.nan])
    recorder.session.run()
    assert [card["episodes"] for card in recorder.cards] == [0, 80]
    assert recorder.session.best == Best(-200.0, 80)


def test_the_time_limit_ends_after_a_whole_round_with_everything_saved(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [-2.0, -1.0], max_minutes=1e-9)
    recorder.session.run()
    assert recorder.trainer.episodes_done == 20
    assert recorder.validated == [0, 20]
    assert recorder.run.state.is_file()
    assert len(recorder.cards) == 2


def interrupt_in_round(recorder: Recorder, number: int, times: int = 1) -> None:
    """Send this process Ctrl-C while round `number` runs."""
    real, rounds = recorder.trainer.round, itertools.count(1)

    def interrupted() -> RoundReport:
        if next(rounds) == number:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return real()

    recorder.trainer.round = interrupted  # type: ignore[method-assign]


def saved_state(run: RunDirectory) -> Mapping[str, Any]:
    state = run.load_state()
    assert state is not None
    return state


@pytest.mark.real
def test_ctrl_c_finishes_the_round_saves_and_goes_on_exactly(tmp_path: Path) -> None:
    straight = Recorder(tmp_path / "straight", [-9.0, -5.0, -3.0, -4.0])
    straight.session.run()
    first = Recorder(tmp_path / "stopped", [-9.0, -5.0])
    interrupt_in_round(first, 3)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(InterruptedTraining):
        first.session.run()
    assert signal.getsignal(signal.SIGINT) is before  # the user's own handler is back
    assert first.trainer.episodes_done == 60
    assert saved_state(first.run)["trainer"]["episodes_done"] == 60
    second = Recorder(tmp_path / "stopped", [-3.0, -4.0])
    second.session.restore(saved_state(first.run))
    second.session.run()
    assert second.validated == [80, 100]
    assert second.session.best == straight.session.best
    assert second.session.decisions == straight.session.decisions == 800
    assert second.run.validations.read_text() == straight.run.validations.read_text()
    one, other = (r.trainer.policy.network.state_dict() for r in (straight, second))
    assert all(one[name].equal(other[name]) for name in one)


def test_ctrl_c_in_the_last_round_simply_ends_and_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, [-9.0, -5.0, -3.0, -4.0])
    interrupt_in_round(recorder, 5)
    recorder.session.run()
    assert recorder.validated == [0, 40, 80, 100]
    again = Recorder(tmp_path, [])
    again.session.restore(saved_state(recorder.run))
    again.session.run()
    assert again.validated == []
    assert again.cards == []


def test_a_second_ctrl_c_stops_at_once_and_leaves_the_latest_state(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    recorder = Recorder(tmp_path, save_every_minutes=0.0)  # saved after every round
    interrupt_in_round(recorder, 3, times=2)
    with pytest.raises(KeyboardInterrupt):
        recorder.session.run()
    assert saved_state(recorder.run)["trainer"]["episodes_done"] == 40
    assert signal.getsignal(signal.SIGINT) is before  # the user's own handler is back


@pytest.mark.parametrize(("reached", "guided", "gain"), [(-4.5, -5.0, 10.0), (-5.5, -5.0, -10.0)])
def test_a_gain_is_a_share_of_what_the_guide_reaches(
    reached: float, guided: float, gain: float, tmp_path: Path
) -> None:
    session = Recorder(tmp_path).session
    for session.higher_is_better, expected in ((True, gain), (False, -gain)):
        assert session._gain_pct({"objective": reached}, {"objective": guided}) == pytest.approx(expected)


# Exact resume: 2N rounds equal N rounds, a checkpoint on disk, fresh objects and N rounds, bit for bit.


ROUNDS = 2


def assert_same(one: Any, other: Any, where: str = "state") -> None:
    """Equal to the last bit, whatever the nesting."""
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True), where
    elif isinstance(one, np.ndarray):
        assert np.array_equal(one, other), where
    else:
        assert one == other, where


def assert_same_files(one: RunDirectory, other: RunDirectory) -> None:
    """The state and the policy of two runs, but for what tells the time and the command."""
    for load, name in ((load_state, "state.pt"), (load_policy_state, "policy.pt")):
        states = [load(run.path / name) for run in (one, other)]
        for state in states:
            state.pop("seconds", None)
            state.pop("training", None)
        assert_same(states[0], states[1], name)


def resumed(make: Any, path: Path) -> tuple[Trainer, list[RoundReport]]:
    """N rounds, a save, a fresh trainer of another seed's weights, a load, N rounds."""
    first = make(0)
    reports = [first.round() for _ in range(ROUNDS)]
    save_state(path, {"format": 1, "trainer": first.state_dict()})
    second: Trainer = make(1)
    second.seed = first.seed  # type: ignore[attr-defined]
    torch.manual_seed(12345)  # whatever another process would have drawn
    second.load_state_dict(load_state(path)["trainer"])
    return second, reports + [second.round() for _ in range(ROUNDS)]


def assert_resumed_exactly(make: Any, path: Path) -> Any:
    """The trainer that never stopped."""
    straight = make(0)
    reports = [straight.round() for _ in range(2 * ROUNDS)]
    other, other_reports = resumed(make, path)
    assert_same(straight.state_dict(), other.state_dict())
    assert reports == other_reports
    return straight


@pytest.mark.parametrize(("kind", "guide"), [("rl_lsfc", "maf"), ("rl_fc", "random")])
def test_on_the_slice_world(kind: str, guide: str, tmp_path: Path) -> None:
    straight = assert_resumed_exactly(partial(slice_trainer, kind, guide=guide), tmp_path / "state.pt")
    assert straight.episodes_done == 2 * ROUNDS * straight.settings.lanes


@pytest.mark.real
def test_on_the_toy_world_with_a_full_replay(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"replay_capacity": 70, "gradient_steps": 1}
    straight = assert_resumed_exactly(partial(toy_monte_carlo, "rl_lsfc", **settings), tmp_path / "state.pt")
    assert straight.replay.size == 70


def test_the_test_can_fail(tmp_path: Path) -> None:
    """A trainer that forgets its exploration stream is found out."""
    straight, other = toy_monte_carlo(gradient_steps=1), toy_monte_carlo(gradient_steps=1)
    for _ in range(ROUNDS):
        straight.round()
    state = straight.state_dict()
    other.load_state_dict(state)
    other.exploration.rng = np.random.default_rng(0)
    straight.round()
    other.round()
    with pytest.raises(AssertionError):
        assert_same(straight.state_dict(), other.state_dict())
