"""Machines that are switched on and off by commands, `ssh root@{address} spotweave-node on` say."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated

from pydantic import Field

from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest, Offer
from spotweave.deploy.node.config import AgentConfig
from spotweave.deploy.providers.base import CapacityError, ProviderError, RefusedError
from spotweave.deploy.providers.config import Place, ProviderConfig
from spotweave.deploy.security.keys import node_pair
from spotweave.deploy.security.sandbox import Sandbox
from spotweave.files import write_bytes

PLACE = Place("lab", region="lab", zone="", instance_type="machine", market="owned")
KEPT_S = 3600.0  # ended instances are reported for an hour


class LabConfig(ProviderConfig):
    """The keys of lab.yaml; an unknown one is refused."""

    addresses: Annotated[tuple[str, ...], Field(min_length=1)]
    on: tuple[str, ...]
    off: tuple[str, ...]
    vcpus: int = 4
    memory_gib: float = 16.0

    def open(self, sandbox: Sandbox | None = None) -> Lab:
        """See ProviderConfig."""
        return Lab(self)

    def places(self) -> dict[str, Place]:
        """See ProviderConfig."""
        return {PLACE.offer_id: PLACE}


class Lab:
    """A Provider; what it rented is in a file."""

    name = "lab"

    def __init__(self, config: LabConfig) -> None:
        assert config.state_folder is not None  # a deployment always sets it
        self._config = config
        config.state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = config.state_folder / "instances.json"

    def offers(self) -> Sequence[Offer]:
        """See Provider."""
        free = len(self._free(self._reports()))
        offer = Offer(
            PLACE.offer_id,
            "lab",
            PLACE.region,
            "",
            PLACE.instance_type,
            PLACE.market,
            vcpus=self._config.vcpus,
            memory_gib=self._config.memory_gib,
            gpu=None,
            speed=1.0,
            price_usd_hour=0.0,
            on_demand_usd_hour=0.0,
            quota=len(self._config.addresses),
            available=free > 0,
            reason="" if free else "all machines are on",
        )
        return [offer]

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """See Provider."""
        reports = self._reports()
        for known in reports:  # the same token never gives a second instance
            if known.client_token == request.client_token:
                return known
        if request.offer_id != PLACE.offer_id:
            raise RefusedError(f"lab: no offer {request.offer_id!r}")
        if not (free := self._free(reports)):
            raise CapacityError("lab: all machines are on")
        pair = node_pair()
        agent = AgentConfig(
            instance_id=f"lab-{request.client_token}",
            address=free[0],
            port=7070,
            workdir="/var/lib/spotweave",
            token=request.node_token,
            certificate=pair.certificate,
            key=pair.key,
        )
        report = InstanceReport(
            agent.instance_id,
            request.client_token,
            request.offer_id,
            free[0],
            7070,
            InstanceState.RUNNING,
            launched_s=time.time(),
            certificate=pair.certificate,
            tags={"deployment": request.deployment, "job_id": request.job_id, "task": request.task},
        )
        self._save([*reports, report])  # before the machine is on: whatever happens, it is switched off again
        self._run(self._config.on, free[0], agent.model_dump_json())
        return report

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """See Provider."""
        return [one for one in self._reports() if one.tags["deployment"] == deployment]

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """See Provider."""
        for one in self._reports():
            if one.instance_id in instance_ids and one.ended_s is None:
                self._run(self._config.off, one.address)
                ended = replace(one, state=InstanceState.TERMINATED, ended_s=time.time())
                self._save([ended if other == one else other for other in self._reports()])

    def close(self) -> None:
        """See Provider."""

    def _free(self, reports: Sequence[InstanceReport]) -> list[str]:
        taken = {one.address for one in reports if one.ended_s is None}
        return [address for address in self._config.addresses if address not in taken]

    def _reports(self) -> list[InstanceReport]:
        kept = json.loads(self._file.read_text()) if self._file.exists() else []
        reports = [InstanceReport(**{**one, "state": InstanceState(one["state"])}) for one in kept]
        return [one for one in reports if one.ended_s is None or one.ended_s > time.time() - KEPT_S]

    def _save(self, reports: Sequence[InstanceReport]) -> None:
        write_bytes(self._file, json.dumps([asdict(one) for one in reports]).encode(), mode=0o600)

    def _run(self, command: Sequence[str], address: str, given: str = "") -> None:
        words = [word.format(address=address) for word in command]
        done = subprocess.run(words, input=given, text=True, capture_output=True, check=False, timeout=60)
        if done.returncode != 0:
            raise ProviderError(f"lab: {words[0]} failed for {address}: {done.stderr.strip()}")
