"""Instances as Compute Engine describes them, as the scheduler wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from google.cloud import compute_v1

from spotweave.deploy.model.instances import InstanceReport, InstanceState, Market
from spotweave.deploy.node.metadata import NOTICE_S
from spotweave.deploy.providers.config import Place
from spotweave.deploy.providers.gcp.config import LABELS, TOKEN, GcpConfig, token_of
from spotweave.deploy.providers.gcp.listing import ENDS, PREEMPTED, STOPS, Done, epoch_s

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
