"""What Compute Engine lists: instances by label, and the operations that tell how instances began and ended.

Both in one aggregated list of all zones, 500 to a page. Where a region does not answer, that list fails as a
whole: then each configured zone is asked by itself, so that the others are still seen. That takes many calls,
and calls are counted for the whole project; so a region that did not answer is not asked again for `AGAIN_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from google.cloud import compute_v1

from spotweave.deploy.model.instances import InstanceReport, InstanceState, Market
from spotweave.deploy.node.metadata import NOTICE_S
from spotweave.deploy.providers.base import ProviderError, ThrottledError
from spotweave.deploy.providers.cloud import AGAIN_S, LOOK_S, Calls
from spotweave.deploy.providers.config import Place
from spotweave.deploy.providers.gcp.clients import RETRY, TIMEOUT_S, Clients, gcp_errors
from spotweave.deploy.providers.gcp.config import LABELS, TOKEN, GcpConfig, token_of

PAGE = 500  # the most that Compute Engine gives
PREEMPTED = "compute.instances.preempted"
ENDS = ("delete", PREEMPTED)  # after them an instance may be listed no more
STOPS = ("stop", PREEMPTED)
_KINDS = ("insert", "start", "stop", *ENDS)
_ALL = "all"


@dataclass(frozen=True)
class Done:
    """An operation on an instance; not ended while `ended_s` is None, well where `error` is."""

    kind: str
    target: str
    began_s: float
    ended_s: float | None
    error: tuple[str, str] | None


class Listing:
    """Asks for lists; safe to use from several threads."""

    def __init__(
        self, clients: Clients, calls: Calls, config: GcpConfig, now: Callable[[], float] = time.time
    ) -> None:
        self._clients, self._calls, self._config, self._now = clients, calls, config, now
        self._silent: dict[str, tuple[float, ProviderError]] = {}
        """Until when a region is not asked, and why; replaced as a whole."""

    def instances(self, key: str, value: str) -> tuple[list[compute_v1.Instance], dict[str, ProviderError]]:
        """Every instance with a label, and regions that did not answer. Raises ProviderError if none did."""
        wanted = {"filter": f"labels.{key}={value}", "max_results": PAGE, "project": self._config.project}
        pages = self._clients.get("Instances")

        def aggregated() -> list[compute_v1.Instance]:
            asked = compute_v1.AggregatedListInstancesRequest(**wanted)
            found = pages.aggregated_list(asked, retry=RETRY, timeout=TIMEOUT_S)
            return [one for _, scope in found for one in scope.instances]

        def zonal(zone: str) -> list[compute_v1.Instance]:
            asked = compute_v1.ListInstancesRequest(zone=zone, **wanted)
            return list(pages.list(asked, retry=RETRY, timeout=TIMEOUT_S))

        return self._ask("instances", aggregated, zonal)

    def operations(self, enough: Callable[[Done], bool]) -> tuple[list[Done], dict[str, ProviderError]]:
        """Operations on instances, the latest first, and the regions that did not answer.

        `enough`: whether with this one, which is still in the list, all is known that is needed. Raises
        ProviderError if no region answered.
        """
        kinds = " OR ".join(f'(operationType="{kind}")' for kind in _KINDS)
        wanted = {
            "filter": kinds,
            "order_by": "creationTimestamp desc",
            "max_results": PAGE,
            "project": self._config.project,
        }

        def aggregated() -> list[Done]:
            asked = compute_v1.AggregatedListGlobalOperationsRequest(**wanted)
            found = self._clients.get("GlobalOperations").aggregated_list(
                asked, retry=RETRY, timeout=TIMEOUT_S
            )
            read: list[Done] = []
            for page in found.pages:
                part = [done(one) for scope in page.items.values() for one in scope.operations]
                read += part
                if any(enough(one) for one in sorted(part, key=lambda one: -one.began_s)):
                    break
            return read

        def zonal(zone: str) -> list[Done]:
            asked = compute_v1.ListZoneOperationsRequest(zone=zone, **wanted)
            found = self._clients.get("ZoneOperations").list(asked, retry=RETRY, timeout=TIMEOUT_S)
            read: list[Done] = []
            for one in map(done, found):
                read.append(one)
                if enough(one):
                    break
            return read

        return self._ask("operations", aggregated, zonal)

    def _ask(
        self, kind: str, aggregated: Callable[[], list[Any]], zonal: Callable[[str], list[Any]]
    ) -> tuple[list[Any], dict[str, ProviderError]]:
        def everywhere() -> list[Any]:
            with gcp_errors(f"gcp: {kind}"):
                return aggregated()

        def region(zones: Iterable[str]) -> list[Any]:
            found = []
            for zone in zones:
                with gcp_errors(f"gcp {zone}: {kind}"):
                    found += zonal(zone)
            return found

        now_s = self._now()
        left = {name: (until_s, error) for name, (until_s, error) in self._silent.items() if now_s < until_s}
        if not left:
            try:
                return self._calls.one(kind, LOOK_S, _ALL, everywhere), {}
            except ThrottledError:
                # More calls would keep those waiting that end instances.
                raise
            except ProviderError as error:
                failed = error
        asks = {
            name: partial(region, part.zones)
            for name, part in self._config.regions.items()
            if name not in left
        }
        answers, silent = self._calls.each(kind, LOOK_S, asks)
        if not answers:
            # Nothing tells one region from another: the next look asks for all of them at once again.
            self._silent = {}
            raise next(iter(silent.values())) if left else failed
        self._silent = left | {name: (now_s + AGAIN_S, error) for name, error in silent.items()}
        found = [one for answer in answers.values() for one in answer]
        return found, {name: error for name, (_, error) in self._silent.items()}


def done(one: compute_v1.Operation) -> Done:
    """An operation as the client gives it."""
    errors = [(entry.code, entry.message) for entry in one.error.errors] if one.error else []
    finished = one.status == compute_v1.Operation.Status.DONE
    return Done(
        kind=one.operation_type,
        target=one.target_link.rpartition("/")[2],
        began_s=epoch_s(one.insert_time or one.start_time),
        ended_s=epoch_s(one.end_time) if finished and one.end_time else None,
        error=errors[0] if finished and errors else None,
    )


def epoch_s(text: str) -> float:
    """Parse Compute Engine's timestamp into Unix time."""
    return datetime.fromisoformat(text).timestamp()


def by_target(found: Iterable[Done]) -> Mapping[str, list[Done]]:
    """Operations by the name of their instance."""
    by_name: dict[str, list[Done]] = {}
    for one in found:
        by_name.setdefault(one.target, []).append(one)
    return by_name


# Instances as Compute Engine describes them, as the scheduler wants them.


_STATES = {
    "PENDING": InstanceState.LAUNCHING,
    "PROVISIONING": InstanceState.LAUNCHING,
    "STAGING": InstanceState.LAUNCHING,
    "RUNNING": InstanceState.RUNNING,
    "REPAIRING": InstanceState.RUNNING,
    "PENDING_STOP": InstanceState.RUNNING,
    "STOPPING": InstanceState.RUNNING,
    "SUSPENDING": InstanceState.RUNNING,
    "SUSPENDED": InstanceState.STOPPED,
    "TERMINATED": InstanceState.STOPPED,
}
"""TERMINATED is what is stopped and may be started again; what is deleted is listed no more. What is being
stopped is paid for until it is."""


def described(one: compute_v1.Instance, config: GcpConfig, operations: Sequence[Done]) -> InstanceReport:
    """An instance that is listed, and the operations on it."""
    labels = dict(one.labels)
    zone = one.zone.rpartition("/")[2]
    market: Market = "spot" if one.scheduling.provisioning_model == "SPOT" else "on_demand"
    place = Place(config.provider, config.region_of(zone), zone, _type(one), market)
    state = _STATES[one.status]
    begun_s = epoch_s(one.last_start_timestamp or one.creation_timestamp)
    preempted = [op for op in operations if op.kind == PREEMPTED and op.began_s >= begun_s]
    notice_s = None
    if any(op.kind == "delete" and op.error is None for op in operations):
        state = InstanceState.STOPPING
    elif preempted and one.status == "STOPPING":
        # In its last seconds work is saved.
        notice_s = preempted[0].began_s + NOTICE_S
    address = _address(one, public=config.node.address == "public")
    report = InstanceReport(
        instance_id=one.name,
        client_token=labels.get(TOKEN, ""),
        offer_id=place.offer_id,
        address=address,
        node_port=config.node.port if address and state is InstanceState.RUNNING else 0,
        state=state,
        launched_s=begun_s,
        by_provider=bool(preempted) and state is InstanceState.STOPPED,
        notice_s=notice_s,
        stopped_s=(
            epoch_s(one.last_stop_timestamp)
            if state is InstanceState.STOPPED and one.last_stop_timestamp
            else None
        ),
        tags={name: labels.get(key, "") for name, key in LABELS.items()},
    )
    if state is InstanceState.STOPPING:
        # By the time that it is gone, the list of operations may begin after its stop.
        return replace(report, stopped_s=_stopped_s(report, operations))
    return report


def ended(
    name: str, deployment: str, places: Mapping[str, Place], operations: Sequence[Done]
) -> InstanceReport | None:
    """An instance of a deployment that is listed no more, from its operations; None if they do not tell."""
    found = token_of(name, deployment, places)
    inserts = [op for op in operations if op.kind == "insert"]
    if found is None or not inserts:
        return None
    launched_s = min(op.began_s for op in inserts)
    token, place = found
    report = InstanceReport(
        instance_id=name,
        client_token=token,
        offer_id=place.offer_id,
        address="",
        node_port=0,
        state=InstanceState.TERMINATED,
        launched_s=launched_s,
        tags={"deployment": deployment, "job_id": "", "task": ""},
    )
    return at_end(report, operations)


def at_end(report: InstanceReport, operations: Sequence[Done]) -> InstanceReport | None:
    """The same of an instance that is listed no more; None while its operations do not tell of its end."""
    failed = any(op.kind == "insert" and op.error is not None for op in operations)
    ends = [op.ended_s for op in operations if op.kind in ENDS and op.ended_s is not None]
    if not failed and not ends:
        return None
    # What failed never ran, and costs nothing.
    ended_s = report.launched_s if failed else max(report.launched_s, *ends)
    stopped_s = _stopped_s(report, operations)
    return replace(
        report,
        state=InstanceState.TERMINATED,
        # Whether we remember it or not, the same is told of it.
        address="",
        node_port=0,
        tags={"deployment": report.tags.get("deployment", ""), "job_id": "", "task": ""},
        ended_s=ended_s,
        by_provider=failed or any(op.kind == PREEMPTED for op in operations),
        notice_s=None,
        stopped_s=stopped_s if stopped_s is not None and stopped_s < ended_s else None,
    )


def _stopped_s(report: InstanceReport, operations: Sequence[Done]) -> float | None:
    """Since when it did not run any more, though it was there; None: it ran, as far as is told.

    https://cloud.google.com/compute/docs/reference/rest/v1/instances/stop
    """
    started_s = max((op.began_s for op in operations if op.kind == "start"), default=report.launched_s)
    stops = [report.stopped_s, *(op.ended_s for op in operations if op.kind in STOPS and op.error is None)]
    return min((at_s for at_s in stops if at_s is not None and at_s > started_s), default=None)


def _type(one: compute_v1.Instance) -> str:
    machine = one.machine_type.rpartition("/")[2]
    built_in = machine.startswith(("a2-", "a3-", "g2-", "g4-"))
    return machine + "".join(
        f"+{gpu.accelerator_count}x{gpu.accelerator_type.rpartition('/')[2]}"
        for gpu in one.guest_accelerators
        if not built_in
    )


def _address(one: compute_v1.Instance, *, public: bool) -> str:
    for network in one.network_interfaces:
        if not public:
            return str(network.network_i_p)
        for access in network.access_configs:
            return str(access.nat_i_p)
    return ""
