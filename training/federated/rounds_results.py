"""What `spotweave simulate-fl` writes for scenarios of kind "rounds": tables and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from envs.simulation.federations.rounds.application import SERVER
from envs.simulation.federations.rounds.decisions import State
from envs.simulation.federations.rounds.history import Outcome
from training.config import provenance
from training.federated.rounds_pictures import draw_costs, draw_states
from training.files import write_csv, write_json


def write_results(
    out: Path,
    outcomes: Mapping[str, Outcome],
    reference: Outcome | None,
    seed: int,
    scenario: str,
    *,
    what: str = "policy",
    begun_s: Mapping[str, int] | None = None,
) -> list[Path]:
    """Write states.csv, bills.csv, costs.csv, the pictures of each policy, and summary.json last.

    Args:
        out: an existing directory.
        outcomes: by policy, or by whatever tells them apart.
        reference: what savings are against; None if there is none.
        seed: of the simulation.
        scenario: the scenario's file.
        what: heading of what tells them apart.
        begun_s: when each began, which is added to all seconds in tables; None: all at 0 s.

    Returns:
        The files.

    Raises:
        WriteError: if one cannot be written.
    """
    written = []
    begun = dict.fromkeys(outcomes, 0) if begun_s is None else begun_s
    for name, header, rows in (
        ("states.csv", (what, "client", "state", "round", "start_s", "end_s"), _states(outcomes, begun)),
        (
            "bills.csv",
            (what, "client", "offer", "start_s", "end_s", "usd", "interrupted"),
            _bills(outcomes, begun),
        ),
        ("costs.csv", (what, "round", "time_s", "client", "accumulated_usd"), _costs(outcomes, begun)),
    ):
        write_csv(out / name, header, rows)
        written.append(out / name)
    for policy, outcome in outcomes.items():
        draw_states(outcome, out / f"states_{policy}.png")
        draw_costs(outcome, out / f"costs_{policy}.png")
        written += [out / f"states_{policy}.png", out / f"costs_{policy}.png"]
    write_json(
        out / "summary.json",
        {
            "scenario": scenario,
            "seed": seed,
            **provenance(),
            {"policy": "policies"}.get(what, f"{what}s"): {
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
    """What a server that is a task of its own adds; nothing where it is not."""
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


def _states(outcomes: Mapping[str, Outcome], begun_s: Mapping[str, int]) -> Iterator[tuple[object, ...]]:
    for policy, outcome in outcomes.items():
        for task, name in _tasks(outcome):
            for span in outcome.server_spans if task == SERVER else outcome.spans[task]:
                state = span.state.name.lower()
                start_s, end_s = (second + begun_s[policy] for second in (span.start_s, span.end_s))
                yield policy, name, state, span.round_index + 1, start_s, end_s


def _bills(outcomes: Mapping[str, Outcome], begun_s: Mapping[str, int]) -> Iterator[tuple[object, ...]]:
    for policy, outcome in outcomes.items():
        names = dict(_tasks(outcome))
        offers = [offer.name for offer in outcome.application.offers]
        for bill in outcome.bills:
            yield (
                policy,
                names[bill.client],
                offers[bill.offer],
                bill.start_s + begun_s[policy],
                bill.end_s + begun_s[policy],
                bill.usd,
                int(bill.by_provider),
            )


def _costs(outcomes: Mapping[str, Outcome], begun_s: Mapping[str, int]) -> Iterator[tuple[object, ...]]:
    for policy, outcome in outcomes.items():
        for number, (_, end_s) in enumerate(outcome.rounds, start=1):
            for k, name in _tasks(outcome):
                yield policy, number, end_s + begun_s[policy], name, outcome.accumulated_usd(k, end_s)
