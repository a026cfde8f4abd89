"""Trainings in virtual time: times worked by hand, what the methods do to each other, and the command."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from spotweave.agents.federated.asynchronous.aggregator import UpdateError
from spotweave.agents.federated.observing import Observing
from spotweave.agents.federated.rules.always_on import AlwaysOn
from spotweave.agents.federated.rules.fed_cost_aware import FedCostAware
from spotweave.agents.named import named_rule
from spotweave.envs.simulation.federations.rounds.application import Application, Client, Market
from spotweave.envs.simulation.federations.rounds.decisions import Outcome, RoundScheduler
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.envs.traces.images import Images, load_images
from spotweave.training.config import UsageError
from spotweave.training.federated.asynchronous.networks import Cnn, LocalWork, Mlp, Network
from spotweave.training.federated.asynchronous.outcomes import efficiency_index, summarise_trainings
from spotweave.training.federated.asynchronous.scenario import (
    Band,
    Method,
    Partition,
    Scenario,
    holdings_of,
    noisy_labels,
)
from spotweave.training.federated.asynchronous.virtual_time import (
    Point,
    RentedTraining,
    Training,
    VirtualTime,
    milestone_slices,
)
from tests.envs.federated_cases import two_offers
from tests.training.federated.commands import SYN_AND_ASYN, mistake, printed, rows_of

SYN, ASYN = Method("fed_avg"), Method("asyn_da")
SUDA = Method("fed_suda", staleness_bound=4)


def a_scenario(**changes: object) -> Scenario:
    plain = Scenario(
        title="Small",
        partition="random_groups",
        bands=(Band(8, 1, 2), Band(2, 20, 20)),
        slow=(8, 9),
        methods={"syn": SYN},
        reference="syn",
        updates=60,
        round_updates=5,
        local_steps=2,
        batch_size=8,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def images() -> Images:
    return load_images(None)


def test_the_same_seed_gives_the_same_training_and_another_does_not(images: Images) -> None:
    first, again, other = (VirtualTime(a_scenario(), images, seed).train(ASYN).points for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_synchronous_round_lasts_as_long_as_its_slowest_response(images: Images) -> None:
    # Everybody takes part in every round, so its length is the largest of all next responses.
    scenario = a_scenario(round_updates=10, updates=30)
    world = VirtualTime(scenario, images, 3)
    responses = world.responses()
    expected, now = [], 0.0
    for _ in range(3):
        now += max(next(response) for response in responses)
        expected.append(now)
    points = world.train(SYN).points
    assert [point.time_slices for point in points] == pytest.approx(expected)
    assert [point.updates for point in points] == [10, 20, 30]
    assert all(point.staleness == 0 for point in points)


def test_asynchronous_rounds_end_with_every_fifth_response(images: Images) -> None:
    world = VirtualTime(a_scenario(), images, 3)
    ends = []
    for response in world.responses():
        now = 0.0
        while now < 200:
            now += next(response)
            ends.append(now)
    ends.sort()
    points = world.train(ASYN).points
    assert [point.time_slices for point in points] == pytest.approx(ends[4:60:5])


def test_responses_have_their_expectation_and_take_half_of_it_at_least(images: Images) -> None:
    response = VirtualTime(a_scenario(), images, 0).responses()[9]
    drawn = np.array([next(response) for _ in range(4000)])
    # Half of 20 exponentially distributed: standard error of the mean 10 / sqrt(4000) = 0.16.
    assert drawn.mean() == pytest.approx(20, abs=0.8)
    assert drawn.min() >= 10


def test_hale_fed_learns_what_it_would_without_shards(images: Images) -> None:
    # A participant gets each model once. With all ten in every round that is what synchronous rounds do.
    scenario = a_scenario(round_updates=10, updates=30)
    plain, sharded = (VirtualTime(scenario, images, 5).train(method) for method in (SYN, Method("hale_fed")))
    assert plain.model is not None
    assert sharded.model is not None
    assert np.allclose(plain.model, sharded.model, atol=1e-5)
    assert plain.column("time_slices").tolist() == sharded.column("time_slices").tolist()


def test_coordination_of_brokers_delays_each_round(images: Images) -> None:
    scenario = a_scenario(round_updates=10, updates=10)
    first, later = (
        VirtualTime(scenario, images, 5).train(Method("hale_fed", coordination_slices=slices)).points[0]
        for slices in (0.0, 7.0)
    )
    assert later.time_slices == pytest.approx(first.time_slices + 7)


def test_fed_suda_does_not_wait_for_the_slow_but_counts_them(images: Images) -> None:
    world = VirtualTime(a_scenario(updates=120), images, 5)
    syn, suda = world.train(SYN), world.train(SUDA)
    assert suda.points[-1].time_slices < 0.6 * syn.points[-1].time_slices
    assert suda.column("staleness").max() <= 4
    # A shadow that is used again is no new update: more rounds than 120 / 5.
    assert len(suda.points) > 24


@pytest.mark.parametrize("algorithm", ["asyn_ma", "fed_async", "fed_buff", "hp_asgd"])
def test_every_method_learns(images: Images, algorithm: str) -> None:
    rate = 0.3 if algorithm == "hp_asgd" else 1.0
    scenario = a_scenario(updates=800, bands=(Band(10, 1, 1.5),), slow=())
    method = Method(algorithm, rate=rate)  # type: ignore[arg-type]
    accuracy = VirtualTime(scenario, images, 5).train(method).column("accuracy")
    assert accuracy[-5:].mean() > 0.3


def test_a_training_ends_at_its_milestone(images: Images) -> None:
    found = VirtualTime(a_scenario(updates=600), images, 5).train(ASYN, until=0.15)
    assert found.points[-1].updates < 600
    assert found.column("accuracy")[-5:].min() >= 0.15
    assert milestone_slices(found, 0.15) == found.points[-5].time_slices


def test_nobody_left_to_compute_and_divergence_are_told(images: Images) -> None:
    with pytest.raises(UsageError, match="no round can be completed: lower round_updates"):
        VirtualTime(a_scenario(), images, 0).train(Method("hale_fed", round_updates=11))
    with pytest.raises(UpdateError, match="NaN or infinity"):
        VirtualTime(a_scenario(local_rate=1e30), images, 0).train(ASYN)


def test_milestones_need_five_rounds_in_a_row() -> None:
    accuracies = [0.5, 0.9, 0.9, 0.9, 0.9, 0.8, 0.9, 0.9, 0.9, 0.9, 0.95]
    run = Training([Point(10.0 * k, k, accuracy, 0) for k, accuracy in enumerate(accuracies)])
    assert milestone_slices(run, 0.9) == 60.0
    assert milestone_slices(run, 0.8) == 10.0
    assert milestone_slices(run, 0.95) is None


def test_the_summary_of_two_methods_by_hand() -> None:
    slow = [Training([Point(32.0 * t, t, 0.5, 0.0) for t in range(1, 6)]) for _ in range(2)]
    fast = [Training([Point(t * 4.0 * seed, t, 0.5, 1.0) for t in range(1, 6)]) for seed in (1, 2)]
    summary = summarise_trainings({"slow": slow, "fast": fast}, "slow", (0.4, 0.6))
    # 160 slices against 20 and 40: 8 and 4 times as fast, in the geometric mean sqrt(32).
    assert summary["fast"]["training_slices"] == [20.0, 40.0]
    assert summary["fast"]["speed_up"]["mean"] == pytest.approx(32**0.5)
    assert summary["fast"]["at_milestone"]["accuracy"] == 0.4
    assert summary["fast"]["at_milestone"]["speed_up"]["mean"] == pytest.approx(32**0.5)
    assert summary["slow"]["speed_up"]["mean"] == 1
    assert summary["fast"]["milestones"] == {"0.4": [4.0, 8.0], "0.6": [None, None]}
    # EI = 0.5 / 32**0.2 = 0.25 after the first round.
    assert efficiency_index(slow[0])[0] == pytest.approx(0.25)


# The command `spotweave simulate async`.

SCENARIO = f"{SYN_AND_ASYN}  fed_suda: {{algorithm: fed_suda, staleness_bound: 3}}\n"


def test_tables_and_a_picture_are_written(file: Callable[[object], str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = printed("simulate", "async", file(SCENARIO), "--methods", "syn, asyn", "--seeds", 2, "--out", out)
    assert "Small; 2,000 digits of the package" in text
    assert "fed_suda" not in text
    assert (out / "experiment.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))["methods"]
    assert set(summary) == {"syn", "asyn"}
    rows = rows_of(out / "points.csv")
    # Two methods, two seeds, 50 updates of 5 per round.
    assert len(rows) == 2 * 2 * 10
    ends = [float(row["time_slices"]) for row in rows if row["method"] == "asyn" and row["round"] == "10"]
    assert ends == summary["asyn"]["training_slices"]


def test_one_seed_has_no_interval(file: Callable[[object], str]) -> None:
    assert "[" not in printed("simulate", "async", file(SCENARIO), "--seeds", 1)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (SCENARIO, ["--methods", "hp_asgd"], "method 'hp_asgd': expected some of syn, asyn, fed_suda"),
        (SCENARIO, ["--seeds", "0"], "seeds is 0: expected at least 1"),
        (SCENARIO, ["--data", "/nowhere"], "/nowhere has neither"),
        (SCENARIO.replace("updates: 50", "updates: 0"), [], "updates is 0: input should be greater"),
        (SCENARIO.replace("staleness_bound: 3", "staleness_bound: -1"), [], "staleness_bound is -1"),
        (
            SCENARIO.replace(", staleness_bound: 3", ""),
            [],
            "methods.fed_suda: fed_suda needs staleness_bound",
        ),
        (
            SCENARIO.replace("asyn_da}", "asyn_da, mixing: 0.5}"),
            [],
            "asyn_da has no mixing: expected some of",
        ),
        (SCENARIO.replace("fed_avg", "fedavg"), [], "algorithm is 'fedavg'"),
        (SCENARIO.replace("reference: syn", "reference: sync"), [], "reference is 'sync'"),
        (SCENARIO + "slow: [10]", [], "slow names participant 10: there are 0 to 9"),
        (SCENARIO.replace("round_updates: 5", "round_updates: 11"), [], "expected at most 10"),
        (SCENARIO.replace("participants: 10", "participants: 7"), [], "needs a multiple of 5"),
        ("- a", [], "holds no keys"),
    ],
)
def test_mistakes_are_one_line(
    file: Callable[[object], str], text: str, arguments: list[str], message: str
) -> None:
    assert message in mistake("simulate", "async", file(text), *arguments)


# Local work: many models at once give what torch gives for each alone; who holds which images.


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
        np.random.SeedSequence(0).spawn(2),
        batch_size=3,
        steps=steps,
        rate=rate,
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
    with pytest.raises(UsageError, match="too few for 2000 groups"):
        holdings_of("random_groups", LABELS[:1000], 1000, np.random.default_rng(0))
    with pytest.raises(UsageError, match="no participant holds mostly the digit 8"):
        noisy_labels("swap", LABELS, [np.arange(2000)])


# Asynchronous trainings on rented instances: the same world as synchronous rounds, but for the pace.


CLIENTS = 5
NEVER = 1.1
"""An accuracy that is never reached."""


def few_images() -> Images:
    generator = np.random.default_rng(0)
    labels = np.tile(np.arange(10), 20)
    shown = generator.normal(size=(200, 1, 28, 28)).astype(np.float32)
    return Images(shown, labels, shown[:20], labels[:20], "noise")


def training(method: Method, updates: int) -> RentedTraining:
    scenario = Scenario(
        title="five clients",
        partition="random_groups",
        bands=(Band(CLIENTS, 1.0, 1.0),),
        methods={"only": method},
        reference="only",
        slow=(4,),
        updates=updates,
        round_updates=2,
        batch_size=4,
        local_steps=1,
    )
    return RentedTraining(VirtualTime(scenario, few_images(), 0), method, NEVER)


def application(rounds: int, epochs_s: tuple[int, ...], **changes: object) -> Application:
    clients = tuple(Client(f"client {k}", s, s + 50, 100, (0, 1)) for k, s in enumerate(epochs_s))
    given = Application("five clients", rounds, clients, two_offers(), start_together=False)
    return replace(given, **changes)  # type: ignore[arg-type]


def course(outcome: Outcome) -> object:
    return outcome.time_s, outcome.rounds, outcome.bills, outcome.spans, outcome.interruptions


@pytest.mark.parametrize("scheduler", [FedCostAware, lambda: Observing(named_rule("round_cost"))])
@pytest.mark.parametrize("seed", range(3))
def test_an_aggregator_that_waits_for_all_is_the_synchronous_application(
    scheduler: type[RoundScheduler], seed: int
) -> None:
    """FedAvg of all clients, 6 rounds of 5 updates, interrupted about every 20 minutes."""
    offers = (replace(two_offers()[0], mean_time_to_interruption_s=1200.0), two_offers()[1])
    given = application(6, (60, 100, 200, 400, 900), offers=offers, epoch_cv=0.1, aggregation_s=7)
    paced = play(given, scheduler(), seed, training(Method("fed_avg", round_updates=CLIENTS), 30))
    assert course(paced) == course(play(given, scheduler(), seed))


def test_who_waits_for_nobody_is_never_idle() -> None:
    """Instances are ready at 100 s; cold epochs take 50 s longer, once.

    Of clients with epochs of 100 s (four) and 1000 s, four deliver at 250, 350, 450, ...: 4 k results until
    150 + 100 k s; the fifth at 1150 s. The 40th result is one of those at 1150 s.
    """
    given = application(1000, (100, 100, 100, 100, 1000))
    asked = training(Method("asyn_da"), 40)
    outcome = play(given, AlwaysOn(Market.SPOT), 0, asked)
    assert outcome.time_s == 1150
    assert [epoch.end_s for epoch in outcome.epochs if epoch.client == 0] == list(range(250, 1151, 100))
    assert [point.time_slices for point in asked.training.points[:4]] == [250, 250, 350, 350]
    for spans in outcome.spans:
        assert {span.state.name for span in spans} == {"SPIN_UP", "TRAINING"}


def test_regular_clients_wait_for_a_slow_one_whose_shadow_is_too_old_and_are_released() -> None:
    """Fed-SUDA with T = 1 and W = 3: two of four regular clients, and the slow one in every other model."""
    fed_suda = Method("fed_suda", staleness_bound=1, round_updates=3)
    given = application(1000, (50, 50, 50, 50, 2000))
    kept = play(given, AlwaysOn(Market.SPOT), 0, training(fed_suda, 20))
    released = play(given, Observing(named_rule("round_cost")), 0, training(fed_suda, 20))
    # Nobody makes a model before the slow client has delivered at 100 + 2050 s.
    assert kept.rounds[0][1] == released.rounds[0][1] == 2150
    assert released.cost_usd < 0.6 * kept.cost_usd
    assert released.time_s <= 1.05 * kept.time_s


def test_asynchronous_applications_rent_no_server_and_have_no_budgets() -> None:
    clients = (Client("one", 60, 100, 100, (0, 1), budget_usd=1.0),)
    given = Application("rich", 1, clients, two_offers())
    with pytest.raises(ValueError, match="'rich' is asynchronous: expected no rented server and no budgets"):
        play(given, FedCostAware(), 0, training(Method("asyn_da"), 1))
