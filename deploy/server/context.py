"""Objects that the routes share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anyio import CapacityLimiter

from deploy.model.clock import Clock
from deploy.model.instances import Offer
from deploy.model.jobs import JobSpec
from deploy.runners.base import Printed
from deploy.server.access import Access
from deploy.server.deciding import Deciders
from deploy.server.middleware import Metrics
from deploy.server.settings import ServerSettings
from deploy.store.jobs import Job
from deploy.store.store import Store


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
    """One service.

    Attributes:
        settings: of the service.
        clock: the time.
        deciders: the policies.
        store: None: a policy server that only decides.
        scheduler: None: there is none in this process.
        access: who may do what.
        metrics: for Prometheus.
        closing: set when the service ends, so that streams end too.
        urgent: threads for what must not queue behind the requests of others.
    """

    settings: ServerSettings
    clock: Clock
    deciders: Deciders
    store: Store | None
    scheduler: SchedulerView | None
    access: Access
    metrics: Metrics
    closing: threading.Event = field(default_factory=threading.Event)
    urgent: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(4))
