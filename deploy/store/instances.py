"""Instances: what was asked of providers, what they say became of it, and what it is charged from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlalchemy import Select, func, insert, select, update

from spotweave.deploy.billing import Stop, micro_usd_hour, micro_usd_month
from spotweave.deploy.model.instances import InstanceReport, InstanceState, Offer
from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.model.tasks import Node
from spotweave.deploy.security.keys import DeploymentKey
from spotweave.deploy.store.database import Database, Decoded, Noun
from spotweave.deploy.store.errors import StoreError
from spotweave.deploy.store.prices import forget_charges, open_segments, write_charges
from spotweave.deploy.store.schema import instances

_ORDER = list(InstanceState)
_GONE = InstanceState.TERMINATED.value
LIVE = tuple(state.value for state in InstanceState if state.live)
"""Asked for one by one, unlike "not terminated", these are found by the index."""


@dataclass(frozen=True)
class Instance:
    """An instance as the store knows it."""

    instance_id: str
    offer: Offer  # as it was when the instance was asked for
    key: TaskKey
    client_token: str  # that it was or will be launched with
    node_token: str = field(repr=False)  # secret for its node agent. Never logged.
    state: InstanceState  # RUNNING once its node agent has answered
    requested_s: float
    provider_id: str | None = None  # the provider's name for it; None before it is known
    address: str = ""  # of its node, "" before it is known
    port: int = 0  # of its node agent, 0 before it is known
    launched_s: float | None = None  # when billing began
    ready_s: float | None = None  # when its node agent first answered
    ended_s: float | None = None  # when billing ended, or when it was given up
    by_provider: bool = False
    notice_s: float | None = None
    rebalance: bool = False
    stops: tuple[Stop, ...] = ()  # when it was stopped, by time
    # of its node agent, PEM, "" before it is known. The first one that is told of stays.
    certificate: str = field(default="", repr=False)

    @cached_property
    def node(self) -> Node:
        """As runners want it."""
        return Node(
            instance_id=self.instance_id,
            address=self.address,
            port=self.port,
            token=self.node_token,
            vcpus=self.offer.vcpus,
            memory_gib=self.offer.memory_gib,
            notice_s=self.notice_s,
            certificate=self.certificate,
            speed=self.offer.speed,
            region=self.offer.region,
            gpus=self.offer.gpus,
        )


def all_have_notice(held: Sequence[Instance]) -> bool:
    """Whether the end of all of them has been announced: the place is as good as lost."""
    return bool(held) and all(one.notice_s is not None for one in held)


class Instances(Noun):
    """The instances of a store. Writing needs a transaction."""

    def __init__(self, database: Database, key: DeploymentKey) -> None:
        super().__init__(database)
        self._key, self._instance = key, Decoded(instances, self._decode)

    def request(
        self,
        instance_id: str,
        offer: Offer,
        key: TaskKey,
        *,
        client_token: str,
        node_token: str,
        now_s: float,
    ) -> Instance:
        """Keep what a provider will be asked for, before it is.

        Raises StoreError if the instance id or the client token is taken.
        """
        connection = self._database.writing
        # Refused now, not when the instance is charged.
        micro_usd_hour(offer.price_usd_hour)
        micro_usd_hour(offer.on_demand_usd_hour)
        micro_usd_month(offer.disk_usd_month)
        kept = asdict(offer)
        # They are in `prices`.
        del kept["price_steps"]
        taken = (instances.c.instance_id == instance_id) | (instances.c.client_token == client_token)
        if connection.execute(select(instances.c.instance_id).where(taken)).first():
            raise StoreError(
                f"instance {instance_id} or its client token is there already: they are used once"
            )
        connection.execute(
            insert(instances).values(
                instance_id=instance_id,
                provider=offer.provider,
                client_token=client_token,
                offer_id=offer.offer_id,
                offer=kept,
                job_id=key.job_id,
                task=key.task,
                state=InstanceState.REQUESTED.value,
                node_token=self._key.seal(node_token, _context(instance_id)),
                requested_s=now_s,
            )
        )
        return self.get(instance_id)

    def get(self, instance_id: str) -> Instance:
        """One instance. Raises NotFoundError."""
        query = self._instance.rows.where(instances.c.instance_id == instance_id)
        missing = f"there is no instance {instance_id!r}: see spotweave instances"
        return self._instance(self._database.found(query, missing))

    def by_client_token(self, client_token: str) -> Instance | None:
        """The one that was asked for with this token, if there is one."""
        row = self._database.read_one(self._instance.rows.where(instances.c.client_token == client_token))
        return None if row is None else self._instance(row)

    def gone(self, client_tokens: Collection[str]) -> Mapping[str, Instance]:
        """Instances with these tokens that are believed to have ended, by token."""
        query = self._instance.rows.where(instances.c.state == _GONE)
        rows = self._database.read_named(query, instances.c.client_token, client_tokens)
        return {row.client_token: self._instance(row) for row in rows}

    def live(self, provider: str | None = None) -> Sequence[Instance]:
        """All that exist, or may, in the order of their requests; of one provider, or of all."""
        query = self._instance.rows.where(instances.c.state.in_(LIVE))
        live = self._database.recall.read("live", ("instances",), lambda: self._in_order(query))
        return [one for one in live if provider is None or one.offer.provider == provider]

    def in_states(self, states: Collection[InstanceState]) -> Sequence[Instance]:
        """All in one of these states, in the order of their requests."""
        return self._in_order(
            self._instance.rows.where(instances.c.state.in_([state.value for state in states]))
        )

    def _in_order(self, query: Select[Any]) -> Sequence[Instance]:
        ordered = query.order_by(instances.c.requested_s, instances.c.instance_id)
        return [self._instance(row) for row in self._database.read_all(ordered)]

    def named(self, names: Collection[str]) -> Mapping[str, Instance]:
        """These, by their ids; what there is not is left out."""
        return self._database.named(self._instance, names)

    def used(self) -> Mapping[str, int]:
        """Number of live instances by offer."""
        query = select(instances.c.offer_id, func.count()).where(instances.c.state.in_(LIVE))
        rows = self._database.read_all(query.group_by(instances.c.offer_id))
        return {row.offer_id: int(row[1]) for row in rows}

    def of_job(self, job_id: str) -> Sequence[Instance]:
        """All that a job ever had, in the order of their requests."""
        return self._in_order(self._instance.rows.where(instances.c.job_id == job_id))

    def latest(self, limit: int, *, live: bool = False) -> Sequence[Instance]:
        """The latest `limit` asked for, the newest first; `live`: of those that exist, or may."""
        order = (instances.c.requested_s.desc(), instances.c.instance_id.desc())
        query = self._instance.rows.order_by(*order).limit(limit)
        if live:
            query = query.where(instances.c.state.in_(LIVE))
        return [self._instance(row) for row in self._database.read_all(query)]

    def report(self, instance_id: str, report: InstanceReport, now_s: float) -> Instance:
        """Keep what its provider says, and charge it if it has ended.

        States never go back, whatever order reports come in; RUNNING waits for `ready`. Of an ended instance
        the provider may still correct when and by whom it was ended: it is charged again. Only what was given
        up as never launched, and was launched, has not ended before the provider says so. Returns the
        instance as it is now. Raises NotFoundError if there is no such instance.
        """
        return self.told(self.get(instance_id), report, now_s)

    def told(self, known: Instance, report: InstanceReport, now_s: float, *, found: bool = False) -> Instance:
        """As `report`, of an instance as it was read in this transaction; what is not new is not written.

        `found`: it was believed to have ended and has not; it is billed as if that had never been
        believed.
        """
        told = report.state
        if told is InstanceState.RUNNING and known.ready_s is None:
            told = InstanceState.LAUNCHING
        given_up = known.state is InstanceState.TERMINATED and (found or known.launched_s is None)
        state = told if given_up else max(known.state, told, key=_ORDER.index)
        ended = None
        if state is InstanceState.TERMINATED:
            ended = report.ended_s if report.ended_s is not None else known.ended_s
            ended = max(report.launched_s, now_s if ended is None else ended)
        launched_s = report.launched_s
        if known.launched_s is not None and _began(known):
            # A later one is that of another start.
            launched_s = min(launched_s, known.launched_s)
        values: dict[str, Any] = {
            "provider_id": report.instance_id,
            "state": state,
            "address": report.address or known.address,
            "port": report.node_port or known.port,
            "launched_s": launched_s,
            "ended_s": ended,
            "by_provider": report.by_provider or (known.by_provider and not given_up),
            "notice_s": known.notice_s if report.notice_s is None else report.notice_s,
            "rebalance": report.rebalance or known.rebalance,
            "stops": _stops(known, report, now_s),
            "certificate": known.certificate or report.certificate,
        }
        if all(getattr(known, name) == value for name, value in values.items()):
            return known
        now_known = replace(known, **values)
        self._write(known.instance_id, {**values, "state": state.value})
        longer = known.ended_s is not None and (ended is None or ended > known.ended_s)
        if known.launched_s != launched_s or longer:
            open_segments(self._database.writing, known.instance_id, known.offer, launched_s)
        if ended is None and known.ended_s is not None:
            forget_charges(self._database.writing, known.instance_id)
        if ended is not None and _billed_from(known) != _billed_from(now_known):
            write_charges(self._database.writing, known.instance_id)
        return now_known

    def joined(self, instance_id: str, certificate: str) -> bool:
        """Pin a node's certificate. False if it is known by another one. Raises NotFoundError."""
        known = self.get(instance_id)
        if not known.certificate:
            self._write(instance_id, {"certificate": certificate})
        return known.certificate in ("", certificate)

    def ready(self, instance_id: str, now_s: float) -> bool:
        """Note a node's first answer. False if it was known, or is ending. Raises NotFoundError."""
        known = self.get(instance_id)
        if known.ready_s is not None or known.state not in (InstanceState.REQUESTED, InstanceState.LAUNCHING):
            return False
        self._write(instance_id, {"ready_s": now_s, "state": InstanceState.RUNNING.value})
        return True

    def stopping(self, instance_id: str) -> bool:
        """We are ending it. False if that was known, or it has ended. Raises NotFoundError."""
        known = self.get(instance_id)
        if known.state in (InstanceState.STOPPING, InstanceState.TERMINATED):
            return False
        self._write(instance_id, {"state": InstanceState.STOPPING.value})
        return True

    def noticed(self, instance_id: str, notice_s: float | None, *, rebalance: bool = False) -> bool:
        """Note an interruption notice or a hint to leave. False if it is not new, or comes after the end.

        Raises NotFoundError if there is no such instance.
        """
        known = self.get(instance_id)
        if known.state is InstanceState.TERMINATED:
            return False
        notice = known.notice_s if notice_s is None else notice_s
        hint = known.rebalance or rebalance
        if (notice, hint) == (known.notice_s, known.rebalance):
            return False
        self._write(instance_id, {"notice_s": notice, "rebalance": hint})
        return True

    def ended(self, instance_id: str, ended_s: float) -> bool:
        """Book an end that its provider did not bring about, and charge the instance.

        False if that was known. Raises NotFoundError.
        """
        known = self.get(instance_id)
        if known.state is InstanceState.TERMINATED:
            return False
        if known.launched_s is not None:
            ended_s = max(known.launched_s, ended_s)
        self._write(instance_id, {"state": _GONE, "ended_s": ended_s})
        write_charges(self._database.writing, instance_id)
        return True

    def _write(self, instance_id: str, values: dict[str, object]) -> None:
        statement = update(instances).where(instances.c.instance_id == instance_id).values(**values)
        self._database.writing.execute(statement)

    def _decode(self, values: dict[str, Any]) -> Instance:
        del values["offer_id"], values["provider"], values["max_price_usd_hour"]
        values["key"] = TaskKey(values.pop("job_id"), values.pop("task"))
        values["offer"] = Offer(**values["offer"])
        values["state"] = InstanceState(values["state"])
        values["stops"] = tuple(Stop(*stop) for stop in values["stops"])
        values["node_token"] = self._key.unseal(bytes(values["node_token"]), _context(values["instance_id"]))
        return Instance(**values)


def _stops(known: Instance, report: InstanceReport, now_s: float) -> tuple[Stop, ...]:
    """An instance's stops after a report, which tells of the latest start, and of a stop that lasts."""
    started_s, stops = report.launched_s, known.stops
    if known.launched_s is not None and _began(known):
        started_s = known.launched_s if stops else min(known.launched_s, started_s)
    before, latest = stops[:-1], stops[-1] if stops else None
    if latest is not None and latest.started_s is not None:
        started_s, before, latest = latest.started_s, stops, None
    # From here on: its latest start that is known, the stops before that, and one after it.
    if report.launched_s < started_s:
        # As it was before that start: answers of a cloud may be older than earlier ones.
        return stops
    if report.launched_s > started_s:
        # A stop that nobody saw began at some time: it ran on, as far as we know.
        stopped_s = report.launched_s if latest is None else min(latest.stopped_s, report.launched_s)
        before, latest = (*before, Stop(stopped_s, report.launched_s)), None
        started_s = report.launched_s
    if report.state is InstanceState.STOPPED or report.stopped_s is not None:
        seen_s = now_s if latest is None else latest.stopped_s
        stopped_s = seen_s if report.stopped_s is None else report.stopped_s
        return (*before, Stop(max(started_s, stopped_s), None))
    if report.state in (InstanceState.LAUNCHING, InstanceState.RUNNING) or latest is None:
        return before
    return (*before, latest)


def _began(instance: Instance) -> bool:
    return instance.ready_s is not None or bool(instance.stops)


def _billed_from(instance: Instance) -> tuple[object, ...]:
    return instance.launched_s, instance.ended_s, instance.by_provider, instance.stops


def _context(instance_id: str) -> str:
    return f"instance {instance_id}"
