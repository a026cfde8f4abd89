"""Many models at once give what torch gives for each alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from training.federated.asynchronous.local_work import LocalWork
from training.federated.asynchronous.networks import Cnn, Mlp, Network

MNIST = (1, 28, 28)


def by_torch(network: Network, weights: Tensor, channels: int) -> nn.Sequential:
    """The same network of torch's own layers, with the same weights."""
    parts = [part[0] for part in network._parts(weights[None])]
    if isinstance(network, Mlp):
        layers: list[nn.Module] = [
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(196, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        ]
    else:
        layers = [
            nn.Conv2d(channels, 8, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(len(parts[4]), 200),
            nn.ReLU(),
            nn.Linear(200, 10),
        ]
    module = nn.Sequential(*layers)
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
