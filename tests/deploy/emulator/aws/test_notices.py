"""Warnings and advice come through EventBridge and SQS to the scheduler, and none is lost or read in vain."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.sqs.models import sqs_backends

from deploy.emulator.aws.world import REBALANCE, WARNING
from deploy.emulator.faults import FaultConfig
from deploy.model.instances import InstanceReport, InstanceState
from deploy.providers.aws import notices
from deploy.providers.aws.check import check
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.notices import _Event
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.config import Finding
from deploy.yamlfile import ConfigError
from tests.deploy.emulator.aws.conftest import SPOT, ZONE, Cloud, renting
from tests.deploy.emulator.traces import START_S
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request


def listening(cloud: Cloud, **changes: Any) -> AwsProvider:
    """A provider that reads the queue."""
    return cloud.provider(**{"events_queue": "events", "visible_within_s": 120.0, **changes})


@pytest.fixture
def provider(cloud: Cloud) -> AwsProvider:
    return listening(cloud)


@pytest.fixture
def name(provider: AwsProvider) -> str:
    """Of an instance."""
    return provider.launch(request(SPOT)).instance_id


def seen(provider: AwsProvider, name: str) -> InstanceReport:
    return by_id(provider.describe(DEPLOYMENT))[name]


def queue(cloud: Cloud) -> tuple[Any, str]:
    sqs = cloud.session.client("sqs")
    return sqs, sqs.get_queue_url(QueueName="events")["QueueUrl"]


def waiting(cloud: Cloud) -> int:
    """Messages in the queue, hidden ones too."""
    sqs, url = queue(cloud)
    kinds = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=kinds)["Attributes"]
    return sum(int(value) for value in found.values())


def announce(cloud: Cloud, name: str, kind: str, **detail: str) -> None:
    events = cloud.emulator.world.events
    now_s = cloud.emulator.world.clock.now()
    events.send("us-east-1", kind, name, ZONE, now_s, detail)


def _reappear(cloud: Cloud) -> None:
    """moto hides messages by the machine's own clock, as long as asked: let that time pass."""
    for queue in sqs_backends[DEFAULT_ACCOUNT_ID]["us-east-1"].queues.values():
        for message in queue._messages:
            message.visible_at -= 20_000


def test_a_market_that_takes_an_instance_is_heard_of_before(recorded: Callable[..., Cloud]) -> None:
    cloud = recorded([(0, 1, 0.2), (1000, 0, 0.2), (2000, 1, 0.2)])
    provider = listening(cloud)
    name = provider.launch(request(SPOT)).instance_id
    # The end is at 1000, its notice 120 s before, the advice 60 s before that.
    ends_s = START_S + 1000
    for seconds, told in (
        (819, (None, False)),
        (1, (None, True)),
        (60, (ends_s, True)),
        (100, (ends_s, True)),
    ):
        cloud.after(seconds)
        report = seen(provider, name)
        assert report.state is InstanceState.RUNNING
        assert (report.notice_s, report.rebalance) == told
    cloud.after(25)
    ended = seen(provider, name)
    assert (ended.state, ended.by_provider, ended.ended_s) == (InstanceState.TERMINATED, True, ends_s)


def test_the_end_is_right_where_an_emulated_notice_is_shorter(make: Callable[..., Cloud]) -> None:
    cloud = make(notice_s=12.0)
    provider = listening(cloud)
    name = provider.launch(request(SPOT)).instance_id
    cloud.after(50)
    cloud.emulator.world.interrupt(cloud.emulator.world.instances[name], 12.0)
    assert seen(provider, name).notice_s == START_S + 62


def test_hibernation_begins_with_its_warning(cloud: Cloud, provider: AwsProvider, name: str) -> None:
    announce(cloud, name, WARNING, **{"instance-action": "hibernate"})
    assert seen(provider, name).notice_s == START_S


def test_who_dies_after_reading_reads_again(cloud: Cloud, provider: AwsProvider, name: str) -> None:
    announce(cloud, name, REBALANCE)
    assert seen(provider, name).rebalance
    left = waiting(cloud)
    assert left > 0
    _reappear(cloud)
    second = listening(cloud)
    assert seen(second, name).rebalance
    assert waiting(cloud) == left
    assert seen(second, name).rebalance
    assert waiting(cloud) == 0


def test_what_concerns_an_instance_not_seen_yet_waits_for_it(cloud: Cloud, provider: AwsProvider) -> None:
    announce(cloud, "i-0123456789abcdef0", WARNING)
    for seconds, left in ((121, 1), (0, 0)):
        provider.describe(DEPLOYMENT)
        provider.describe(DEPLOYMENT)
        assert waiting(cloud) == left
        cloud.after(seconds)
        _reappear(cloud)


def test_a_message_that_is_no_event_is_read_once(cloud: Cloud, provider: AwsProvider, name: str) -> None:
    sqs, url = queue(cloud)
    for body in ("{", "[]", json.dumps({"detail-type": WARNING})):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    announce(cloud, name, REBALANCE)
    assert seen(provider, name).rebalance
    provider.describe(DEPLOYMENT)
    assert waiting(cloud) == 0


def test_a_pass_asks_once_unless_there_is_more(cloud: Cloud, provider: AwsProvider, name: str) -> None:
    provider.describe(DEPLOYMENT)
    provider.describe(DEPLOYMENT)
    cloud.emulator.calls.clear()
    provider.describe(DEPLOYMENT)
    assert cloud.emulator.calls == {"ec2:DescribeInstances": 1, "sqs:ReceiveMessage": 1}
    for _ in range(25):
        announce(cloud, name, REBALANCE)
    cloud.emulator.calls.clear()
    provider.describe(DEPLOYMENT)
    assert cloud.emulator.calls["sqs:ReceiveMessage"] == 3
    provider.describe(DEPLOYMENT)
    assert cloud.emulator.calls["sqs:DeleteMessageBatch"] == 3
    assert waiting(cloud) == 0


@pytest.mark.real
def test_a_flood_does_not_hold_a_pass_up(
    cloud: Cloud, provider: AwsProvider, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bound on calls, not that on their time, which a busy machine may reach first.
    monkeypatch.setattr(notices, "QUEUE_S", 300.0)
    for _ in range(230):
        announce(cloud, name, REBALANCE)
    cloud.emulator.calls.clear()
    provider.describe(DEPLOYMENT)
    assert cloud.emulator.calls["sqs:ReceiveMessage"] == 20
    provider.describe(DEPLOYMENT)
    provider.describe(DEPLOYMENT)
    assert waiting(cloud) == 0


def test_a_queue_that_fails_ends_no_pass(cloud: Cloud, provider: AwsProvider, name: str) -> None:
    assert seen(listening(cloud, events_queue="gone"), name).notice_s is None
    announce(cloud, name, REBALANCE)
    cloud.emulator.faults.change(FaultConfig(error=1.0, actions=("sqs:*",)))
    assert not seen(provider, name).rebalance
    cloud.emulator.faults.change(FaultConfig())
    assert seen(provider, name).rebalance


def test_without_a_queue_nothing_is_read(cloud: Cloud) -> None:
    listening(cloud, events_queue=None).describe(DEPLOYMENT)
    assert not any(name.startswith("sqs:") for name in cloud.emulator.calls)


def test_check_says_which_queue_or_rule_is_missing(cloud: Cloud) -> None:
    def found(queue: Any) -> Finding:
        findings = check(renting(events_queue=queue), cloud.session)
        return next(one for one in findings if one.what == "us-east-1 events queue")

    assert (found("events").verdict, found("events").text) == ("right", "events, from the rule events")
    assert found("gone").verdict == "missing"
    assert found("gone").text.startswith("gone is not there: create it")
    url = cloud.session.client("sqs").create_queue(QueueName="alone")["QueueUrl"]
    assert "no rule of EventBridge" in found(url).text
    assert found({"us-east-1": url}).verdict == "missing"
    assert found(None).verdict == "right"


def test_queues_of_a_configuration(tmp_path: Path) -> None:
    one = renting().model_dump(mode="json")
    region = one["regions"]["us-east-1"]
    west = {**region, "subnets": {"us-west-2a": region["subnets"][ZONE]}}

    def load(queue: Any) -> AwsConfig:
        content = {**one, "regions": {"us-east-1": region, "us-west-2": west}, "events_queue": queue}
        path = tmp_path / "aws.yaml"
        path.write_text(json.dumps(content))
        return AwsConfig.load(path)

    assert load("events").queues == {"us-east-1": "events", "us-west-2": "events"}
    by_region = {"us-east-1": "a", "us-west-2": "https://sqs.us-west-2.amazonaws.com/1/b"}
    assert load(by_region).queues == by_region
    assert load(None).queues == {}
    for wrong, word in (
        ({"us-east-1": "a"}, "one for each of us-east-1, us-west-2"),
        ("https://sqs.us-west-2.amazonaws.com/1/b", "a URL is of one region"),
        ("a queue", "events_queue"),
    ):
        with pytest.raises(ConfigError, match=word):
            load(wrong)


def test_times_of_events_are_utc() -> None:
    event = {"detail-type": WARNING, "detail": {"instance-id": "i-1"}}
    expected = datetime(2026, 1, 31, 12, 2, tzinfo=UTC).timestamp()
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00"):
        assert _Event.model_validate({**event, "time": text}).ends_s == expected
