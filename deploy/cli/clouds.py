"""`spotweave clouds` and `offers`: what an account lacks, what runs there unneeded, what it could rent."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from spotweave.deploy.cli.queries import print_json, print_list
from spotweave.deploy.cli.tables import Columns, ago, available, gpus, show, usd
from spotweave.deploy.clouds import (
    count_offers,
    findings,
    line,
    open_providers,
    policy_scope,
    require_all_rented,
)
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.model.gpus import is_model
from spotweave.deploy.model.instances import InstanceReport, InstanceState
from spotweave.deploy.providers.base import PartialError, Provider, ProviderError
from spotweave.deploy.scheduler.placing import kept_for_moves
from spotweave.deploy.service import open_store
from spotweave.deploy.store.database import Database
from spotweave.deploy.store.errors import StoreError
from spotweave.deploy.store.store import Store
from spotweave.mistakes import EXIT_USER, say

_ROLES = ("scheduler", "operator", "node")
_MARKS = {"right": "ok     ", "missing": "MISSING", "unknown": "unknown"}


def check(path: Path) -> None:
    """Print a line for each thing.

    Raises ValueError if the file cannot be used, typer.Exit (`EXIT_USER`) if something is missing.
    """
    config = DeploymentConfig.load(path)
    for name, count in count_offers(config).items():
        print(f"{_MARKS['right']}  {name}: {count} offers are configured", flush=True)
    lacking = 0
    for name, one in findings(config):
        lacking += one.verdict == "missing"
        print(f"{_MARKS[one.verdict]}  {line(name, one)}", flush=True)
    if lacking:
        raise typer.Exit(EXIT_USER)


def policy(path: Path, role: str, account: str | None) -> None:
    """Print the IAM policy of a role for this deployment, as JSON. Its database is made if there is none.

    Raises ValueError (one line) if there is no such role, or the deployment's file cannot be used.
    """
    from spotweave.deploy.providers.aws import policies

    if role not in _ROLES:
        raise ValueError(f"a policy for the role {role!r}: expected {', '.join(_ROLES)}")
    if account is not None and not re.fullmatch(r"\d{12}", account):
        raise ValueError(f"account {account!r}: expected 12 digits, see aws sts get-caller-identity")
    config = DeploymentConfig.load(path)
    # The id of a deployment comes with its database.
    open_store(config, time.time()).close()
    scope = policy_scope(config, account)
    if role == "operator":
        made = policies.operator()
    else:
        made = (policies.scheduler if role == "scheduler" else policies.node)(scope)
    print(json.dumps(made, indent=2))
    size, most = policies.length(made), policies.LONGEST
    if size > most:
        say(f"warning: IAM takes {most} characters within a role, this has {size}: attach it in parts")


def sweep(path: Path, *, yes: bool, as_json: bool) -> None:
    """List what runs and no job needs; end it if `yes`.

    Raises ValueError (one line) if the deployment was never served, or is being served, or a provider cannot
    be asked.
    """
    config = DeploymentConfig.load(path)
    require_served(config, path)
    with open_store(config, time.time()) as store, ExitStack() as opened:
        try:
            opened.callback(store.lead().release)
        except StoreError as error:
            raise StoreError(
                f"{path} is being served, and its scheduler ends what no job needs: see spotweave instances"
            ) from error
        require_all_rented(config, store.instances.live())
        providers = open_providers(config)
        for provider in providers.values():
            opened.callback(provider.close)
        try:
            _sweep(store, providers, yes=yes, as_json=as_json)
        except ProviderError as error:
            raise ValueError(str(error)) from error


def require_served(config: DeploymentConfig, path: Path) -> None:
    """Raise StoreError if a deployment has no database yet, rather than make one."""
    database = Database(config.store_url)
    database.close()
    if database.missing:
        raise StoreError(f"there is no database {database.path}: nothing was served with {path} yet")


def _sweep(store: Store, providers: Mapping[str, Provider], *, yes: bool, as_json: bool) -> None:
    found = [
        (name, report, why)
        for name, provider in providers.items()
        for report, why in unneeded(store, provider)
    ]
    if as_json:
        for name, report, why in found:
            facts = {"instance_id": report.instance_id, "offer_id": report.offer_id, "reason": why}
            print_json({"provider": name, **facts, "launched_s": report.launched_s, "ended": yes})
    else:
        columns: Columns = {
            "INSTANCE": lambda one: one[1].instance_id,
            "OFFER": lambda one: one[1].offer_id,
            "FOR": lambda one: " ".join(filter(None, map(one[1].tags.get, ("job_id", "task")))) or "-",
            "LAUNCHED>": lambda one: ago(one[1].launched_s),
            "WHY*": lambda one: one[2],
        }
        show(found, columns, "nothing runs that no job needs")
    if found and not yes:
        say(f"{len(found)} would be ended: say so with --yes")
        return
    for name, provider in providers.items():
        ids = [report.instance_id for owner, report, _ in found if owner == name]
        if ids:
            provider.terminate(ids)
            with store.transaction():
                for one in ids:
                    data = {"provider": name, "provider_id": one}
                    store.events.add("instance.orphan_ended", time.time(), data)
    if found:
        say(f"{len(found)} are being ended")


def unneeded(store: Store, provider: Provider) -> list[tuple[InstanceReport, str]]:
    """What runs at a provider under the deployment's tag without a job that needs it, and why that is so.

    Regions that do not answer are a line on stderr. Raises ProviderError if it cannot be asked now.
    """
    needed = {name for task in store.tasks.placed() for name in task.instances} | kept_for_moves(store)
    known = {one.client_token: one for one in store.instances.live()}
    found = []
    try:
        reports = provider.describe(store.deployment_id)
    except PartialError as error:
        say(f"warning: {error}: what runs there is not known")
        reports = error.reports
    for report in reports:
        if report.state in (InstanceState.STOPPING, InstanceState.TERMINATED):
            continue
        one = known.get(report.client_token)
        if one is None:
            found.append((report, "the store does not know it, or knows that it has ended"))
        elif one.instance_id not in needed:
            found.append((report, f"job {one.key.job_id} does not need it"))
    return found


Row = dict[str, Any]  # facts of an `Offer`; asked of the clouds themselves, also `ProviderConfig.details`


def offers_of_clouds(path: Path, gpu: str | None, max_price_usd_hour: float | None) -> list[Row]:
    """Ask all providers of a deployment for their offers now.

    Raises ValueError (one line) if the deployment's file or one of them cannot be used.
    """
    rows: list[Row] = []
    config = DeploymentConfig.load(path)
    try:
        for name, provider in open_providers(config).items():
            with closing(provider):
                offers = [one for one in provider.offers() if _wanted(asdict(one), gpu, max_price_usd_hour)]
                details, notes = config.rented()[name].details(provider, offers, time.time())
            for line in notes:
                say(f"note: {line}")
            rows += [{**asdict(one), **details.get(one.offer_id, {})} for one in offers]
    except ProviderError as error:
        raise ValueError(str(error)) from error
    return rows


def _wanted(row: Row, gpu: str | None, max_price_usd_hour: float | None) -> bool:
    return (gpu is None or (row["gpu"] is not None and is_model(gpu, row["gpu"]))) and (
        max_price_usd_hour is None or row["price_usd_hour"] <= max_price_usd_hour
    )


def offers(rows: Sequence[Row], gpu: str | None, max_price_usd_hour: float | None, *, as_json: bool) -> None:
    """Print those that are wanted of what is offered: what can be rented first, the cheapest first."""
    wanted = [one for one in rows if _wanted(one, gpu, max_price_usd_hour)]
    wanted.sort(key=lambda one: (not one["available"], one["price_usd_hour"], one["offer_id"]))
    columns: Columns = {
        "ZONE": lambda one: one["zone"] or one["region"] or "-",
        "TYPE": lambda one: one["instance_type"],
        "MARKET": lambda one: one["market"],
        "GPU": gpus,
        "USD/H>": lambda one: usd(one["price_usd_hour"]),
        "ON DEMAND>": lambda one: usd(one["on_demand_usd_hour"]),
        "UP>": lambda one: f"{100 * one['up_ratio']:.0f} %",
        "SCORE>": lambda one: str(one.get("score") or "-"),
        "AVAILABLE*": available,
    }
    print_list(wanted, columns, "no offer matches", as_json=as_json)
