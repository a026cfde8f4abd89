"""`spotweave simulate-fl` for scenarios of kind "fleet": several applications on shared quotas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.federated.mapping.claims import cheapest_claim
from agents.federated.mapping.joint import Task, map_in_order, map_jointly
from agents.federated.rules.fed_cost_aware import FedCostAware
from agents.federated.schedulers.multi_fedls import MultiFedLS
from envs.federated_data.fleet_scenarios import FleetEntry, FleetScenario, parse_fleet
from envs.federated_data.multi_fedls_scenarios import MultiFedlsScenario, parse_multi_fedls
from envs.federated_data.rounds_scenarios import ScenarioError, parse_rounds
from envs.simulation.federations.errors import FederationError
from envs.simulation.federations.fleet.fleet import Entrant, Played, play_fleet
from envs.simulation.federations.fleet.quotas import SharedQuota, quotas_of
from envs.simulation.federations.fleet.usage import usage
from envs.simulation.federations.model import Placement
from envs.simulation.federations.rounds.application import Application, Market
from envs.simulation.federations.rounds.decisions import RoundScheduler
from envs.simulation.federations.rounds.server import SERVER
from training.federated.policies import (
    MULTI_FEDLS_POLICIES,
    ROUND_POLICIES,
    Report,
    Request,
    clock,
    played_application,
)
from training.federated.rounds_results import write_results
from training.files import write_csv

NEARLY = 0.9
"""Quotas of which at some time more than this part was rented are named below the table."""


@dataclass(frozen=True)
class _Part:
    """One application, ready to be played.

    Attributes:
        entry: what the scenario says about it.
        application: what runs.
        make: makes its policy.
        claim: see `Entrant`, given the quotas.
    """

    entry: FleetEntry
    application: Application
    make: Callable[[], RoundScheduler]
    claim: Callable[[Sequence[SharedQuota]], dict[int, int]]

    def entrant(self, quotas: Sequence[SharedQuota], root: int) -> Entrant:
        """What enters the fleet."""
        entry = self.entry
        return Entrant(self.application, root, self.claim(quotas), entry.start_s, entry.reserve)


def fleet_report(request: Request) -> Report:
    """Play the fleet, and each application alone next to it.

    Raises:
        ValueError: one line about the scenario, an application in it, or a quota that one never fits into.
    """
    if request.policies:
        raise ValueError("--policy is not for fleets: each application in the scenario names its own")
    scenario = parse_fleet(request.content, request.where)
    try:
        parts = _parts(scenario)
    except FederationError as error:
        raise ScenarioError(f"{request.where}: {error}") from error
    roots = [
        request.seed + number if part.entry.seed is None else part.entry.seed
        for number, part in enumerate(parts)
    ]
    try:
        quotas = (*quotas_of(part.application for part in parts), *scenario.quotas)
        _require_known_offers(scenario.quotas, parts)
        entrants = [part.entrant(quotas, root) for part, root in zip(parts, roots, strict=True)]
        played = play_fleet(entrants, [part.make() for part in parts], quotas)
    except ValueError as error:
        raise ScenarioError(f"{request.where}: {error}") from error
    alone = [play_fleet([entrant], [part.make()])[0] for part, entrant in zip(parts, entrants, strict=True)]
    rows = [_row(*item) for item in zip(parts, played, alone, strict=True)]
    rows.append(_total(played, alone))
    notes = [note for part, item in zip(parts, played, strict=True) for note in _notes(part, item)]
    notes += [
        f"{quota.name}: at most {peak:g} of {quota.limit:g} at once"
        for quota in quotas
        if (peak := max((used for _, used in usage(quota, played)), default=0.0)) > NEARLY * quota.limit
    ]
    if request.out is not None:
        written = _write(request.out, request, parts, played, quotas)
        notes += [f"written: {path}" for path in written]
    headings = (
        "application",
        "policy",
        "start",
        "waited",
        "time",
        "cost (USD)",
        "alone: time",
        "cost",
        "interruptions",
        "deadline",
        "budget",
    )
    title = f"{scenario.name}: {len(parts)} applications, {len(quotas)} shared quotas, seed {request.seed}"
    return Report(title, headings, rows, notes)


def _parts(scenario: FleetScenario) -> list[_Part]:
    on_clouds = {
        entry.name: parse_multi_fedls(entry.content, entry.where)
        for entry in scenario.entries
        if entry.kind == "multi_fedls"
    }
    placements = _placements(scenario, on_clouds)
    return [
        _on_clouds(entry, on_clouds[entry.name], placements.get(entry.name))
        if entry.kind == "multi_fedls"
        else _rounds(entry)
        for entry in scenario.entries
    ]


def _rounds(entry: FleetEntry) -> _Part:
    if entry.policy not in ROUND_POLICIES:
        raise _unknown_policy(entry, ROUND_POLICIES)
    application = parse_rounds(entry.content, entry.where)
    market = Market.ON_DEMAND if entry.policy == "on_demand" else Market.SPOT
    return _Part(
        entry,
        application,
        ROUND_POLICIES[entry.policy],
        lambda quotas: cheapest_claim(application, quotas, market),
    )


def _on_clouds(entry: FleetEntry, scenario: MultiFedlsScenario, placement: Placement | None) -> _Part:
    application, deployment = played_application(scenario, entry.policy), scenario.deployment
    if entry.policy == "fed_cost_aware":
        return _Part(
            entry, application, FedCostAware, lambda quotas: cheapest_claim(application, quotas, Market.SPOT)
        )
    options = MULTI_FEDLS_POLICIES[entry.policy]

    def make() -> MultiFedLS:
        return MultiFedLS(
            deployment,
            alpha=scenario.alpha,
            placement=scenario.placement if placement is None else placement,
            name=entry.policy,
            **options,
        )

    def claim(quotas: Sequence[SharedQuota]) -> dict[int, int]:
        initial, (server, clients) = make().initial, _markets(options)
        places = {k: deployment.offer_of[vm_type, clients] for k, vm_type in enumerate(initial.clients)}
        return places | {SERVER: deployment.offer_of[initial.server, server]}

    return _Part(entry, application, make, claim)


def _placements(scenario: FleetScenario, on_clouds: dict[str, MultiFedlsScenario]) -> dict[str, Placement]:
    """The first placements that are not the scenarios' own.

    A deadline counts from the start, so the longest preparation of VMs and the fetching of results come off.
    """
    tasks: dict[str, Task] = {}
    for entry in scenario.entries:
        if entry.kind != "multi_fedls":
            continue
        if entry.policy != "fed_cost_aware" and entry.policy not in MULTI_FEDLS_POLICIES:
            raise _unknown_policy(entry, ("fed_cost_aware", *MULTI_FEDLS_POLICIES))
        if entry.policy == "fed_cost_aware":
            continue
        given = on_clouds[entry.name]
        if scenario.mapping == "alone" and given.placement is not None:
            continue
        conditions = given.deployment.conditions
        beside_s = conditions.closing_s + max(conditions.spin_up_s.values(), default=0.0)
        deadline_s = math.inf if entry.deadline_s is None else entry.deadline_s - beside_s
        if deadline_s <= 0:
            raise ScenarioError(
                f"the deadline of {entry.name!r} is {entry.deadline_s:g} s, but preparing VMs and fetching "
                f"results take {beside_s:g} s: raise it"
            )
        tasks[entry.name] = Task(
            given.deployment.federation(*_markets(MULTI_FEDLS_POLICIES[entry.policy])),
            given.alpha,
            deadline_s,
            math.inf if entry.budget_usd is None else entry.budget_usd,
            entry.name,
        )
    order = list(tasks.values())
    if scenario.mapping == "joint" and order:
        best = [plan.placement for plan in map_jointly(order).plans]
    elif scenario.mapping == "in_order":
        best = [found.best.placement for found in map_in_order(order)]
    else:
        best = [map_in_order([task])[0].best.placement for task in order]
    return dict(zip(tasks, best, strict=True))


def _markets(options: dict[str, Any]) -> tuple[Market, Market]:
    """The server's and the clients' market of a policy; spot where its options name none."""
    return options.get("server_market", Market.SPOT), options.get("client_market", Market.SPOT)


def _unknown_policy(entry: FleetEntry, known: Sequence[str] | dict[str, Any]) -> ScenarioError:
    return ScenarioError(
        f"the policy of {entry.name!r} is {entry.policy!r}: expected one of {', '.join(known)}"
    )


def _require_known_offers(quotas: Sequence[SharedQuota], parts: Sequence[_Part]) -> None:
    known = {offer.name: None for part in parts for offer in part.application.offers}
    for quota in quotas:
        for offer in quota.amounts:
            if offer not in known:
                raise ScenarioError(
                    f"{quota.name!r} names offer {offer!r}, which no application may rent: "
                    f"expected some of {', '.join(known)}"
                )


def _row(part: _Part, played: Played, alone: Played) -> tuple[str, ...]:
    entry, outcome = part.entry, played.outcome
    return (
        entry.name,
        entry.policy,
        clock(played.start_s),
        clock(played.waited_s),
        clock(outcome.time_s),
        f"{outcome.cost_usd:.2f}",
        clock(alone.outcome.time_s),
        f"{alone.outcome.cost_usd:.2f}",
        str(len(outcome.interruptions)),
        _kept(entry.deadline_s, played.end_s - played.start_s),
        _kept(entry.budget_usd, outcome.cost_usd),
    )


def _total(played: Sequence[Played], alone: Sequence[Played]) -> tuple[str, ...]:
    """All applications: from the first start to the last end."""
    first_s = min(item.start_s for item in played)
    return (
        "all",
        "",
        clock(first_s),
        clock(sum(item.waited_s for item in played)),
        clock(max(item.end_s for item in played) - first_s),
        f"{sum(item.outcome.cost_usd for item in played):.2f}",
        clock(max(item.end_s for item in alone) - first_s),
        f"{sum(item.outcome.cost_usd for item in alone):.2f}",
        str(sum(len(item.outcome.interruptions) for item in played)),
        "",
        "",
    )


def _kept(limit: float | None, value: float) -> str:
    return "-" if limit is None else "kept" if value <= limit else "missed"


def _notes(part: _Part, played: Played) -> Iterator[str]:
    """What a reader must know besides the numbers."""
    entry, outcome = part.entry, played.outcome
    took_s = played.end_s - played.start_s
    if entry.deadline_s is not None and took_s > entry.deadline_s:
        late_s = took_s - entry.deadline_s
        yield f"{entry.name}: over {late_s:g} s after its deadline of {entry.deadline_s:g} s"
    if entry.budget_usd is not None and outcome.cost_usd > entry.budget_usd:
        more_usd = outcome.cost_usd - entry.budget_usd
        yield f"{entry.name}: {more_usd:.2f} USD over its budget of {entry.budget_usd:g} USD"
    for item in outcome.exclusions:
        name = outcome.application.clients[item.client].name
        yield f"{entry.name}: {name} left in round {item.round_index + 1} of {outcome.application.rounds}"


def _write(
    out: Path,
    request: Request,
    parts: Sequence[_Part],
    played: Sequence[Played],
    quotas: Sequence[SharedQuota],
) -> list[Path]:
    """The files of single applications with seconds of the fleet's clock, and two more."""
    names = [part.entry.name for part in parts]
    rows = [
        (name, part.entry.policy, item.start_s, item.begun_s, item.end_s, item.outcome.cost_usd)
        for name, part, item in zip(names, parts, played, strict=True)
    ]
    header = ("application", "policy", "start_s", "begun_s", "end_s", "cost_usd")
    write_csv(out / "applications.csv", header, rows)
    steps = [
        (quota.name, time_s, used, quota.limit) for quota in quotas for time_s, used in usage(quota, played)
    ]
    write_csv(out / "quotas.csv", ("quota", "from_s", "used", "limit"), steps)
    written = write_results(
        out,
        {name: item.outcome for name, item in zip(names, played, strict=True)},
        None,
        request.seed,
        request.where,
        what="application",
        begun_s={name: item.begun_s for name, item in zip(names, played, strict=True)},
    )
    return [out / "applications.csv", out / "quotas.csv", *written]
