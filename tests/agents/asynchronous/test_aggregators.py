"""Aggregators: the next models worked by hand, and who takes part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agents.federated.asynchronous.aggregator import Aggregator, Update, UpdateError, UpdateId
from agents.federated.asynchronous.averaging import AsynDA, AsynMA, FedAsync, FedAvg, FedBuff
from agents.federated.asynchronous.fed_suda import FedSuda, ShadowSelection, slow_participants
from agents.federated.asynchronous.hale_fed import HaleFed
from agents.federated.asynchronous.hp_asgd import HpAsgd

ZERO = np.zeros(2)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def send(
    aggregator: Aggregator[Any], participant: int, values: list[float], base: int = 0, samples: int = 1
) -> None:
    aggregator.receive(Update(participant, base, np.array(values), samples))


@pytest.mark.parametrize("aggregator", [AsynDA(ZERO, 2, rate=0.5), HaleFed(ZERO, 2, 3, rate=0.5)])
def test_differences_are_averaged_by_samples(aggregator: Aggregator[Any]) -> None:
    send(aggregator, 0, [4, 0], samples=3)
    assert aggregator.advance() is None
    send(aggregator, 1, [0, 8], samples=1)
    made = aggregator.advance()
    # Eq. 6.3: 0.5 x (3 x [4, 0] + 1 x [0, 8]) / 4
    assert aggregator.model.tolist() == [1.5, 1.0]
    assert made == (1, (UpdateId(0, 0), UpdateId(1, 0)), (0, 0), 2)


def test_gradients_are_descended() -> None:
    aggregator = AsynDA(ZERO, 1, "gradient", rate=0.5)
    send(aggregator, 0, [4, -2])
    aggregator.advance()
    assert aggregator.model.tolist() == [-2.0, 1.0]


def test_a_difference_applies_to_the_current_model_and_a_model_replaces_it() -> None:
    by_difference, by_model = AsynDA(ZERO, 1), AsynMA(ZERO, 1)
    for aggregator in (by_difference, by_model):
        send(aggregator, 0, [1, 1])
        aggregator.advance()
        send(aggregator, 1, [0, 3], base=0)
        made = aggregator.advance()
        assert made is not None
        assert made.staleness == (1,)
    assert by_difference.model.tolist() == [1.0, 4.0]
    assert by_model.model.tolist() == [0.0, 3.0]


def test_fed_avg_draws_once_per_round_and_waits_for_all() -> None:
    aggregator = FedAvg(ZERO, 10, 4, generator())
    drawn = [invitation.participant for invitation in aggregator.invite(range(10))]
    assert len(set(drawn)) == 4
    for participant in drawn:
        assert aggregator.advance() is None
        assert aggregator.invite(range(10)) == []
        send(aggregator, participant, [2, 0])
    assert aggregator.advance() is not None
    assert aggregator.model.tolist() == [2.0, 0.0]
    assert {invitation.version for invitation in aggregator.invite(range(10))} == {1}


def test_fed_buff_weighs_by_one_over_the_root_of_one_plus_staleness() -> None:
    aggregator = FedBuff(ZERO, 2, rate=2.0)
    for version in range(4):
        for participant in (0, 1):
            send(aggregator, participant, [0, 0], base=version)
        aggregator.advance()
    assert aggregator.version == 4
    send(aggregator, 0, [4, 0], base=1)  # 3 versions old: s = 1 / sqrt(4)
    send(aggregator, 1, [0, 4], base=4)
    aggregator.advance()
    # 2 / 2 x (0.5 x [4, 0] + 1 x [0, 4])
    assert aggregator.model.tolist() == [2.0, 4.0]


def test_fed_async_mixes_by_its_polynomial() -> None:
    aggregator = FedAsync(ZERO, mixing=0.5, exponent=1.0)
    send(aggregator, 0, [4, 0])
    aggregator.advance()
    # t - tau = 1: 0.5 x 2**-1 = 0.25
    assert aggregator.model.tolist() == [1.0, 0.0]
    send(aggregator, 1, [7, 6], base=0)
    aggregator.advance()
    # t - tau = 2: 0.5 / 3 = 1/6 of [7, 6], 5/6 of [1, 0]
    assert aggregator.model.tolist() == pytest.approx([2.0, 1.0])


def test_hp_asgd_scales_by_share_over_frequency() -> None:
    aggregator = HpAsgd(ZERO, [1, 3], 2, 1.0, generator())
    # Nothing used yet: fre = (0 + 1) / (0 + 2), p = 1/4 and 3/4.
    assert [invitation.scale for invitation in aggregator.invite([0, 1])] == [0.5, 1.5]
    for _ in range(2):
        send(aggregator, 0, [2, 2])
        send(aggregator, 0, [0, 2])
        aggregator.advance()
    # Participant 0 was used 4 times: fre_0 = 5/6, fre_1 = 1/6.
    assert aggregator.scale(0) == pytest.approx(0.25 * 6 / 5)
    assert aggregator.scale(1) == pytest.approx(0.75 * 6)
    assert aggregator.model.tolist() == [-2.0, -4.0]


def test_the_scaled_gradients_are_unbiased_whoever_answers_more_often() -> None:
    # Liu 2022, below Algorithm 7's introduction: E mean of (p / fre) G is sum p_n grad f_n. Participant 0
    # answers nine times as often; its gradient is [1, 0], the other's [0, 1], both with p = 1/2.
    aggregator = HpAsgd(ZERO, [1, 1], 10, 1.0, generator())
    plain = AsynDA(ZERO, 10, "gradient")
    rounds = 400
    for k in range(rounds):
        for participant in [0] * 9 + [1]:
            gradient = np.eye(2)[participant]
            (invitation,) = aggregator.invite([participant])
            send(aggregator, participant, list(invitation.scale * gradient), base=k)
            send(plain, participant, list(gradient), base=k)
        aggregator.advance()
        plain.advance()
    assert (-aggregator.model / rounds).tolist() == pytest.approx([0.5, 0.5], abs=0.01)
    assert (-plain.model / rounds).tolist() == pytest.approx([0.9, 0.1])


def test_hp_asgd_keeps_to_what_may_be_stored_or_computed_at_once() -> None:
    aggregator = HpAsgd(ZERO, [1] * 10, 2, 1.0, generator(), at_once=3)
    first = [invitation.participant for invitation in aggregator.invite(range(10))]
    assert len(first) == 3
    send(aggregator, first[0], [0, 0])
    # One stored and two computing are three already.
    assert aggregator.invite([first[0]]) == []
    send(aggregator, first[1], [0, 0])
    aggregator.advance()
    assert len(aggregator.invite(range(10))) == 2


def test_hp_asgd_leaves_out_what_is_too_stale() -> None:
    aggregator = HpAsgd(ZERO, [1, 1, 1], 1, 1.0, generator(), staleness_bound=1)
    for version in range(2):
        send(aggregator, 0, [0, 0], base=version)
        aggregator.advance()
    send(aggregator, 1, [5, 5], base=0)
    assert aggregator.advance() is None
    send(aggregator, 2, [1, 0], base=1)
    made = aggregator.advance()
    assert made is not None
    assert made.used == (UpdateId(2, 1),)
    assert aggregator.model.tolist() == [-1.0, 0.0]


def test_fed_suda_counts_everyone_once_per_episode() -> None:
    # 3 regular participants and 1 slow one: W = 2 gives W_rp = 2 x 3 / 4 = 1.5, rounded to 2, which
    # leaves no place for the slow one. W = 4 takes the 3 regular ones and the shadow.
    aggregator = FedSuda(ZERO, ShadowSelection(4, [3], 4, 5))
    send(aggregator, 3, [4, 4])
    fresh = []
    for version in range(3):
        for participant in range(3):
            send(aggregator, participant, [0, 4], base=version)
        made = aggregator.advance()
        assert made is not None
        assert {update.participant for update in made.used} == {0, 1, 2, 3}
        fresh.append(made.fresh)
    # The shadow is used three times but is new only once; each round adds ([0, 4] x 3 + [4, 4]) / 4.
    assert fresh == [4, 3, 3]
    assert aggregator.model.tolist() == [3.0, 12.0]


def test_fed_suda_waits_for_a_shadow_beyond_the_bound() -> None:
    aggregator = FedSuda(ZERO, ShadowSelection(2, [1], 2, 1))
    send(aggregator, 1, [0, 0])
    for version in range(3):
        send(aggregator, 0, [0, 0], base=version)
        made = aggregator.advance()
        # The shadow is based on version 0: used at staleness 0 and 1, but not 2.
        assert (made is None) == (version == 2)
    send(aggregator, 1, [8, 0], base=2)
    made = aggregator.advance()
    assert made is not None
    assert aggregator.model.tolist() == [4.0, 0.0]


def test_in_any_order_of_arrival_every_participant_attends_each_episode_once() -> None:
    order = generator()
    selection = ShadowSelection(20, range(16, 20), 10, 50)
    aggregator = FedSuda(ZERO, selection)
    used: Counter[int] = Counter()
    while selection.episode < 5:
        # The slow ones answer seldom; a regular one may answer again before it is used.
        participant = int(order.choice(20, p=[0.06] * 16 + [0.01] * 4))
        if aggregator.invite([participant]):
            send(aggregator, participant, [0, 0], base=aggregator.version)
        before = selection.episode
        if (made := aggregator.advance()) is not None:
            used.update(update.participant for update in made.used)
            if selection.episode > before:
                assert set(used.values()) == {selection.episode}
                assert len(used) == 20


def test_slow_participants_by_the_heterogeneity_factor() -> None:
    # Speeds relative to the slowest, 100: 100, 2, 1, 1.
    assert slow_participants([1, 50, 100, 100], 2) == {1, 2, 3}
    assert slow_participants([1, 50, 100, 100], 1) == {2, 3}


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (Update(0, 0, np.zeros(3)), r"shape \(3,\): expected \(2,\)"),
        (Update(0, 0, np.array([np.nan, 0])), "NaN or infinity"),
        (Update(0, 0, ZERO, samples=0), "0 samples"),
        (Update(0, 1, ZERO), "based on model 1"),
        (Update(0, -1, ZERO), "based on model -1"),
    ],
)
def test_an_update_that_would_spoil_the_model_is_refused(update: Update, message: str) -> None:
    aggregator = AsynDA(ZERO, 1)
    with pytest.raises(UpdateError, match=message):
        aggregator.receive(update)
    assert aggregator.advance() is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AsynDA(ZERO, 0), "updates per round is 0"),
        (lambda: AsynDA(ZERO, 1, rate=0), "rate is 0"),
        (lambda: HaleFed(ZERO, 1, brokers=1), "brokers is 1"),
        (lambda: ShadowSelection(4, [3], 4, -1), "T is -1"),
        (lambda: ShadowSelection(4, [4], 4, 1), "numbers below 4"),
        (lambda: ShadowSelection(4, [3], 2, 5), "leave no place"),
        (lambda: slow_participants([1, 2], 0.5), r"L is 0\.5"),
        (lambda: HpAsgd(ZERO, [1, 1], 2, 1.0, generator(), at_once=1), "P is 1"),
        (lambda: FedAsync(ZERO, mixing=1.5), r"alpha is 1\.5"),
        (lambda: FedAvg(ZERO, 3, 4, generator()), "at most 3"),
    ],
)
def test_settings_out_of_range_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UpdateError, match=message):
        make()
