"""Simulate a federated application under one policy or several: `spotweave simulate-fl SCENARIO.json`.

The scenario's "kind" says which simulator it is for; each simulator is one entry of `SIMULATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from agents.federated.rules.fed_cost_aware import FedCostAware
from agents.federated.schedulers.multi_fedls import MultiFedLS
from envs.federated_data.multi_fedls_scenarios import MultiFedlsScenario, parse_multi_fedls
from envs.federated_data.rounds_scenarios import (
    ScenarioError,
    parse_rounds,
    published_table,
    read_json,
    scenario_path,
)
from envs.simulation.federations.rounds.application import Application, Market
from envs.simulation.federations.rounds.history import Outcome
from envs.simulation.federations.rounds.world import play
from training.federated.policies import (
    MULTI_FEDLS_POLICIES,
    REFERENCE,
    ROUND_POLICIES,
    Report,
    Request,
    clock,
    played_application,
    savings_percent,
)
from training.federated.rounds_results import write_results
from training.files import prepare_directory


def simulate(scenario: str, policies: tuple[str, ...] = (), seed: int = 0, out: Path | None = None) -> Report:
    """Simulate a scenario file, or a bundled scenario by its name.

    Args:
        scenario: path of a JSON file, or a name of `bundled_scenarios`.
        policies: names; empty for all that the scenario allows.
        seed: of everything random, >= 0.
        out: where tables and pictures are written; None to write nothing.

    Raises:
        ValueError: one line about a scenario, a policy, a seed or a directory that cannot be used.
    """
    if seed < 0:
        raise ValueError(f"--seed is {seed}: expected a whole number >= 0")
    path = scenario_path(scenario)
    content = read_json(path)
    kind = content.get("kind")
    if kind not in SIMULATORS:
        raise ScenarioError(f"{path}: kind is {kind!r}: expected one of {', '.join(SIMULATORS)}")
    if out is not None:
        prepare_directory(out)
    return SIMULATORS[kind](Request(content, str(path), policies, seed, out))


def simulate_rounds(request: Request) -> Report:
    """Scenarios of kind "rounds" (Sinha 2025)."""
    application = parse_rounds(request.content, request.where)
    names = request.policies or tuple(
        name for name in ROUND_POLICIES if not (name == REFERENCE and _cannot_rent_reference(application))
    )
    for name in names:
        if name not in ROUND_POLICIES:
            raise ValueError(f"--policy is {name!r}: expected one of {', '.join(ROUND_POLICIES)}")
    outcomes = {name: play(application, ROUND_POLICIES[name](), request.seed) for name in names}
    reference = outcomes.get(REFERENCE)
    if reference is None and not _cannot_rent_reference(application):
        reference = play(application, ROUND_POLICIES[REFERENCE](), request.seed)
    published = published_table(request.content)
    headings: tuple[str, ...] = ("policy", "time (min)", "cost (USD)", "savings (%)", "interruptions", "left")
    if published:
        headings += ("published: time", "cost", "savings")
    rows: list[tuple[str, ...]] = [
        _row(name, outcome, reference, published if published else None) for name, outcome in outcomes.items()
    ]
    notes = [note for name, outcome in outcomes.items() for note in _notes(name, outcome)]
    if request.out is not None:
        written = write_results(request.out, outcomes, reference, request.seed, request.where)
        notes += [f"written: {path}" for path in written]
    size = f"{len(application.clients)} clients, {application.rounds} rounds"
    return Report(f"{application.name}: {size}, seed {request.seed}", headings, rows, notes)


def simulate_multi_fedls(request: Request) -> Report:
    """Scenarios of kind "multi_fedls" (Brum 2023): TIL and others on several clouds with revocations."""
    scenario = parse_multi_fedls(request.content, request.where)
    known = ("fed_cost_aware", *MULTI_FEDLS_POLICIES)
    names = request.policies or ("multi_fedls", "multi_fedls_same_type", REFERENCE)
    for name in names:
        if name not in known:
            raise ValueError(f"--policy is {name!r}: expected one of {', '.join(known)}")
    outcomes = {name: _play_multi_fedls(scenario, name, request.seed) for name in names}
    reference = outcomes.get(REFERENCE) or _play_multi_fedls(scenario, REFERENCE, request.seed)
    headings = (
        "policy",
        "time",
        "cost (USD)",
        "savings (%)",
        "revocations",
        "server lost",
        "rounds repeated",
    )
    rows: list[tuple[str, ...]] = [
        (
            name,
            clock(outcome.time_s),
            f"{outcome.cost_usd:.2f}",
            f"{savings_percent(outcome, reference):.2f}",
            str(len(outcome.interruptions)),
            str(len(outcome.server_losses)),
            str(sum(loss.round_index - loss.resumed_round for loss in outcome.server_losses)),
        )
        for name, outcome in outcomes.items()
    ]
    notes = [note for name, outcome in outcomes.items() for note in _notes(name, outcome)]
    if request.out is not None:
        written = write_results(request.out, outcomes, reference, request.seed, request.where)
        notes += [f"written: {path}" for path in written]
    application = scenario.deployment.application
    size = f"{len(application.clients)} clients, {application.rounds} rounds"
    return Report(f"{scenario.name}: {size}, seed {request.seed}", headings, rows, notes)


def _play_multi_fedls(scenario: MultiFedlsScenario, name: str, seed: int) -> Outcome:
    application = played_application(scenario, name)
    if name == "fed_cost_aware":
        return play(application, FedCostAware(), seed)
    policy = MultiFedLS(
        scenario.deployment,
        alpha=scenario.alpha,
        placement=scenario.placement,
        name=name,
        **MULTI_FEDLS_POLICIES[name],
    )
    return play(application, policy, seed)


def _cannot_rent_reference(application: Application) -> str | None:
    """The first client without an on-demand offer; None if all have one."""
    for client in application.clients:
        if all(application.offers[offer].market != Market.ON_DEMAND for offer in client.offers):
            return client.name
    return None


def _row(
    name: str,
    outcome: Outcome,
    reference: Outcome | None,
    published: Mapping[str, Mapping[str, float]] | None,
) -> tuple[str, ...]:
    row = (
        name,
        f"{outcome.time_s / 60:.1f}",
        f"{outcome.cost_usd:.4f}",
        "-" if reference is None else f"{savings_percent(outcome, reference):.2f}",
        str(len(outcome.interruptions)),
        str(len(outcome.exclusions)),
    )
    if published is None:
        return row
    printed = published.get(name, {})
    return (*row, *(f"{printed[key]:g}" if key in printed else "-" for key in _PRINTED))


_PRINTED = ("time_min", "cost_usd", "savings_percent")


def _notes(name: str, outcome: Outcome) -> list[str]:
    """What a reader must know besides the numbers."""
    clients = outcome.application.clients
    notes = [
        f"{name}: {clients[item.client].name} left in round {item.round_index + 1} of "
        f"{outcome.application.rounds} after {item.time_s / 60:.1f} min"
        + (" and lost that round's work" if item.work_lost else "")
        for item in outcome.exclusions
    ]
    if len(outcome.rounds) < outcome.application.rounds:
        notes.append(
            f"{name}: only {len(outcome.rounds)} of {outcome.application.rounds} rounds were completed"
        )
    return notes


SIMULATORS: dict[str, Callable[[Request], Report]] = {
    "rounds": simulate_rounds,
    "multi_fedls": simulate_multi_fedls,
}
"""Simulator of each kind of scenario."""
