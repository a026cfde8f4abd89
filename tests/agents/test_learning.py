"""The two regressions: losses computed by hand on tables, and what must not influence them."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

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
