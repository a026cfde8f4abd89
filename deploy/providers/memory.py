"""What a provider remembers of its instances: it bridges the delays with which its cloud tells of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from deploy.model.instances import InstanceReport, InstanceState

KEPT_S = 3600.0
"""Ended instances are reported for so long, even where the cloud forgets them sooner."""


@dataclass(frozen=True)
class Known:
    """An instance.

    Attributes:
        report: what was last seen of it.
        deployment: by its tag.
        region: where it is.
        first_s: when it was first seen or rented (epoch seconds).
        seen_s: when the cloud last listed it; None: it never did.
    """

    report: InstanceReport
    deployment: str
    region: str
    first_s: float
    seen_s: float | None


class Memory:
    """Safe to use from several threads.

    Args:
        visible_within_s: a new instance may stay unlisted so long.
        interrupted: is told of an instance whose provider is newly seen to have ended it, and the time.
    """

    def __init__(self, visible_within_s: float, interrupted: Callable[[InstanceReport, float], None]) -> None:
        self._visible_within_s = visible_within_s
        self._interrupted = interrupted
        self._known: dict[str, Known] = {}
        self._lock = threading.RLock()

    def get(self, name: str) -> Known | None:
        """By the provider's name."""
        with self._lock:
            return self._known.get(name)

    def by_token(self, deployment: str, token: str) -> InstanceReport | None:
        """The instance that this client token gave."""
        with self._lock:
            for known in self._known.values():
                if known.deployment == deployment and known.report.client_token == token:
                    return known.report
        return None

    def running(self, deployment: str, offer_id: str) -> int:
        """Instances of an offer that take its quota."""
        with self._lock:
            return sum(
                known.deployment == deployment
                and known.report.offer_id == offer_id
                and known.report.state in (InstanceState.LAUNCHING, InstanceState.RUNNING)
                for known in self._known.values()
            )

    def ended(self) -> dict[str, float]:
        """When instances ended (epoch seconds), of those that have."""
        with self._lock:
            ends = ((name, known.report.ended_s) for name, known in self._known.items())
            return {name: ended_s for name, ended_s in ends if ended_s is not None}

    def of(self, deployment: str) -> list[Known]:
        """All of a deployment."""
        with self._lock:
            return [known for known in self._known.values() if known.deployment == deployment]

    def remember(
        self, report: InstanceReport, deployment: str, region: str, now_s: float, *, seen: bool
    ) -> None:
        """It was listed, or rented."""
        with self._lock:
            before = self._known.get(report.instance_id)
            first_s = now_s if before is None else before.first_s
            seen_s = now_s if seen else None if before is None else before.seen_s
            self._known[report.instance_id] = Known(report, deployment, region, first_s, seen_s)
        was_live = before is None or before.report.state.live
        if report.by_provider and was_live and report.ended_s is not None:
            self._interrupted(report, now_s)

    def bridged(
        self, reports: Iterable[InstanceReport], deployment: str, silent: Collection[str], now_s: float
    ) -> list[InstanceReport]:
        """What the cloud says, and what it does not say yet or no more.

        Args:
            reports: of the deployment's instances in regions that answered.
            deployment: its id.
            silent: regions that did not.
            now_s: epoch seconds.
        """
        found = {one.instance_id: one for one in reports}
        with self._lock:
            for name, known in list(self._known.items()):
                if known.deployment != deployment or name in found or known.region in silent:
                    continue
                report = known.report
                new = known.seen_s is None and now_s - known.first_s < self._visible_within_s
                ended = report.ended_s is not None and now_s - report.ended_s < KEPT_S
                if new or ended:
                    found[name] = report
                else:
                    del self._known[name]
        return list(found.values())

    def stopping(self, names: Iterable[str]) -> bool:
        """They were told to end. Returns whether any was thought to live until now."""
        lived = False
        with self._lock:
            for name in names:
                known = self._known.get(name)
                if known is not None and known.report.state.live:
                    report = replace(known.report, state=InstanceState.STOPPING, node_port=0)
                    self._known[name] = replace(known, report=report)
                    lived = True
        return lived

    def is_new(self, name: str, now_s: float) -> bool:
        """Whether it was rented so lately that the cloud may not know it everywhere."""
        known = self.get(name)
        return known is not None and now_s - known.first_s < self._visible_within_s
