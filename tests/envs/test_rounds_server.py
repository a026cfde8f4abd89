"""A server that is rented too: its revocation, checkpoints, messages, quotas and degradations, by hand."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.agents.federated.rules.always_on import AlwaysOn
from spotweave.agents.federated.rules.fed_cost_aware import FedCostAware
from spotweave.envs.simulation.federations.rounds.application import (
    SERVER,
    Application,
    Checkpoints,
    Client,
    Degradation,
    EpochTimes,
    Interruption,
    Links,
    Market,
    Offer,
    Quota,
    Server,
    Tariff,
)
from spotweave.envs.simulation.federations.rounds.decisions import (
    Answer,
    Cause,
    InvalidAnswerError,
    Leave,
    Outcome,
    Placement,
    Question,
    ServerLoss,
    State,
)
from spotweave.envs.simulation.federations.rounds.running import RunningApplication
from spotweave.envs.simulation.federations.rounds.world import RoundsWorld, play
from tests.envs.federated_cases import RandomPolicy, Script, bills_of
from tests.envs.test_rounds_stories import check_money, check_states

NEAR, FAR = 0, 1


def federated(interruptions: tuple[tuple[int, int], ...] = (), **settings: Any) -> Application:
    """Two clients (100 s and 50 s, cold 50 s more) and a server, each ready 20 s after its request.

    Offer NEAR costs 0.36 USD/hour, FAR 0.72. Messages take 10 s within the near zone, 40 s to the far one.
    Aggregation takes 5 s, on the far offer 2 s.
    """
    offers = (
        Offer("near", "near", Market.SPOT, Tariff.constant(0.36)),
        Offer("far", "far", Market.SPOT, Tariff.constant(0.72)),
    )
    zones = ("near", "far")
    options: dict[str, Any] = {
        "rounds": 3,
        "clients": (
            Client("slow", 100, 150, 20, (NEAR, FAR), on_offer={FAR: EpochTimes(60, 90)}),
            Client("fast", 50, 100, 20, (NEAR, FAR)),
        ),
        "offers": offers,
        "aggregation_s": 5,
        "checkpoint_s": None,
        "billing_minimum_s": 0,
        "server": Server((NEAR, FAR), 20.0, {FAR: 2.0}),
        "links": Links(
            {(a, b): 10.0 if a == b == "near" else 40.0 for a in zones for b in zones},
            {(a, b): 0.001 if a == b else 0.01 for a in zones for b in zones},
        ),
        "interruptions": tuple(Interruption(task, time_s) for task, time_s in interruptions),
    }
    return Application("federated", **{**options, **settings})


def played(interruptions: tuple[tuple[int, int], ...] = (), **settings: Any) -> Outcome:
    """What becomes of it where nobody ever moves."""
    return play(federated(interruptions, **settings), Script({}), 0)


def test_messages_and_aggregation_are_part_of_a_round_and_everything_is_paid() -> None:
    outcome = played()
    # Ready at 20; cold 150 + 10 s of messages, warm 110; 5 s of aggregation after each round.
    assert outcome.rounds == [(20, 180), (185, 295), (300, 410)]
    assert outcome.time_s == 415
    assert outcome.client_cost_usd(SERVER) == pytest.approx(415 * 0.0001)
    assert outcome.messages_usd == pytest.approx(6 * 0.001)
    assert outcome.cost_usd == pytest.approx(3 * 415 * 0.0001 + 0.006)
    assert outcome.server_spans[0][:3] == (0, 20, State.SPIN_UP)


def test_epochs_messages_and_aggregation_depend_on_where_clients_and_server_are() -> None:
    far_client = play(federated(), Script({(cause, 0): Placement(FAR) for cause in Cause}), 0)
    # The slow client: 90 + 40 cold, 60 + 40 warm; the fast one, near, 100 + 10 and 50 + 10.
    assert far_client.rounds[:2] == [(20, 150), (155, 255)]
    all_far = Script({(cause, k): Placement(FAR) for cause in Cause for k in (SERVER, 0, 1)})
    assert play(federated(), all_far, 0).rounds == [(20, 160), (162, 262), (264, 364)]


def test_what_a_policy_is_told_beforehand() -> None:
    world = RoundsWorld(federated(), 0)
    assert world.advance() == Question(Cause.START, SERVER)
    assert world.message_usd(0, FAR) == 0.0
    assert world.expected_epoch_s(0, NEAR, cold=False) == 100
    world.answer(Placement(FAR))
    assert world.advance() == Question(Cause.START, 0)
    assert world.expected_epoch_s(0, NEAR, cold=False) == 140
    assert world.expected_epoch_s(0, FAR, cold=True) == 130
    assert world.expected_epoch_s(SERVER, FAR, cold=False) == 2
    assert world.expected_spin_up_s(SERVER, FAR) == 20
    assert world.message_usd(0, NEAR) == 0.01
    assert world.member(SERVER) is world.server


KEPT_BY_CLIENTS = Checkpoints(on_clients=True)


def test_a_lost_server_costs_its_round_while_one_client_keeps_the_weights() -> None:
    outcome = played(((SERVER, 250),), checkpoints=KEPT_BY_CLIENTS)
    # Lost at 250, in round 2 (from 185); the next server is ready at 270, and round 2 takes its 110 s again.
    assert outcome.rounds == [(20, 180), (270, 380), (385, 495)]
    assert outcome.server_losses == [ServerLoss(250, 1, 270, 1)]
    # The clients' instances stayed, idle and paid.
    assert bills_of(outcome, 0) == [(0, 500)]
    assert outcome.seconds_in(0, State.TRAINING) == 160 + 65 + 110 + 110


def test_without_any_checkpoint_everything_begins_anew() -> None:
    outcome = played(((SERVER, 350),))
    assert outcome.server_losses == [ServerLoss(350, 2, 370, 0)]
    assert outcome.rounds == [(370, 480), (485, 595), (600, 710)]
    assert [epoch.round_index for epoch in outcome.epochs if epoch.client == 0] == [0, 1, 0, 1, 2]


def test_the_newest_complete_server_checkpoint_counts_where_no_client_keeps_one() -> None:
    saved = Checkpoints(every_rounds=1, transfer_s=100)
    # Round 1 is aggregated at 185, and its copy complete at 285. Lost at 310, in round 3.
    outcome = played(((SERVER, 310),), checkpoints=saved)
    assert outcome.server_losses == [ServerLoss(310, 2, 330, 1)]
    assert outcome.rounds == [(20, 180), (330, 440), (445, 555)]
    # Lost before the copy is complete: from the beginning.
    outcome = played(((SERVER, 284),), checkpoints=saved)
    assert outcome.server_losses == [ServerLoss(284, 1, 304, 0)]


def test_clients_that_were_replaced_keep_nothing() -> None:
    both = Checkpoints(every_rounds=2, on_clients=True)
    # Both clients go at 310 and 311, in round 3; the server at 320: two rounds are elsewhere since 300.
    gone = played(((0, 310), (1, 311), (SERVER, 320)), checkpoints=both, rounds=4)
    assert gone.server_losses == [ServerLoss(320, 2, 340, 2)]
    # In round 2 nothing is elsewhere yet, and the new instances have received no aggregated weights.
    gone = played(((0, 200), (1, 201), (SERVER, 240)), checkpoints=both, rounds=4)
    assert gone.server_losses == [ServerLoss(240, 1, 260, 0)]
    # One client that survives is enough.
    gone = played(((0, 200), (SERVER, 240)), checkpoints=both, rounds=4)
    assert gone.server_losses == [ServerLoss(240, 1, 260, 1)]


def test_checkpoints_take_their_time() -> None:
    costly = Checkpoints(every_rounds=2, save_s=7, round_s=3, on_clients=True, client_round_s=4)
    # Epochs take 4 s more; aggregations 5 + 3, and 7 more after the second round.
    assert played(checkpoints=costly).rounds == [(20, 184), (192, 306), (321, 435)]


def test_a_server_lost_while_it_aggregates_loses_the_round() -> None:
    outcome = played(((SERVER, 182),), checkpoints=KEPT_BY_CLIENTS)
    assert outcome.server_losses == [ServerLoss(182, 0, 202, 0)]
    assert outcome.rounds[0] == (202, 312)


def test_a_server_lost_while_it_is_replaced_is_replaced_again() -> None:
    twice = ((SERVER, 250), (SERVER, 260))
    outcome = played(twice, checkpoints=KEPT_BY_CLIENTS)
    assert outcome.server_losses == [ServerLoss(250, 1, 280, 1)]
    calm = played(twice, checkpoints=KEPT_BY_CLIENTS, spin_up_interrupted=False)
    assert calm.server_losses == [ServerLoss(250, 1, 270, 1)]


def test_clients_are_asked_when_the_server_is_lost_so_that_none_is_missing() -> None:
    never = Script({(Cause.FINISHED, 1): Placement(NEAR, float("inf"))})
    outcome = play(federated(((SERVER, 160),), checkpoints=KEPT_BY_CLIENTS, rounds=1), never, 0)
    # The fast client was released for good at 130; its result is lost with the server, so it comes back.
    assert (160, Question(Cause.ROUND, 1)) in never.asked
    # The slow one has not yet completed an epoch where it is, so its next is a cold one, too.
    assert outcome.rounds == [(180, 340)]
    assert len(outcome.epochs) == 3


def test_spin_up_that_is_free_and_results_that_are_fetched() -> None:
    outcome = played(spin_up_billed=False, closing_s=30)
    assert outcome.time_s == 415 + 30
    assert outcome.client_cost_usd(0) == pytest.approx((445 - 20) * 0.0001)
    assert outcome.accumulated_usd(0, 120) == pytest.approx(100 * 0.0001)
    late = played(((0, 430), (SERVER, 431)), spin_up_billed=False, closing_s=30)
    # What is taken while results are fetched is not replaced.
    assert [bill.end_s for bill in late.bills] == [430, 431, 445]
    assert not late.server_losses


def test_a_quota_closes_an_offer_and_a_move_gives_its_place_back() -> None:
    quota = Quota("GPUs", 2, {NEAR: 1, FAR: 1})

    class Asks:
        name = "asks"
        seen: list[tuple[int, bool, bool]]

        def start(self, view: RunningApplication) -> None:
            self.seen = []

        def decide(self, question: Question, view: RunningApplication) -> Answer:
            if view.now_s == 0:
                self.seen.append((question.client, view.available(NEAR), view.available(FAR)))
            if question.cause is Cause.ROUND and question.client == 0:
                assert view.available(FAR)
                return Placement(FAR)
            return Placement(view.member(question.client).offer or NEAR)

    policy = Asks()
    two = dataclasses.replace(federated(), clients=federated().clients[:1], quotas=(quota,))
    outcome = play(two, policy, 0)
    assert [bill.offer for bill in outcome.bills if bill.client == 0] == [NEAR, FAR]
    with pytest.raises(InvalidAnswerError, match="near is not available"):
        play(federated(quotas=(quota,)), policy, 0)
    assert policy.seen == [(SERVER, True, True), (0, True, True), (1, False, False)]


def test_degradations_slow_down_epochs_that_begin_while_they_last() -> None:
    slow_link = Degradation(3.0, 100, 200, link=("near", "near"))
    assert played(degradations=(slow_link,)).rounds == [(20, 180), (185, 315), (320, 430)]
    slow_offer = Degradation(2.0, 200, offer=NEAR)
    # The third round begins at 300: 200 + 10 s; aggregations from 200 on take 10 s.
    assert played(degradations=(slow_offer,)).rounds == [(20, 180), (185, 295), (305, 515)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: federated(server=None), "links and checkpoints need a server"),
        (lambda: federated(server=Server((7,))), r"the server names the offers \[7\]"),
        (
            lambda: federated(server_usd_hour=1.0),
            "server_usd_hour is the price of a server that is not placed",
        ),
        (
            lambda: federated(degradations=(Degradation(2.0, offer=9),)),
            r"a degradation names the offers \[9\]",
        ),
        (lambda: federated(closing_s=-1), "closing_s is -1"),
        (lambda: Degradation(0.0, offer=1), "the slowdown 0.0"),
        (lambda: Degradation(2.0), "exactly one"),
        (lambda: Degradation(2.0, 10, 10, offer=0), "0 <= from < until"),
        (lambda: Checkpoints(every_rounds=0), "every_rounds is 0"),
        (lambda: Quota("GPUs", -1, {}), "limit of 'GPUs' is -1"),
        (lambda: Links({("a", "b"): float("nan")}), "messages between 'a' and 'b'"),
        (lambda: Client("c", 1, 1, 1, (0,), on_offer={0: EpochTimes(5, 4)}), "not below the warm one"),
    ],
)
def test_what_is_wrong_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_server_cannot_leave() -> None:
    with pytest.raises(InvalidAnswerError, match="the server cannot leave"):
        play(federated(), Script({(Cause.ROUND, SERVER): Leave()}), 0)


def test_a_copy_has_the_same_future() -> None:
    quota = Quota("GPUs", 3, {NEAR: 1, FAR: 1})
    application = federated(((SERVER, 250), (0, 300)), checkpoints=KEPT_BY_CLIENTS, quotas=(quota,), rounds=5)
    world, policy = RoundsWorld(application, 0), AlwaysOn(Market.SPOT)
    for _ in range(9):
        question = world.advance()
        assert question is not None
        world.answer(policy.decide(question, world))
    twin = copy.deepcopy(world)
    for each in (twin, world):
        while (question := each.advance()) is not None:
            each.answer(policy.decide(question, each))
    assert twin.outcome(policy.name) == world.outcome(policy.name) == play(application, policy, 0)
    assert world.outcome(policy.name).server_losses


class Wanders(RandomPolicy):
    """A random policy that moves and postpones the server, too, but never lets it leave."""

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        if question.client != SERVER:
            return super().decide(question, view)
        server = view.member(SERVER)
        if server.running and server.offer is not None and self._generator.random() < 0.8:
            return Placement(server.offer)
        start_s = view.now_s + int(self._generator.integers(0, 100))
        return Placement(int(self._generator.choice(server.allowed)), start_s)


@pytest.mark.real
@settings(max_examples=150)
@given(
    st.sampled_from(
        [Wanders, lambda seed: AlwaysOn(Market.SPOT), lambda seed: FedCostAware(server_market=Market.SPOT)]
    ),
    st.integers(0, 10_000),
    st.none() | st.builds(Checkpoints, st.none() | st.integers(1, 3), on_clients=st.booleans()),
    st.floats(300, 3000),
    st.booleans(),
    st.booleans(),
)
def test_laws_hold_with_a_server(
    policy: Any, seed: int, checkpoints: Checkpoints | None, mean_s: float, together: bool, billed: bool
) -> None:
    application = federated(
        offers=tuple(
            dataclasses.replace(offer, mean_time_to_interruption_s=mean_s) for offer in federated().offers
        ),
        checkpoints=checkpoints,
        start_together=together,
        spin_up_billed=billed,
        rounds=6,
    )
    outcome = play(application, policy(seed), seed)
    check_states(outcome)
    if billed:
        check_money(outcome)
    left = len(outcome.exclusions) == 2
    assert left or len(outcome.rounds) == 6
    edges = [0, *(span.end_s for span in outcome.server_spans)]
    assert [span.start_s for span in outcome.server_spans] == edges[:-1]
    assert edges[-1] == outcome.time_s
    losses = outcome.server_losses
    for loss in losses:
        assert 0 <= loss.resumed_round <= loss.round_index
        # Nobody trains while there is no server.
        for spans in outcome.spans:
            for span in spans:
                if span.state is State.TRAINING:
                    assert span.end_s <= loss.time_s or span.start_s >= loss.resumed_s
    # Every round's results are delivered once for each time that it was reached.
    for (_, end_s), (begin_s, _) in zip(outcome.rounds, outcome.rounds[1:], strict=False):
        assert end_s <= begin_s
    assert play(application, policy(seed), seed) == outcome
