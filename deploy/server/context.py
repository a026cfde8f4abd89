"""Settings of the service, and the objects that its routes share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from anyio import CapacityLimiter

from spotweave.deploy.model.clock import Clock
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import JobSpec
from spotweave.deploy.runners.base import Printed
from spotweave.deploy.server.access import Access
from spotweave.deploy.server.admission import MIB, Quotas
from spotweave.deploy.server.connections import ConnectionLimits
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.middleware import Metrics
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.envs.simulation.guards import GuardsConfig


@dataclass(frozen=True)
class ServerSettings:
    """How the service behaves."""

    jobs: Path | None = None  # folder of the jobs' own folders; needed where jobs are taken
    # whether requests need an access token. Without, everyone who reaches the port may do everything, and
    # only requests that come to a loopback name are answered.
    tokens: bool = True
    window: int = 8  # tasks that a market policy sees at once (J)
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    decision_bytes: int = 2 * MIB  # largest body of a request for decisions
    job_bytes: int = 32 * MIB  # largest body of a submission, its files (base64) included
    job_files: int = 500  # at most this many files of a job
    body_within_s: float = 60.0  # a body must have arrived after so long
    pass_within_s: float = 60.0  # the service is ready only if the scheduler's latest pass is no older
    streams: int = 32  # at most this many followers of events at once,
    streams_each: int = 8  # and this many of one caller
    poll_s: float = 0.5  # between two looks at the store for new events
    # a follower hears something at least so often; its token is checked again then
    heartbeat_s: float = 15.0
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    quotas: Quotas = field(default_factory=Quotas)
    # of bodies of submissions that are read and handled at once; of one submitter half of it, or one body
    bodies_bytes: int = 64 * MIB


class SchedulerView(Protocol):
    """The scheduler, as far as the service needs it. Called from several threads."""

    def offers(self) -> Sequence[Offer]:
        """Offers of all providers that answered in the latest pass."""

    def last_pass_s(self) -> float | None:
        """Epoch seconds of the latest pass that ended; None before the first."""

    def check(self, spec: JobSpec, folder: str) -> None:
        """Refuse a job that its runner could not run. Raises ValueError (one line)."""

    def log(self, job: Job, name: str, attempt: int, offset: int, most_bytes: int) -> Printed:
        """Part of what an attempt has printed; see `Runner.log`. Raises ValueError (one line)."""


@dataclass(frozen=True)
class Context:
    """One service."""

    settings: ServerSettings
    clock: Clock
    deciders: Deciders
    store: Store | None  # None: a policy server that only decides
    scheduler: SchedulerView | None  # None: there is none in this process
    access: Access
    metrics: Metrics
    # set when the service ends, so that streams end too
    closing: threading.Event = field(default_factory=threading.Event)
    # threads for what must not queue behind the requests of others
    urgent: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(4))
