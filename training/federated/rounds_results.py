"""What `spotweave simulate-fl` writes for scenarios of kind "rounds": tables and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from envs.simulation.federations.rounds.application import SERVER
from envs.simulation.federations.rounds.decisions import State
from envs.simulation.federations.rounds.history import Outcome
from training.config import provenance
from training.federated.rounds_pictures import costs_figure, states_figure
from training.files import write_csv, write_json
from training.studies.figures.canvas import save

DPI = 110


def write_results(
    out: Path,
    outcomes: Mapping[str, Outcome],
    reference: Outcome | None,
    seed: int,
    scenario: str,
) -> list[Path]:
    """Write states.csv, bills.csv, costs.csv, the pictures of each policy, and summary.json last.

    Returns:
        The files.

    Raises:
        WriteError: if one cannot be written.
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
