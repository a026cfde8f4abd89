"""What EC2 announces through EventBridge and an SQS queue: interruptions to come, and advice to leave.

A message stays in its queue until its instance's report was handed out and the next one is asked for: a
scheduler that is killed in between finds it there again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from pydantic import BaseModel, Field, ValidationError

from spotweave.deploy.model.instances import InstanceReport
from spotweave.deploy.providers.aws.clients import Clients, aws_errors
from spotweave.deploy.providers.aws.config import batches
from spotweave.deploy.providers.cloud import QUEUE_S, Calls

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
NOTICE_S = 120.0
"""Seconds from a warning to the end, which the event itself does not name.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
"""
_BATCH = 10  # the most that SQS gives and takes at once
_CALLS_MOST = 20
_HIDDEN_S = 20  # a message that was received and not deleted comes again after this
_KEPT_S = 3600.0
log = structlog.get_logger("aws")


class _Detail(BaseModel):
    instance_id: str = Field(alias="instance-id")
    action: str = Field("terminate", alias="instance-action")


class _Event(BaseModel):
    kind: str = Field(alias="detail-type")
    time: datetime
    detail: _Detail

    @property
    def time_s(self) -> float:
        return (self.time if self.time.tzinfo else self.time.replace(tzinfo=UTC)).timestamp()

    @property
    def ends_s(self) -> float | None:
        """When the instance will be ended (epoch seconds); None for advice. Hibernation begins at once."""
        if self.kind != WARNING:
            return None
        return self.time_s + (0.0 if self.detail.action == "hibernate" else NOTICE_S)


@dataclass(frozen=True)
class _Told:
    """What was announced of one instance, and when it was last heard of."""

    notice_s: float | None
    rebalance: bool
    heard_s: float


@dataclass(frozen=True)
class _Message:
    """One that is still in its queue; no instance: it says nothing of interest."""

    handle: str
    instance_id: str | None
    time_s: float


class Notices:
    """Reads one queue per region, given by its name or URL. Safe to use from several threads.

    A message about an instance that is unknown `visible_within_s` after it is somebody else's.
    """

    def __init__(
        self, clients: Clients, calls: Calls, queues: Mapping[str, str], visible_within_s: float
    ) -> None:
        self._clients, self._calls, self._queues = clients, calls, queues
        self._visible_within_s = visible_within_s
        self._urls: dict[str, str] = {}
        self._held: dict[str, list[_Message]] = {}
        self._told: dict[str, _Told] = {}
        self._handed: set[str] = set()
        self._lock = threading.Lock()

    def added(self, reports: Sequence[InstanceReport], now_s: float) -> list[InstanceReport]:
        """Reports, with what was announced of their instances until now.

        One call for each region, and more only where there is more to read or to delete. A queue that cannot
        be read is a warning: nodes hear of their interruption also by themselves.
        """
        with self._lock:
            asks = {region: partial(self._turn, region, self._done(region, now_s)) for region in self._queues}
            answers, silent = self._calls.each("events queue", QUEUE_S, asks)
            for region, messages in answers.items():
                self._held[region] = [self._heard(one, region, now_s) for one in messages]
            for region, error in silent.items():
                log.warning("announced interruptions unknown", region=region, error=str(error))
            self._told = {name: told for name, told in self._told.items() if now_s - told.heard_s < _KEPT_S}
            self._handed = {one.instance_id for one in reports}
            return [self._with(report) for report in reports]

    def _with(self, report: InstanceReport) -> InstanceReport:
        told = self._told.get(report.instance_id)
        if told is None:
            return report
        return replace(report, notice_s=told.notice_s, rebalance=told.rebalance)

    def _done(self, region: str, now_s: float) -> list[str]:
        """Handles of what was handed out, and of what nobody here needs; the rest comes again."""
        return [
            one.handle
            for one in self._held.pop(region, [])
            if one.instance_id is None
            or one.instance_id in self._handed
            or now_s - one.time_s > self._visible_within_s
        ]

    def _turn(self, region: str, done: Sequence[str]) -> list[dict[str, Any]]:
        """Delete what is done, and receive what is there. Raises ProviderError."""
        messages: list[dict[str, Any]] = []
        with aws_errors(f"aws {region}: events queue"):
            sqs = self._clients.get("sqs", region)
            url = self._urls.get(region) or queue_url(sqs, self._queues[region])
            self._urls[region] = url
            for batch in batches(done, _BATCH):
                entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(batch)]
                sqs.delete_message_batch(QueueUrl=url, Entries=entries)
            for _ in range(_CALLS_MOST):
                answer = sqs.receive_message(
                    QueueUrl=url, MaxNumberOfMessages=_BATCH, VisibilityTimeout=_HIDDEN_S
                )
                messages += answer.get("Messages", [])
                if len(answer.get("Messages", [])) < _BATCH:
                    break
        return messages

    def _heard(self, message: Mapping[str, Any], region: str, now_s: float) -> _Message:
        handle = str(message["ReceiptHandle"])
        try:
            event = _Event.model_validate_json(message["Body"])
        except ValidationError as error:
            log.warning("a message that is no event of EC2", region=region, errors=error.error_count())
            return _Message(handle, None, now_s)
        if event.kind not in (WARNING, REBALANCE):
            return _Message(handle, None, now_s)
        name = event.detail.instance_id
        before = self._told.get(name)
        notice_s = event.ends_s
        if notice_s is None and before is not None:
            notice_s = before.notice_s
        hint = event.kind == REBALANCE or (before is not None and before.rebalance)
        self._told[name] = _Told(notice_s, hint, now_s)
        return _Message(handle, name, event.time_s)


def queue_url(sqs: Any, queue: str) -> str:
    """The URL of a queue that is given by its name, or by its URL."""
    return queue if "://" in queue else str(sqs.get_queue_url(QueueName=queue)["QueueUrl"])
