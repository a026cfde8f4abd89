"""Expected costs of federated choices by hand, the rules on them and the columns that `mtdqn` sees."""

from __future__ import annotations

import numpy as np
import pytest

from agents.federated.columns import describe
from agents.federated.cost import LARGE, RoundParameters, weigh
from agents.federated.rules import ROUND_RULES
from agents.federated.rules.fed_cost_aware import FedCostAware
from agents.federated.rules.round_cost import RoundCost
from envs.federated_episodes import FederatedConfig, build_federated
from envs.simulation import columns as col
from envs.simulation.snapshot import Observation
from tests.agents.inputs import copied, played
from tests.envs.federated_cases import NONE, ON_DEMAND, SLOW, SPOT, Story
from tests.envs.rounds_cases import two_clients

LANE = np.zeros(1, np.int64)
PARAMETERS = RoundParameters(
    buffer_s=8, buffer_errors=2, buffer_launch=0.2, delay_price=4, keep_share=0.5, hazard=0.5
)


@pytest.fixture(scope="module")
def seen() -> Observation:
    """Real observations of drawn applications on both kinds of market, as the rule meets them."""
    return played(build_federated(FederatedConfig(rounds_most=10), 4), RoundCost(), 150)


def costs(story: Story) -> list[float]:
    found: list[float] = weigh(story.world.observation, PARAMETERS).cost[0].tolist()
    return found


@pytest.mark.real
def test_the_cost_of_each_choice_of_a_client_that_has_delivered_early() -> None:
    story = Story(two_clients(3))
    story.answer(SPOT)
    story.answer(SPOT)
    # At 250: the round lasts 550 s more, the next one 600; a start takes 100 s, its epoch 50 s more.
    choices = weigh(story.world.observation, PARAMETERS)
    assert choices.begin_s[0].tolist() == [550, 550]
    assert choices.finish_s[0].tolist() == [650, 700]
    assert choices.early_s[0].tolist() == [500, 450]
    assert choices.late_s[0].tolist() == [0, 0]
    assert choices.slack_s[0] == 1150 - 150 - 100
    assert choices.unit[0] == pytest.approx(150 * 0.0001)
    # One more round after the next: a place is chosen for it as far as starts are long against rounds.
    after = 150 / (150 + 600 + 1)
    keep = 650 * 0.0001 + 0.5 * 150 * 0.0001 + after * 100 * 0.0001
    move = 700 * 0.0003 + 0.5 * 150 * 0.0001 + after * 150 * 0.0003
    wait = 250 * 0.0001 + after * 100 * 0.0001
    assert costs(story) == pytest.approx([keep, move, wait])
    assert RoundCost(PARAMETERS).act_batch(story.world.observation, LANE).tolist() == [NONE]


def test_a_late_start_costs_what_the_others_wait_for() -> None:
    story = Story(two_clients(1))
    story.answer(SPOT)
    story.answer(NONE)
    while story.now_s < 556:
        story.answer(NONE)
    # 244 s are left and 250 s needed: 6 s late, at four times what both instances cost.
    choices = weigh(story.world.observation, PARAMETERS)
    assert choices.late_s[0].tolist() == [6, 6]
    assert choices.slack_s[0] == -6
    delay_usd_s = 4 * (0.0001 + 0.0001)
    now = 250 * 0.0001 + 6 * delay_usd_s
    dear = 250 * 0.0003 + 6 * delay_usd_s
    later = 250 * 0.0001 + (8 + 0.2 * 100 + 6) * delay_usd_s
    assert costs(story) == pytest.approx([now, dear, later])


def test_what_is_not_valid_or_over() -> None:
    story = Story(two_clients(1, ((SLOW, 300),)))
    story.answer(SPOT)
    story.answer(NONE)
    story.answer(NONE)
    assert story.mask == [1, 1, 0]
    assert costs(story)[NONE] == LARGE
    story.answer(ON_DEMAND)
    story.answer(SPOT)
    # Its last round is delivered: nothing is worth keeping.
    assert story.job(col.EXECUTIONS) == 0
    assert costs(story)[NONE] == 0
    assert ROUND_RULES["round_cost"]().act_batch(story.world.observation, LANE).tolist() == [NONE]


def test_an_interruption_is_expected_as_often_as_spells_ended() -> None:
    story = Story(two_clients(1))
    calm = weigh(story.world.observation, PARAMETERS).cost[0]
    observation = copied(story.world.observation)
    observation["clusters"][0, SPOT, col.MEAN_UP_S] = 8000
    risky = weigh(observation, PARAMETERS).cost[0]
    # 800 s there: a tenth of an interruption, half weighed; a start of 200 s, and 550 s for all that wait.
    loss = 200 * 0.0001 + 4 * 0.0001 * (200 + 0.5 * 700)
    assert risky[SPOT] - calm[SPOT] == pytest.approx(0.5 * 0.1 * loss)
    assert risky[ON_DEMAND] == calm[ON_DEMAND]


def test_fed_cost_aware_releases_who_waits_long_and_starts_in_time() -> None:
    story = Story(two_clients(3), measured=False)
    rule = FedCostAware(threshold_s=60, buffer_s=30)

    def acts() -> int:
        return int(rule.act_batch(story.world.observation, LANE)[0])

    story.answer(acts())
    story.answer(acts())
    # Round 1 is calibration: no warm epoch has been seen.
    assert (story.now_s, acts()) == (250, SPOT)
    while story.now_s < 900:
        assert acts() == SPOT
        story.answer(SPOT)
    # 900: the fast one waits 500 s (it was seen cold and warm, the slow one cold and not yet warm).
    left_s = story.job(col.ROUND_LEFT_S)
    assert left_s > 100 + 60
    assert acts() == NONE
    story.answer(NONE)
    while story.job(col.ROUND_LEFT_S) > 130:
        assert acts() == NONE
        story.answer(NONE)
    assert acts() == SPOT


def test_features_mean_the_same_at_another_price(seen: Observation) -> None:
    task, choice = describe(seen, weigh(seen, PARAMETERS))
    dearer = copied(seen)
    for column in (col.PRICE_USD_HOUR, col.ON_DEMAND_USD_HOUR):
        dearer["clusters"][..., column] *= 8
    dearer["jobs"][..., col.OTHERS_USD_HOUR] *= 8
    dearer["pairs"][..., col.EGRESS_USD] *= 8
    task_8, choice_8 = describe(dearer, weigh(dearer, PARAMETERS))
    np.testing.assert_allclose(task_8, task, atol=1e-5)
    np.testing.assert_allclose(choice_8, choice, atol=1e-4)
