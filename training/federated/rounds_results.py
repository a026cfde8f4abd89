"""What `spotweave simulate fl` writes: tables, and pictures as Figures 4 and 5 of Sinha 2025."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from spotweave.envs.simulation.federations.rounds.application import SERVER
from spotweave.envs.simulation.federations.rounds.decisions import State
from spotweave.envs.simulation.federations.rounds.history import Outcome
from spotweave.training.canvas import COLOURS, legend, save, single
from spotweave.training.config import provenance
from spotweave.training.files import write_csv, write_json

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
