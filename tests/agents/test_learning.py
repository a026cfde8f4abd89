"""The two regressions: losses computed by hand on tables, and what must not influence them."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from agents.learning.advantage_regression import AdvantageRegression, centred
from agents.learning.labelled_replay import LabelledBatch
from agents.learning.value_regression import ValueRegression
from tests.agents.inputs import TableNetwork, on_disk, random_input

C = 2  # choices: cluster 0, cluster 1, none


def table(*rows: tuple[float, ...]) -> Tensor:
    """(1, C + 1, K) values of the choices of one job."""
    return torch.tensor([rows])


class TestValueRegression:
    def sgd(
        self, network: TableNetwork, weights: tuple[float, ...], loss: str = "mse", clip: float = 5.0
    ) -> ValueRegression:
        return ValueRegression(network, weights, "sgd", 0.1, loss, target_clip=clip, gradient_clip=1e9)

    def test_one_step_by_hand(self) -> None:
        network = TableNetwork(table((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)), (10.0, 2.0))
        regression = self.sgd(network, (1.0, 1.0))
        # Two decisions: cluster 1 was worth (20, 2) = scaled (2, 1); none was worth (50, 10) = scaled (5, 5).
        chosen = torch.tensor([1, 2])
        values = torch.tensor([[20.0, 2.0], [50.0, 10.0]])
        loss = regression.step(random_input(2, 1, C), chosen, values)
        # Head 1: ((3 - 2)^2 + (5 - 5)^2) / 2; head 2: ((4 - 1)^2 + (6 - 5)^2) / 2.
        assert loss.tolist() == [0.5, 5.0]
        # Gradient 2 (prediction - target) / 2, learning rate 0.1.
        expected = table((1.0, 2.0), (3.0 - 0.1 * 1.0, 4.0 - 0.1 * 3.0), (5.0, 6.0 - 0.1 * 1.0))
        assert torch.allclose(network.table, expected)

    def test_gradient_only_through_the_chosen_cluster(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 2), (1.0, 1.0))
        self.sgd(network, (1.0, 1.0)).step(
            random_input(1, 1, C), torch.tensor([0]), torch.tensor([[3.0, -4.0]])
        )
        assert network.table[0, 0].tolist() == pytest.approx([0.6, -0.8])
        assert network.table[0, 1:].abs().sum() == 0

    def test_targets_are_clipped_in_scaled_units(self) -> None:
        regression = self.sgd(TableNetwork(torch.zeros(1, C + 1, 2), (10.0, 0.5)), (1.0, 1.0), clip=3.0)
        targets = regression.scaled_targets(torch.tensor([[-500.0, 1.0], [29.0, -7.0]]))
        assert targets.tolist() == [[-3.0, 2.0], [pytest.approx(2.9), -3.0]]

    def test_one_output_learns_the_scalarised_value(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 1), (4.0,))
        regression = self.sgd(network, (1.0, 0.5, 2.0))
        values = torch.tensor([[-2.0, -4.0, -1.0]])
        assert regression.scaled_targets(values).tolist() == [[-1.5]]  # (-2 - 2 - 2) / 4
        loss = regression.step(random_input(1, 1, C), torch.tensor([2]), values)
        assert loss.tolist() == [2.25]
        assert network.table[0, 2].tolist() == pytest.approx([-0.3])

    def test_huber_is_linear_far_out(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 2), (1.0, 1.0))
        loss = self.sgd(network, (1.0, 1.0), "huber").step(
            random_input(1, 1, C), torch.tensor([0]), torch.tensor([[4.0, 0.5]])
        )
        assert loss.tolist() == [3.5, 0.125]  # |4| - 1/2 and 0.5^2 / 2
        assert network.table[0, 0].tolist() == pytest.approx([0.1, 0.05])

    def test_the_gradient_is_bounded(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 1), (1.0,))
        regression = ValueRegression(network, (1.0,), "sgd", 0.1, target_clip=5.0, gradient_clip=0.5)
        regression.step(random_input(1, 1, C), torch.tensor([0]), torch.tensor([[5.0]]))
        assert network.table[0, 0].item() == pytest.approx(0.05)

    @pytest.mark.parametrize("optimizer", ["adam", "sgd"])
    def test_the_learning_rate_follows_the_schedule(self, optimizer: Literal["adam", "sgd"]) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 1), (1.0,))
        regression = ValueRegression(network, (1.0,), optimizer, 0.1)
        regression.set_learning_rate(0.0)
        regression.step(random_input(1, 1, C), torch.tensor([0]), torch.tensor([[5.0]]))
        assert network.table.abs().sum() == 0

    def test_it_converges_to_the_mean_worth_of_each_choice(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 2), (2.0, 10.0))
        regression = ValueRegression(network, (1.0, 1.0), "adam", 0.05)
        chosen = torch.tensor([0, 0, 1, 2])
        values = torch.tensor([[-1.0, 0.0], [-3.0, 10.0], [4.0, -20.0], [0.0, 5.0]])
        for _ in range(400):
            regression.step(random_input(4, 1, C), chosen, values)
        learned = network.values(random_input(1, 1, C))[0, 0]
        assert torch.allclose(learned, torch.tensor([[-2.0, 5.0], [4.0, -20.0], [0.0, 5.0]]), atol=0.05)

    def test_its_state_includes_the_optimiser(self) -> None:
        def step(regression: ValueRegression) -> None:
            regression.step(random_input(1, 1, C), torch.tensor([0]), torch.tensor([[2.0]]))

        first = ValueRegression(TableNetwork(torch.zeros(1, C + 1, 1), (1.0,)), (1.0,))
        step(first)
        second = ValueRegression(TableNetwork(torch.ones(1, C + 1, 1), (1.0,)), (1.0,))
        second.load_state_dict(on_disk(first.state_dict()))
        step(first)
        step(second)
        assert torch.equal(first.network.state_dict()["table"], second.network.state_dict()["table"])


def labelled(
    outcomes: Tensor, choices: list[list[int]], tried: list[list[bool]] | None = None
) -> LabelledBatch:
    every = [[True] * len(row) for row in choices]
    inputs = random_input(len(choices), 1, C)
    return LabelledBatch(inputs, torch.tensor(choices), torch.tensor(tried or every), outcomes)


class TestCentred:
    def test_by_hand(self) -> None:
        values = torch.tensor(
            [[[1.0, 10.0], [3.0, 20.0], [99.0, 99.0]], [[7.0, 5.0], [0.0, 0.0], [0.0, 0.0]]]
        )
        tried = torch.tensor([[True, True, False], [True, False, False]])
        assert centred(values, tried).tolist() == [
            [[-1.0, -5.0], [1.0, 5.0], [0.0, 0.0]],
            [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]],  # a single choice has nothing to be compared with
        ]

    def test_nothing_tried_gives_nothing(self) -> None:
        assert centred(torch.ones(1, 2, 1), torch.zeros(1, 2, dtype=torch.bool)).abs().sum() == 0


class TestAdvantageRegression:
    CHOICES = ((0, 1, 2),)

    def regression(self, network: TableNetwork, learning_rate: float = 0.05) -> AdvantageRegression:
        return AdvantageRegression(network, (1.0, 2.0), learning_rate, target_clip=50.0)

    def test_loss_by_hand(self) -> None:
        network = TableNetwork(table((1.0, 0.0), (0.0, 0.0), (0.0, 3.0)), (2.0, 1.0))
        batch = labelled(
            torch.tensor([[[6.0, 1.0], [2.0, 1.0], [9.0, 9.0]]]), [[0, 1, 0]], [[True, True, False]]
        )
        # Head 1: predicted (0.5, -0.5), outcomes centred (2, -2) / 2 = (1, -1): errors (-0.5, 0.5).
        # Head 2: predicted (0, 0), outcomes centred (0, 0). Two choices were tried.
        assert self.regression(network).step(batch).tolist() == [pytest.approx(0.25), 0.0]

    def test_what_all_choices_have_in_common_does_not_matter(self) -> None:
        outcomes = torch.tensor([[[1.0, -3.0], [4.0, 0.0], [-2.0, 2.0]]])
        learned = []
        for offset in (0.0, 1000.0):
            network = TableNetwork(table((0.1, 0.2), (0.3, 0.4), (0.5, 0.6)), (2.0, 1.0))
            regression = self.regression(network)
            for _ in range(5):
                regression.step(labelled(outcomes + offset, [list(self.CHOICES[0])]))
            learned.append(network.table.detach().clone())
        assert torch.allclose(learned[0], learned[1], atol=1e-5)

    def test_untried_choices_get_no_gradient(self) -> None:
        network = TableNetwork(table((1.0, 1.0), (2.0, 2.0), (7.0, 7.0)), (1.0, 1.0))
        batch = labelled(
            torch.tensor([[[6.0, 1.0], [2.0, 1.0], [0.0, 0.0]]]), [[1, 2, 0]], [[True, True, False]]
        )
        regression = self.regression(network)
        regression.LEVEL_WEIGHT = 0.0
        regression.step(batch)
        assert network.table[0, 0].tolist() == [1.0, 1.0]
        assert network.table[0, 1].tolist() != [2.0, 2.0]

    def test_it_converges_to_known_advantages_through_common_noise(self) -> None:
        # The truth: choices are worth (0, 3, -3) and (10, 0, -10); every decision adds its own offset.
        truth = torch.tensor([[0.0, 10.0], [3.0, 0.0], [-3.0, -10.0]])
        generator = torch.Generator().manual_seed(0)
        network = TableNetwork(torch.zeros(1, C + 1, 2), (3.0, 10.0))
        regression = self.regression(network)
        for _ in range(400):
            offsets = 100.0 * torch.randn(8, 1, 2, generator=generator)
            regression.step(labelled(truth + offsets, [[0, 1, 2]] * 8))
        learned = network.values(random_input(1, 1, C))[0]
        assert torch.allclose(centred(learned, torch.ones(1, 3, dtype=torch.bool))[0], truth, atol=0.1)

    def test_the_level_that_no_label_fixes_is_drawn_to_zero(self) -> None:
        # Predictions are right but for a level of 2; only the small penalty on the level can move them.
        network = TableNetwork(table((3.0, 2.0), (2.0, 2.0), (1.0, 2.0)), (1.0, 1.0))
        batch = labelled(torch.tensor([[[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]]), [[0, 1, 2]])
        regression = self.regression(network)
        for _ in range(300):
            loss = regression.step(batch)
        assert loss.sum() < 1e-3
        assert network.table.mean().abs() < 1.0

    def test_scales_express_every_head_in_one_unit_of_the_objective(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 2), (1.0, 1.0))
        batch = labelled(
            torch.tensor([[[4.0, 1.0], [0.0, 0.0], [9.0, 9.0]]]), [[0, 1, 0]], [[True, True, False]]
        )
        self.regression(network).fit_scales(batch)
        # Weighted advantages are (2 + 1, -2 - 1): root mean square 3; divided by the weights 1 and 2.
        assert network.output_scales.tolist() == [3.0, 1.5]

    def test_scales_of_equal_outcomes_stay_positive(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 2), (1.0, 1.0))
        self.regression(network).fit_scales(labelled(torch.ones(1, 3, 2), [[0, 1, 2]]))
        assert bool((network.output_scales > 0).all())

    def test_targets_are_clipped_only_far_out(self) -> None:
        network = TableNetwork(torch.zeros(1, C + 1, 2), (1.0, 1.0))
        regression = AdvantageRegression(network, (1.0, 1.0), 0.1, target_clip=3.0)
        loss = regression.step(labelled(torch.tensor([[[20.0, 0.0], [0.0, 0.0], [-20.0, 0.0]]]), [[0, 1, 2]]))
        assert loss.tolist() == [pytest.approx(6.0), 0.0]  # (3^2 + 0 + 3^2) / 3

    def test_its_state_includes_the_optimiser(self) -> None:
        batch = labelled(torch.tensor([[[4.0, 1.0], [0.0, 0.0], [1.0, 9.0]]]), [[0, 1, 2]])
        first = self.regression(TableNetwork(torch.zeros(1, C + 1, 2), (1.0, 1.0)))
        first.step(batch)
        second = self.regression(TableNetwork(torch.ones(1, C + 1, 2), (1.0, 1.0)))
        second.load_state_dict(on_disk(first.state_dict()))
        first.step(batch)
        second.step(batch)
        assert torch.equal(first.network.state_dict()["table"], second.network.state_dict()["table"])
