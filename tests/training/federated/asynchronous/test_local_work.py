"""Local work: many models at once give what torch gives for each alone; who holds which images."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from training.config import UsageError
from training.federated.asynchronous.networks import Cnn, LocalWork, Mlp, Network
from training.federated.asynchronous.scenario import Partition, holdings_of, noisy_labels

MNIST = (1, 28, 28)


def by_torch(network: Network, weights: Tensor, channels: int) -> nn.Sequential:
    """The same network of torch's own layers, with the same weights."""
    parts = [part[0] for part in network._parts(weights[None])]
    if isinstance(network, Mlp):
        layers: list[nn.Module] = [nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 32)]
        last = nn.Linear(32, 10)
    else:
        layers = [nn.Conv2d(channels, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU()]
        layers += [nn.Flatten(), nn.Linear(len(parts[4]), 200)]
        last = nn.Linear(200, 10)
    module = nn.Sequential(*layers, nn.ReLU(), last)
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            part = parts[place]
            parameter.copy_((part.T if part.ndim == 2 else part).reshape(parameter.shape))
    return module


@pytest.mark.parametrize(
    ("network", "image"), [(Mlp(MNIST), MNIST), (Cnn(MNIST), MNIST), (Cnn((3, 32, 32)), (3, 32, 32))]
)
def test_gradients_and_classes_are_torchs(network: Network, image: tuple[int, int, int]) -> None:
    generator = np.random.default_rng(0)
    weights = torch.from_numpy(np.stack([network.initial(generator) for _ in range(3)]))
    images = torch.from_numpy(generator.random((3, 4, *image), dtype=np.float32))
    labels = torch.from_numpy(generator.integers(0, 10, (3, 4)))
    inputs = torch.stack([network.prepared(own) for own in images])
    found = network.gradients(weights, inputs, labels)
    assert found.shape == (3, network.size)
    for u in range(3):
        module = by_torch(network, weights[u], image[0])
        scores = module(images[u])
        loss = nn.functional.cross_entropy(scores, labels[u])
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        # torch has (outputs, inputs) where the rows have (inputs, outputs).
        expected = torch.cat([part.reshape(len(part), -1).T.flatten() for part in gradients])
        assert torch.allclose(found[u], expected, atol=1e-6)
        assert torch.equal(network.classes(weights[u], inputs[u]), scores.argmax(dim=1))


def test_the_last_layer_of_the_cnn_is_the_thesiss() -> None:
    # Figure 6.5: "the last fully-connected layer (200 x 10 parameters)".
    assert Cnn(MNIST).shapes[-2] == (200, 10)


def a_work(steps: int, rate: float = 0.5) -> tuple[Network, LocalWork]:
    generator = np.random.default_rng(1)
    network = Mlp(MNIST)
    return network, LocalWork(
        network,
        generator.random((20, *MNIST), dtype=np.float32),
        generator.integers(0, 10, 20),
        [np.arange(10), np.arange(10, 20)],
        batch_size=3,
        steps=steps,
        rate=rate,
        seeds=np.random.SeedSequence(0).spawn(2),
    )


def test_a_difference_is_k_steps_and_a_model_their_end() -> None:
    network, work = a_work(steps=2)
    base = network.initial(np.random.default_rng(2))
    job = work.job(1, base, "difference", 1.0)
    assert job.batches.shape == (2, 3)
    assert (job.batches >= 10).all()
    stepped = base
    for batch in job.batches:
        (gradient,) = work.compute([job._replace(base=stepped, batches=batch[None])], "gradient")
        stepped = stepped - 0.5 * gradient
    (difference,) = work.compute([job], "difference")
    (model,) = work.compute([job], "model")
    assert np.allclose(base + difference, stepped, atol=1e-6)
    assert np.allclose(model, stepped, atol=1e-6)


def test_a_gradient_is_scaled_and_who_computes_beside_it_does_not_matter() -> None:
    network, work = a_work(steps=1)
    base = network.initial(np.random.default_rng(2))
    jobs = [work.job(0, base, "gradient", 1.0), work.job(1, 2 * base, "gradient", 4.0)]
    together = work.compute(jobs, "gradient")
    (alone,) = work.compute([jobs[1]._replace(scale=1.0)], "gradient")
    assert np.allclose(together[1], 4 * alone, atol=1e-6)


def test_a_participants_batches_do_not_depend_on_others() -> None:
    network, work = a_work(steps=1)
    base = network.initial(np.random.default_rng(2))
    first = [work.job(0, base, "difference", 1.0).batches for _ in range(3)]
    _, again = a_work(steps=1)
    mixed = []
    for _ in range(3):
        again.job(1, base, "difference", 1.0)
        mixed.append(again.job(0, base, "difference", 1.0).batches)
    assert np.array_equal(first, mixed)


# Who holds which images, of a set that can be looked through: 200 of each digit, in turn.

LABELS = np.arange(2000) % 10


def hold(partition: Partition, participants: int = 100, seed: int = 0) -> list[np.ndarray]:
    return holdings_of(partition, LABELS, participants, np.random.default_rng(seed))


@pytest.mark.parametrize("partition", ["random_groups", "in_sequence", "shuffled_tens", "random_subgroups"])
def test_every_image_has_one_holder_and_all_hold_as_many(partition: Partition) -> None:
    holdings = hold(partition)
    assert {len(own) for own in holdings} == {20}
    assert sorted(np.concatenate(holdings).tolist()) == list(range(2000))


@pytest.mark.parametrize(
    ("partition", "participants", "group"), [("random_groups", 100, 10), ("random_subgroups", 10, 100)]
)
def test_groups_of_one_digit_are_dealt_at_random(partition: Partition, participants: int, group: int) -> None:
    """Scenario a, and experiment 4, which cuts the ordered images in twenty."""
    for own in hold(partition, participants):
        assert set(Counter(LABELS[own].tolist()).values()) <= {group, 2 * group}


def test_scenario_b_gives_the_first_ten_participants_the_first_digit() -> None:
    holdings = hold("in_sequence")
    assert [set(LABELS[own].tolist()) for own in holdings] == [{n // 10} for n in range(100)]


def test_experiment_2_shuffles_within_blocks_of_twenty_groups() -> None:
    # Groups 0 to 19 are the first 20 images of each digit: the images 0 to 199 in all.
    holdings = hold("shuffled_tens")
    for block in range(10):
        own = np.concatenate(holdings[10 * block : 10 * block + 10])
        assert sorted(own.tolist()) == list(range(200 * block, 200 * block + 200))
    assert not np.array_equal(holdings[0], hold("shuffled_tens", seed=1)[0])


def test_swapped_labels_of_chapter_6() -> None:
    holdings = hold("in_sequence")
    noisy = noisy_labels("swap", LABELS, holdings)
    # Participants 81 and 91 of the thesis, the first holders of 8 and of 9, have them swapped.
    assert set(noisy[holdings[80]].tolist()) == {9}
    assert set(noisy[holdings[90]].tolist()) == {8}
    assert np.flatnonzero(noisy != LABELS).tolist() == sorted([*holdings[80], *holdings[90]])


def test_rotated_labels_of_experiment_1_are_a_tenth_of_three_digits() -> None:
    holdings = hold("in_sequence")
    noisy = noisy_labels("rotate_first", LABELS, holdings)
    assert [set(noisy[holdings[n]].tolist()) for n in (70, 80, 90)] == [{8}, {9}, {7}]
    changed = Counter(LABELS[noisy != LABELS].tolist())
    assert changed == {7: 20, 8: 20, 9: 20}


def test_rotated_labels_of_experiment_2_are_15_percent_at_early_participants() -> None:
    holdings = hold("shuffled_tens")
    noisy = noisy_labels("rotate_early", LABELS, holdings)
    changed = noisy != LABELS
    assert Counter(LABELS[changed].tolist()) == {7: 30, 8: 30, 9: 30}
    assert {n for n, own in enumerate(holdings) if changed[own].any()} <= set(range(20))


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a multiple of 5"):
        hold("in_sequence", participants=7)
    with pytest.raises(UsageError, match="too few for 2000 groups"):
        holdings_of("random_groups", LABELS[:1000], 1000, np.random.default_rng(0))
    with pytest.raises(UsageError, match="no participant holds mostly the digit 8"):
        noisy_labels("swap", LABELS, [np.arange(2000)])
