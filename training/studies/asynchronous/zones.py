"""What asynchronous training to an accuracy costs on recorded spot zones, against synchronous rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from spotweave.agents.federated.observing import Observing
from spotweave.agents.federated.rules.fed_cost_aware import FedCostAware
from spotweave.agents.named import named_rule
from spotweave.envs.federated_episodes import DrawnApplications, FederatedConfig
from spotweave.envs.market_data import recorded_market
from spotweave.envs.simulation.federations.rounds.application import Application, Client
from spotweave.envs.simulation.federations.rounds.decisions import RoundScheduler
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.envs.simulation.federations.world import OneApplication
from spotweave.envs.simulation.market.config import MarketConfig
from spotweave.envs.simulation.streams import Streams, episode_sequence
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training.config import UsageError, plain
from spotweave.training.evaluation.episodes import find_suite
from spotweave.training.evaluation.statistics import estimate
from spotweave.training.federated.asynchronous.outcomes import draw_costs
from spotweave.training.federated.asynchronous.scenario import Scenario, read_scenario
from spotweave.training.federated.asynchronous.virtual_time import RentedTraining, VirtualTime
from spotweave.training.studies.asynchronous.comparisons import EXAMPLES, Runs
from spotweave.training.studies.cells import Columns, columns_table, interval_cell
from spotweave.training.studies.evaluations import code_hash
from spotweave.training.studies.federated.playing import Learned, find_learned, paired
from spotweave.training.studies.page import Section

SPIN_UP_S, COLD_S = 120.0, 60.0
"""Seconds from an instance's request until it can train; extra seconds of its first epoch."""
EPOCH_CV, SPIN_UP_CV = 0.05, 0.1
EPISODES_PER_SEED = 4
MOST_QUESTIONS = 1_000_000


class Contestant(NamedTuple):
    """A method and who places its clients."""

    method: str
    scheduler: str

    @property
    def name(self) -> str:
        """Name in documents and tables."""
        return f"{self.method}, {self.scheduler}"


CONTESTANTS = (
    Contestant("syn", "fed_cost_aware"),
    Contestant("syn", "round_cost"),
    Contestant("syn", "mtdqn"),
    Contestant("fed_suda", "round_cost"),
    Contestant("fed_suda", "mtdqn"),
    Contestant("fed_buff", "mtdqn"),
)
OURS = Contestant("syn", "mtdqn")  # reference of differences: our policy with synchronous rounds

COLUMNS: Columns = (
    ("USD", "{cost_usd[mean]:.1f}"),
    (f"against {OURS.name}", "{against[cost_usd]}"),
    ("hours", "{hours[mean]:.1f}"),
    (f"against {OURS.name}", "{against[hours]}"),
    ("epochs", "{epochs[mean]:.0f}"),
    ("interruptions", "{interruptions[mean]:.1f}"),
    ("reached", "{reached} %"),
)


def zones(scenario: str) -> Section:
    """The contestants in one scenario, a file of examples/asynchronous whose slices are seconds."""
    return Section(partial(make, scenario), body)


def make(name: str, runs: Runs, seeds: int, picture: Path) -> dict[str, Any]:
    """Play every contestant of a scenario, whose slices are seconds; a document that JSON can hold."""
    scenario = read_scenario(EXAMPLES / f"{name}.yaml")
    learned = find_learned(None)
    if learned is None:
        raise UsageError("there is no released policy `federated`: release one first")
    played: dict[str, dict[str, list[float]]] = {one.name: {} for one in CONTESTANTS}
    for key in find_suite("test", seeds * EPISODES_PER_SEED).episode_keys():
        for one in CONTESTANTS:
            result = _played(scenario, one, key, runs, learned)
            for metric, value in result.items():
                played[one.name].setdefault(metric, []).append(value)
        print(f"played: {scenario.title}, episode {key.index}", flush=True)
    draw_costs(played, scenario.title, picture)
    ours = played[OURS.name]
    return {
        "seeds": seeds,
        "picture": picture.name,
        "title": scenario.title,
        "accuracy": scenario.milestones[0],
        "episodes": len(ours["cost_usd"]),
        "contestants": {
            name: {
                **{metric: estimate(values) for metric, values in episodes.items()},
                "against_ours": paired(episodes, ours, {"cost_usd": "percent", "hours": "percent"}),
            }
            for name, episodes in played.items()
        },
    }


def body(document: Mapping[str, Any]) -> str:
    """The table and the picture."""
    rows = []
    for name, measured in document["contestants"].items():
        against = measured["against_ours"]
        share = {key: "" if name == OURS.name else interval_cell(against[key], "+.0f") for key in against}
        reached = round(100 * measured["reached"]["mean"])
        rows.append({**measured, "name": name, "against": share, "reached": reached})
    title = f"{document['title']}, to an accuracy of {document['accuracy']:g}"
    picture = f"![{document['title']}](liu2022-async/{document['picture']})"
    return "\n\n".join(
        [
            columns_table([(title, "{name}"), *COLUMNS], rows),
            f"{document['episodes']} test episodes.",
            picture,
        ]
    )


def application_of(scenario: Scenario, key: EpisodeKey) -> Application:
    """The scenario's clients on the recorded zones of an episode; rounds without end."""
    source = DrawnApplications(FederatedConfig(market="zones"), recorded_market(MarketConfig()))
    drawn = source.application(key)
    streams = Streams(episode_sequence(key.seed, key.split, key.index))
    epochs_s = scenario.expected_slices(streams.generator("response_times"))
    clients = tuple(
        Client(f"client {k + 1}", float(s), float(s) + COLD_S, SPIN_UP_S, tuple(range(len(drawn.offers))))
        for k, s in enumerate(epochs_s)
    )
    return replace(drawn, clients=clients, rounds=scenario.updates, epoch_cv=EPOCH_CV, spin_up_cv=SPIN_UP_CV)


def _played(
    scenario: Scenario, one: Contestant, key: EpisodeKey, runs: Runs, learned: Learned
) -> dict[str, float]:
    application = application_of(scenario, key)
    schedulers: dict[str, Callable[[], RoundScheduler]] = {
        "fed_cost_aware": FedCostAware,
        "round_cost": lambda: Observing(named_rule("round_cost"), most_questions=MOST_QUESTIONS),
        "mtdqn": lambda: Observing(learned.load(OneApplication(application)), most_questions=MOST_QUESTIONS),
    }

    def make() -> dict[str, float]:
        world = VirtualTime(scenario, runs.images, key.index)
        training = RentedTraining(world, scenario.methods[one.method], scenario.milestones[0])
        root = episode_sequence(key.seed, key.split, key.index)
        outcome = play(application, schedulers[one.scheduler](), root, training)
        return {
            "cost_usd": outcome.cost_usd,
            "hours": outcome.time_s / 3600,
            "epochs": float(len(outcome.epochs)),
            "interruptions": float(len(outcome.interruptions)),
            "reached": float(training.reached),
        }

    identity = {
        "scenario": plain(scenario),
        "contestant": one.name,
        "episode": [key.seed, key.split, key.index],
        "policy": learned.sha256,
        "constants": [SPIN_UP_S, COLD_S, EPOCH_CV, SPIN_UP_CV],
        "code": _world_code(),
    }
    return runs.keep(identity, make)


_world_code = cache(code_hash)  # what an application's course depends on besides the training
