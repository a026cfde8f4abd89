"""Simulate a federated application under one policy or several: `spotweave simulate fl SCENARIO.json`.

The scenario's "kind" says which simulator it is for; each simulator is one entry of `SIMULATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from spotweave.agents.federated.multi_fedls import MultiFedLS
from spotweave.agents.federated.rules.always_on import AlwaysOn
from spotweave.agents.federated.rules.fed_cost_aware import FedCostAware
from spotweave.envs.federated_data.multi_fedls import MultiFedlsScenario, parse_multi_fedls
from spotweave.envs.federated_data.rounds_scenarios import (
    ScenarioError,
    parse_rounds,
    published_table,
    read_json,
    scenario_path,
)
from spotweave.envs.simulation.federations.rounds.application import SERVER, Market
from spotweave.envs.simulation.federations.rounds.decisions import Outcome, RoundScheduler, State
from spotweave.envs.simulation.federations.rounds.deployment import Deployment
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.training.canvas import COLOURS, legend, save, single
from spotweave.training.config import provenance
from spotweave.training.files import prepare_directory, write_csv, write_json
from spotweave.training.progress import clock

ROUND_POLICIES: dict[str, Callable[[], RoundScheduler]] = {
    "fed_cost_aware": FedCostAware,
    "spot": lambda: AlwaysOn(Market.SPOT),
    "on_demand": lambda: AlwaysOn(Market.ON_DEMAND),
}
"""What --policy may name in scenarios of kind "rounds", in the order of the table."""

MOVE_FACTOR = 1.5
"""`multi_fedls_moving` moves tasks whose VM type or link is slower than expected by more than this factor."""

MULTI_FEDLS_POLICIES: dict[str, dict[str, Any]] = {
    f"multi_fedls{successor}{markets}": {
        "server_market": Market.ON_DEMAND if markets == "_server_on_demand" else Market.SPOT,
        "client_market": Market.ON_DEMAND if markets == "_clients_on_demand" else Market.SPOT,
        "exclude_revoked": not successor,
    }
    for successor, markets in product(("", "_same_type"), ("", "_server_on_demand", "_clients_on_demand"))
} | {
    "multi_fedls_moving": {"move_factor": MOVE_FACTOR},
    "on_demand": {"server_market": Market.ON_DEMAND, "client_market": Market.ON_DEMAND},
}
"""What --policy may name in scenarios of kind "multi_fedls", with the options of `MultiFedLS`."""

REFERENCE = "on_demand"  # savings are against this policy

_PRINTED = {"published: time": "time_min", "cost": "cost_usd", "savings": "savings_percent"}


class Report(NamedTuple):
    """What the policies came to, and how it is shown: a title, a table, and lines below."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    outcomes: Mapping[str, Outcome]
    reference: Outcome | None
    notes: Sequence[str] = ()


def simulate(scenario: str, policies: tuple[str, ...] = (), seed: int = 0, out: Path | None = None) -> Report:
    """Simulate a JSON file, or a bundled scenario by its name, under some policies or all that it allows.

    Tables and pictures are written to `out`. Raises ValueError: one line about what cannot be used.
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
    played = SIMULATORS[kind](content, str(path), policies, seed)
    notes = [note for name, outcome in played.outcomes.items() for note in _notes(name, outcome)]
    if out is not None:
        written = write_results(out, played.outcomes, played.reference, seed, str(path))
        notes += [f"written: {file}" for file in written]
    application = next(iter(played.outcomes.values())).application
    size = f"{len(application.clients)} clients, {application.rounds} rounds"
    return played._replace(title=f"{played.title}: {size}, seed {seed}", notes=notes)


def _chosen(policies: tuple[str, ...], usual: Collection[str], known: Collection[str]) -> Collection[str]:
    for name in policies:
        if name not in known:
            raise ValueError(f"--policy is {name!r}: expected one of {', '.join(known)}")
    return policies or usual


def simulate_rounds(content: Mapping[str, Any], where: str, policies: tuple[str, ...], seed: int) -> Report:
    """Scenarios of kind "rounds" (Sinha 2025)."""
    application = parse_rounds(content, where)
    rentable = all(
        any(application.offers[offer].market == Market.ON_DEMAND for offer in client.offers)
        for client in application.clients
    )
    usual = [name for name in ROUND_POLICIES if name != REFERENCE or rentable]
    names = _chosen(policies, usual, ROUND_POLICIES)
    outcomes = {name: play(application, ROUND_POLICIES[name](), seed) for name in names}
    reference = outcomes.get(REFERENCE)
    if reference is None and rentable:
        reference = play(application, ROUND_POLICIES[REFERENCE](), seed)
    published = published_table(content)
    headings: tuple[str, ...] = ("policy", "time (min)", "cost (USD)", "savings (%)", "interruptions", "left")
    rows = []
    for name, outcome in outcomes.items():
        row: tuple[str, ...] = (
            name,
            f"{outcome.time_s / 60:.1f}",
            f"{outcome.cost_usd:.4f}",
            "-" if reference is None else f"{_savings_percent(outcome, reference):.2f}",
            str(len(outcome.interruptions)),
            str(len(outcome.exclusions)),
        )
        if published:
            printed = published.get(name, {})
            row += tuple(f"{printed[key]:g}" if key in printed else "-" for key in _PRINTED.values())
        rows.append(row)
    if published:
        headings += tuple(_PRINTED)
    return Report(application.name, headings, rows, outcomes, reference)


def simulate_multi_fedls(
    content: Mapping[str, Any], where: str, policies: tuple[str, ...], seed: int
) -> Report:
    """Scenarios of kind "multi_fedls" (Brum 2023): TIL and others on several clouds with revocations."""
    scenario = parse_multi_fedls(content, where)
    usual = ("multi_fedls", "multi_fedls_same_type", REFERENCE)
    names = _chosen(policies, usual, ("fed_cost_aware", *MULTI_FEDLS_POLICIES))
    outcomes = {name: _play_multi_fedls(scenario, name, seed) for name in names}
    reference = outcomes.get(REFERENCE) or _play_multi_fedls(scenario, REFERENCE, seed)
    headings = (
        *("policy", "time", "cost (USD)", "savings (%)"),
        *("revocations", "server lost", "rounds repeated"),
    )
    rows: list[tuple[str, ...]] = [
        (
            name,
            clock(outcome.time_s),
            f"{outcome.cost_usd:.2f}",
            f"{_savings_percent(outcome, reference):.2f}",
            str(len(outcome.interruptions)),
            str(len(outcome.server_losses)),
            str(sum(loss.round_index - loss.resumed_round for loss in outcome.server_losses)),
        )
        for name, outcome in outcomes.items()
    ]
    return Report(scenario.name, headings, rows, outcomes, reference)


def _play_multi_fedls(scenario: MultiFedlsScenario, name: str, seed: int) -> Outcome:
    # All tasks on demand lose no VM, so they keep no checkpoints.
    calm = name == REFERENCE and not scenario.deployment.conditions.interruptions
    application = scenario.unchecked if calm else scenario.deployment.application
    if name == "fed_cost_aware":
        return play(application, FedCostAware(), seed)
    return play(application, multi_fedls(scenario, scenario.deployment, name), seed)


def multi_fedls(scenario: MultiFedlsScenario, deployment: Deployment, name: str) -> MultiFedLS:
    """One of MULTI_FEDLS_POLICIES, for a scenario as it is deployed."""
    options = MULTI_FEDLS_POLICIES[name]
    return MultiFedLS(deployment, alpha=scenario.alpha, placement=scenario.placement, name=name, **options)


def _savings_percent(outcome: Outcome, reference: Outcome) -> float:
    return 100 * (1 - outcome.cost_usd / reference.cost_usd) if reference.cost_usd else 0.0


def _notes(name: str, outcome: Outcome) -> list[str]:
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


SIMULATORS: dict[str, Callable[[Mapping[str, Any], str, tuple[str, ...], int], Report]] = {
    "rounds": simulate_rounds,
    "multi_fedls": simulate_multi_fedls,
}
"""Simulator of each kind of scenario."""


# What `spotweave simulate fl` writes: tables, and pictures as Figures 4 and 5 of Sinha 2025.


# Okabe and Ito (2008): colour-blind readers can tell these apart.
STATES = {
    State.TRAINING: ("#0072B2", "training"),
    State.SPIN_UP: ("#E69F00", "spin-up"),
    State.IDLE: ("#D55E00", "idle"),
    State.OFF: ("#A8DDB5", "off (saved)"),
    State.GONE: ("#EEEEEE", "left"),
}
CLIENT_COLOURS = COLOURS[:7]
LINE_STYLES = ("-", "--", ":", "-.")
BAR_HEIGHT = 0.75
MINUTE_S = 60


def states_figure(outcome: Outcome) -> Figure:
    """One bar per client; the first client on top, interruptions marked, round ends as thin lines.

    A server that is a task of its own is above the clients; while it serves it is called idle.
    """
    names = [client.name for client in outcome.application.clients]
    rows = list(outcome.spans)
    if outcome.application.server is not None:
        names, rows = ["server", *names], [outcome.server_spans, *rows]
    first = len(rows) - len(outcome.spans)
    figure, axis = single(10, 1.2 + 0.42 * len(rows))
    for row, spans in enumerate(rows):
        for state, (colour, _) in STATES.items():
            pieces = [
                (span.start_s / MINUTE_S, (span.end_s - span.start_s) / MINUTE_S)
                for span in spans
                if span.state == state
            ]
            if pieces:
                axis.broken_barh(pieces, (row - BAR_HEIGHT / 2, BAR_HEIGHT), facecolors=colour)
    for client, time_s in outcome.interruptions:
        axis.plot(time_s / MINUTE_S, client + first, "x", color="black", markersize=6)
    for _, end_s in outcome.rounds:
        axis.axvline(end_s / MINUTE_S, color="#555555", linewidth=0.4)
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(0, max(1, outcome.time_s) / MINUTE_S)
    axis.set_xlabel("time (minutes)")
    axis.set_title(f"{outcome.application.name}, {outcome.policy}: client states", fontsize=10)
    shown = {span.state for spans in rows for span in spans}
    marks = [Patch(color=colour, label=name) for state, (colour, name) in STATES.items() if state in shown]
    legend(figure, len(STATES), handles=marks)
    return figure


def costs_figure(outcome: Outcome) -> Figure:
    """Cumulative cost of each client at the end of each round."""
    figure, axis = single(7, 4)
    numbers = list(range(len(outcome.rounds) + 1))
    tasks = list(enumerate(client.name for client in outcome.application.clients))
    if outcome.application.server is not None:
        tasks.append((SERVER, "server"))
    for k, name in tasks:
        costs = [0.0, *(outcome.accumulated_usd(k, end_s) for _, end_s in outcome.rounds)]
        axis.plot(
            numbers,
            costs,
            color=CLIENT_COLOURS[k % len(CLIENT_COLOURS)],
            linestyle=LINE_STYLES[k // len(CLIENT_COLOURS) % len(LINE_STYLES)],
            label=name,
        )
    axis.set_xlim(0, max(1, len(outcome.rounds)))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylim(bottom=0)
    axis.set_xlabel("rounds completed")
    axis.set_ylabel("accumulated cost (USD)")
    axis.set_title(f"{outcome.application.name}, {outcome.policy}: cost per client", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False, ncols=1 + len(outcome.application.clients) // 12)
    return figure


DPI = 110


def write_results(
    out: Path, outcomes: Mapping[str, Outcome], reference: Outcome | None, seed: int, scenario: str
) -> list[Path]:
    """Write states.csv, bills.csv, costs.csv, the pictures of each policy, and summary.json last.

    Returns the files. Raises WriteError.
    """
    written = []
    for name, header, rows_of in (
        ("states.csv", ("client", "state", "round", "start_s", "end_s"), _states),
        ("bills.csv", ("client", "offer", "start_s", "end_s", "usd", "interrupted"), _bills),
        ("costs.csv", ("round", "time_s", "client", "accumulated_usd"), _costs),
    ):
        rows = ((policy, *row) for policy, outcome in outcomes.items() for row in rows_of(outcome))
        write_csv(out / name, ("policy", *header), rows)
        written.append(out / name)
    for policy, outcome in outcomes.items():
        for name, draw in (("states", states_figure), ("costs", costs_figure)):
            save(draw(outcome), out / f"{name}_{policy}.png", DPI)
            written.append(out / f"{name}_{policy}.png")
    write_json(
        out / "summary.json",
        {
            "scenario": scenario,
            "seed": seed,
            **provenance(),
            "policies": {
                policy: {
                    "time_s": outcome.time_s,
                    "cost_usd": outcome.cost_usd,
                    "reference_cost_usd": None if reference is None else reference.cost_usd,
                    "rounds": len(outcome.rounds),
                    "interruptions": len(outcome.interruptions),
                    "left": [outcome.application.clients[item.client].name for item in outcome.exclusions],
                    **_server_summary(outcome),
                    "clients": {
                        client.name: {
                            "cost_usd": outcome.client_cost_usd(k),
                            **{f"{s.name.lower()}_s": outcome.seconds_in(k, s) for s in State},
                        }
                        for k, client in enumerate(outcome.application.clients)
                    },
                }
                for policy, outcome in outcomes.items()
            },
        },
    )
    return [*written, out / "summary.json"]


def _server_summary(outcome: Outcome) -> dict[str, object]:
    if outcome.application.server is None:
        return {}
    return {
        "messages_usd": outcome.messages_usd,
        "server": {
            "cost_usd": outcome.server_cost_usd,
            "losses": [loss._asdict() for loss in outcome.server_losses],
            **{f"{s.name.lower()}_s": outcome.seconds_in(SERVER, s) for s in State},
        },
    }


def _tasks(outcome: Outcome) -> list[tuple[int, str]]:
    """(number, name) of the server, where it is a task of its own, and of all clients."""
    clients = list(enumerate(client.name for client in outcome.application.clients))
    return clients if outcome.application.server is None else [(SERVER, "server"), *clients]


def _states(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    for task, name in _tasks(outcome):
        for span in outcome.server_spans if task == SERVER else outcome.spans[task]:
            yield name, span.state.name.lower(), span.round_index + 1, span.start_s, span.end_s


def _bills(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    names = dict(_tasks(outcome))
    for bill in outcome.bills:
        offer = outcome.application.offers[bill.offer].name
        yield names[bill.client], offer, bill.start_s, bill.end_s, bill.usd, int(bill.by_provider)


def _costs(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    for number, (_, end_s) in enumerate(outcome.rounds, start=1):
        for k, name in _tasks(outcome):
            yield number, end_s, name, outcome.accumulated_usd(k, end_s)
