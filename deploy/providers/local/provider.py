"""The local provider: an instance is a group of processes on this machine with a loopback address of its own.

There is no daemon. Each instance carries its own fate (`machine.py`) and so lives, is warned and is
interrupted while the scheduler is down; `describe` finds out what really runs and finishes whatever a killed
process left half done. So SIGKILL of the scheduler, or of an instance's init, is harmless at any moment.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spotweave.deploy.model.gpus import model_of
from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest, Offer
from spotweave.deploy.node import procfs
from spotweave.deploy.node.gpus import GpuWatch, Seen
from spotweave.deploy.providers.base import CapacityError, ProviderError, QuotaError, RefusedError
from spotweave.deploy.providers.local.config import FIRST_LOOK_S, LocalConfig, LocalOffer
from spotweave.deploy.providers.local.records import (
    Fate,
    Init,
    Record,
    StateError,
    StateFolder,
    box_name,
    instance_id,
    loopback_address,
)
from spotweave.deploy.security.keys import node_pair
from spotweave.deploy.security.sandbox import Sandbox

_BIRTH_S = 30.0
_OVERDUE_S = 5.0
"""An instance that did not switch itself off by then is stuck (stopped, say), and is switched off."""
_AGENT_START_S = 1.0


@contextmanager
def _reported() -> Iterator[None]:
    """Trouble with the state folder is trouble with the provider."""
    try:
        yield
    except (OSError, StateError) as error:
        raise ProviderError(f"local provider: {error}") from error


class LocalProvider:
    """Implements `Provider` on this machine, with a sandbox around the node agents; see there.

    Making one raises ConfigError if a recording cannot be used, ProviderError if the state folder cannot.
    """

    name = "local"

    def __init__(self, config: LocalConfig, sandbox: Sandbox | None = None) -> None:
        self._config, self._sandbox = config, sandbox
        self._offers = {offer.offer_id: offer for offer in config.offers}
        self._recordings = config.recordings()
        self._gpus = GpuWatch() if any(offer.gpus for offer in config.offers) else None
        self._state = StateFolder(config.state_folder)
        self._origin_s = self._open()

    @_reported()
    def _open(self) -> float:
        self._state.create()
        with self._state.locked():
            return self._state.origin_s()

    def close(self) -> None:
        """Stop looking for GPUs."""
        if self._gpus is not None:
            self._gpus.close()

    def offers(self) -> Sequence[Offer]:
        """All offers, as the recordings say for now. History is in real seconds, as compressed."""
        now = time.time()
        return [self._offer(offer, now) for offer in self._config.offers]

    @_reported()
    def launch(self, request: LaunchRequest) -> InstanceReport:
        """Switch an instance on; see `Provider.launch`."""
        offer = self._offers.get(request.offer_id)
        if offer is None:
            raise RefusedError(f"the local provider has no offer {request.offer_id!r}")
        name = instance_id(request.client_token)
        with self._state.locked():
            known = self._state.find(name)
            if known is not None:
                if known.offer_id != request.offer_id:
                    raise RefusedError(f"this client token was used for {known.offer_id}")
                # The intent of someone who was killed before the birth is no instance yet.
                if known.ended_s is not None or self._born(known):
                    return self._report(known)
            now = time.time()
            others = [record for record in self._running() if record.instance_id != name]
            self._admit(offer, others, now)
            record = self._new_record(name, offer, request, others, now)
            self._state.save(record)
            self._switch_on(record)
            return self._report(record)

    @_reported()
    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """What really is, after finishing what others left half done; see `Provider.describe`."""
        with self._state.locked():
            now = time.time()
            records = [self._settled(record, now) for record in self._state.records()]
            self._end_leaked(records)
            reports = [
                self._report(record)
                for record in records
                if record.deployment == deployment and self._state.init(record.instance_id) is not None
            ]
            for record in records:
                if record.ended_s is not None and record.ended_s + self._config.keep_s < now:
                    self._state.archive(record)
        return reports

    @_reported()
    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Switch instances off; when this returns, nothing of them is left. See `Provider.terminate`."""
        for name in instance_ids:
            self._end(name, by_provider=False)

    @_reported()
    def interrupt(self, name: str, notice_s: float | None) -> None:
        """Take an instance away, with so much notice (None: without), to rehearse. Raises RefusedError."""
        with self._state.locked():
            record = self._state.find(name)
            if record is None or self._settled(record, time.time()).ended_s is not None:
                raise RefusedError(f"instance {name!r} does not run")
            if notice_s is not None:
                now = time.time()
                fate = Fate(rebalance_s=now, notice_s=now, kill_s=now + notice_s)
                self._state.save(record.changed(fate=fate))
                return
        self._end(name, by_provider=True)

    # What the market says.

    def _position_s(self, now: float) -> float:
        return self._config.trace_start_s + max(0.0, now - self._origin_s) * self._config.time_factor

    def _offer(self, offer: LocalOffer, now: float) -> Offer:
        recording, at = self._recordings[offer.offer_id], self._position_s(now)
        history, available = recording.history(at), recording.available(at)
        reason = "" if available else "no capacity in the recording now"
        lacks = offer.lacks(seen := self._seen())
        gpus, reason = ([], lacks) if lacks else (offer.gpus_of(seen), reason)
        price, factor = recording.price_usd_hour(at), self._config.time_factor
        spot = offer.market == "spot"
        return Offer(
            offer_id=offer.offer_id,
            **vars(offer.place),
            vcpus=offer.vcpus,
            memory_gib=offer.memory_gib,
            gpu=model_of(gpus[0].name) if gpus else None,
            gpus=offer.gpus if gpus else 0,
            gpu_memory_gib=min((one.memory_gib for one in gpus), default=0.0),
            speed=offer.speed,
            price_usd_hour=price,
            on_demand_usd_hour=price if offer.on_demand_usd_hour is None else offer.on_demand_usd_hour,
            available=not reason,
            quota=offer.quota,
            up_ratio=history.up_ratio,
            spell_s=history.spell_s / factor,
            mean_up_s=history.mean_up_s / factor if spot else 0.0,
            launch_s=offer.launch_s + _AGENT_START_S,
            notice_s=offer.notice_s if spot else 0.0,
            free_first_s=offer.free_first_s,
            billing_minimum_s=offer.billing_minimum_s,
            reason=reason,
        )

    def _seen(self) -> Seen | None:
        return None if self._gpus is None else self._gpus.seen(FIRST_LOOK_S)

    def _admit(self, offer: LocalOffer, others: Sequence[Record], now: float) -> None:
        if not self._recordings[offer.offer_id].available(self._position_s(now)):
            raise CapacityError(f"{offer.offer_id}: no capacity in the recording now")
        if sum(record.offer_id == offer.offer_id for record in others) >= offer.quota:
            raise QuotaError(f"{offer.offer_id}: {offer.quota} instances run, the quota")
        if lacks := offer.lacks(self._seen()):
            raise CapacityError(f"{offer.offer_id}: {lacks}")

    def _fate(self, offer: LocalOffer, request: LaunchRequest, now: float) -> Fate:
        if offer.market != "spot":
            return Fate()
        at = self._position_s(now)
        end = self._recordings[offer.offer_id].ends_s(at)
        if end is None:
            return Fate()
        end_s = now + (end - at) / self._config.time_factor
        # Chance that depends on nothing but the seed and the request: a repeated launch changes nothing.
        draw = hashlib.sha256(f"{self._config.seed}:{request.client_token}".encode()).digest()
        if random.Random(draw).random() < offer.notice_missed:
            return Fate(kill_s=end_s)
        return Fate(rebalance_s=end_s - offer.rebalance_s, notice_s=end_s, kill_s=end_s + offer.notice_s)

    # What runs.

    def _new_record(
        self, name: str, offer: LocalOffer, request: LaunchRequest, others: Sequence[Record], now: float
    ) -> Record:
        cores = sorted(os.sched_getaffinity(0))
        load = {core: sum(core in record.cpus for record in others) for core in cores}
        cpus = sorted(cores, key=lambda core: (load[core], core))[: offer.vcpus]
        shared = Counter(uuid for record in others for uuid in record.gpus)
        gpus = sorted(offer.gpus_of(self._seen()), key=lambda one: (shared[one.uuid], one.minor))
        pair = node_pair()
        return Record(
            instance_id=name,
            **vars(request),
            certificate=pair.certificate,
            key=pair.key,
            address=loopback_address({record.address for record in others}),
            requested_s=now,
            launch_s=offer.launch_s,
            cpus=tuple(sorted(cpus)),
            imds_poll_s=self._config.imds_poll_s,
            fate=self._fate(offer, request, now),
            gpus={one.uuid: one.minor for one in gpus[: offer.gpus]},
        )

    def _switch_on(self, record: Record) -> None:
        name = record.instance_id
        if self._sandbox is not None:
            self._state.save_sandbox(name, self._sandbox)
        log = os.open(self._state.folder(name) / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            birth = subprocess.run(
                [sys.executable, "-m", "spotweave.deploy.providers.local.init", str(self._state.path), name],
                env=self._state.environment(name, self._state.workdir(name)),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                timeout=_BIRTH_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ProviderError(f"instance {name} did not start in {_BIRTH_S:.0f} s") from error
        finally:
            os.close(log)
        # A scheduler that was killed in a launch may have begun this birth a moment before.
        if birth.returncode != 0 and not self._born(record):
            raise ProviderError(
                f"instance {name} did not start: {self._state.folder(name)}/agent.log says why"
            )

    def _running(self) -> list[Record]:
        """Records of what runs, for quotas and addresses. Call it locked."""
        now = time.time()
        records = [self._settled(record, now) for record in self._state.records()]
        return [record for record in records if record.ended_s is None and self._born(record)]

    def _born(self, record: Record) -> bool:
        """Whether there is, or was, an instance; waits for one whose birth has begun. Call it locked."""
        end = time.monotonic() + _BIRTH_S
        while self._state.init(record.instance_id) is None:
            if record.instance_id not in self._state.processes(list(procfs.scan())):
                # Its birth may have ended between the two looks.
                return self._state.init(record.instance_id) is not None
            if time.monotonic() > end:
                raise ProviderError(f"instance {record.instance_id} hangs in its start")
            time.sleep(0.02)
        return True

    def _settled(self, record: Record, now: float) -> Record:
        """The record after finishing what was begun, and after noticing what died. Call it locked."""
        if record.ended_s is not None:
            return record
        init = self._state.init(record.instance_id)
        if init is None and record.ending_s is None:
            return record
        died_s: float | None = None
        if record.ending_s is None and init is not None:
            if not init.alive:
                # Its init was killed, or crashed: to its tenant, a failure of the host.
                died_s = self._state.last_sign_s(record.instance_id) or init.launched_s
            elif record.fate.kill_s is None or now < record.fate.kill_s + _OVERDUE_S:
                return record
            record = record.changed(ending_s=died_s or now, by_provider=True)
            self._state.save(record)
        self._destroy(record.instance_id)
        record = record.changed(ended_s=died_s or time.time())
        self._state.save(record)
        return record

    def _end(self, name: str, *, by_provider: bool) -> None:
        with self._state.locked():
            record = self._state.find(name)
            if record is None:
                return
            record = self._settled(record, time.time())
            if record.ended_s is None:
                record = record.changed(ending_s=time.time(), by_provider=by_provider)
                self._state.save(record)
                self._settled(record, time.time())

    def _destroy(self, name: str) -> None:
        """SIGKILL everything of an instance. Raises ProviderError if something is left."""
        init = self._state.init(name)
        if init is not None:
            # Stopped, it starts nothing more and still adopts what its children leave behind.
            procfs.send(init.pid, init.start_ticks, signal.SIGSTOP)
        spare = init.pid if init is not None and init.alive else 0
        gone = procfs.kill_all(
            lambda seen: [one for one in self._state.members(name, seen) if one.pid != spare]
        ) and procfs.kill_all(lambda seen: self._state.members(name, seen))
        if not gone:
            raise ProviderError(
                f"instance {name}: some of its processes cannot be killed; trying again may help"
            )
        if self._sandbox is not None:
            self._sandbox.over(box_name(name))

    def _end_leaked(self, records: Sequence[Record]) -> None:
        """Kill what bears the tag of an instance that ended, or never was."""
        alive = {record.instance_id for record in records if record.ended_s is None}
        for name in self._state.processes(list(procfs.scan())):
            if name not in alive:
                self._destroy(name)

    def _report(self, record: Record) -> InstanceReport:
        init: Init | None = self._state.init(record.instance_id)
        port = self._state.agent_port(record.instance_id) if init is not None else 0
        if record.ended_s is not None:
            state = InstanceState.TERMINATED
        elif record.ending_s is not None:
            state = InstanceState.STOPPING
        else:
            state = InstanceState.RUNNING if port else InstanceState.LAUNCHING
        now, fate = time.time(), record.fate
        return InstanceReport(
            instance_id=record.instance_id,
            client_token=record.client_token,
            offer_id=record.offer_id,
            address=record.address,
            node_port=port,
            state=state,
            launched_s=init.launched_s if init is not None else record.requested_s,
            ended_s=record.ended_s,
            by_provider=record.by_provider,
            notice_s=fate.kill_s if fate.notice_s is not None and now >= fate.notice_s else None,
            rebalance=fate.rebalance_s is not None and now >= fate.rebalance_s,
            certificate=record.certificate,
            tags={"deployment": record.deployment, "job_id": record.job_id, "task": record.task},
        )
