"""Instances that are processes: user data, the metadata service, and an end without leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
import yaml
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.sqs.models import sqs_backends

from spotweave.deploy.emulator.aws.world import REBALANCE, WARNING
from spotweave.deploy.emulator.config import FaultConfig
from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest
from spotweave.deploy.node import procfs
from spotweave.deploy.node.api import NodeStatus
from spotweave.deploy.node.client import NodeClient, NodeUnreachable
from spotweave.deploy.node.metadata import Metadata
from spotweave.deploy.providers.aws import notices
from spotweave.deploy.providers.aws.check import check
from spotweave.deploy.providers.aws.notices import _Event
from spotweave.deploy.providers.aws.provider import AwsProvider
from spotweave.deploy.providers.config import Finding
from spotweave.deploy.providers.userdata import user_data
from tests.deploy.emulator.aws.conftest import IMAGE, POOL, SPOT, TYPE, ZONE, Cloud, renting
from tests.deploy.emulator.transport import START_S
from tests.deploy.node.agents import ROOT, wait_until
from tests.deploy.node.test_join import NODE_TOKEN, services
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request


@pytest.fixture
def scheduler() -> Iterator[Any]:
    with services([]) as server:
        yield server


class Running:
    """An emulator in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = {
            "state": "state",
            "machines": "processes",
            "launch_s": 0.0,
            "shutdown_s": 0.0,
            "images": [{"image_id": IMAGE}],
            "pools": [POOL],
        }
        (folder / "aws.yaml").write_text(yaml.safe_dump(config))
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "spotweave.cli", "emulate", "aws", "--port", "0", "--config"]
        self.process = subprocess.Popen(
            [*command, str(self.folder / "aws.yaml")], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().removeprefix("AWS_ENDPOINT_URL=")
        keys = {"aws_access_key_id": "AKIAEMULATED00000000", "aws_secret_access_key": "x"}
        self.ec2 = boto3.client("ec2", "us-east-1", endpoint_url=self.url, **keys)

    def run(self, **about: Any) -> str:
        """The id of one instance."""
        given = {"ImageId": IMAGE, "InstanceType": TYPE, "MinCount": 1, "MaxCount": 1, **about}
        return str(self.ec2.run_instances(**given)["Instances"][0]["InstanceId"])

    def see(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ec2.describe_instances(InstanceIds=[name])["Reservations"][0]
        return dict(found["Instances"][0])

    def post(self, name: str, body: dict[str, Any]) -> None:
        httpx.post(f"{self.url}/_emulator/{name}", json=body).raise_for_status()

    def left(self) -> list[procfs.Process]:
        state = str((self.folder / "state").resolve())
        return [one for one in procfs.scan() if one.alive and state in procfs.environment(one.pid).values()]

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    emulator = Running(tmp_path)
    yield emulator
    if emulator.process.poll() is None:
        emulator.stop()
    assert emulator.left() == []


def launch(running: Running, scheduler: Any) -> str:
    node = renting(node={"scheduler_url": scheduler.url, "imds_poll_s": 0.2, "setup": ["true"]}).node
    asked = LaunchRequest("token-1", SPOT, "test", "job", "main", NODE_TOKEN)
    told = user_data(asked, node, None, "ec2", 16384)
    return running.run(UserData=told, InstanceMarketOptions={"MarketType": "spot"})


def heartbeat(address: str, scheduler: Any) -> NodeStatus | None:
    if not scheduler.asked:
        return None
    client = NodeClient(address, 7070, NODE_TOKEN, scheduler.asked[-1]["certificate"])
    try:
        return client.status()
    except NodeUnreachable:
        return None


@pytest.mark.real
def test_a_node_agent_starts_is_warned_and_is_gone(running: Running, scheduler: Any) -> None:
    name = launch(running, scheduler)
    address = running.see(name)["PrivateIpAddress"]
    wait_until(lambda: heartbeat(address, scheduler))
    status = heartbeat(address, scheduler)
    assert status is not None
    assert (status.instance_id, status.address, status.notice_s) == (name, address, None)
    assert status.workdir.startswith(str(running.folder))
    began_s = time.time()
    running.post("interrupt", {"instance_id": name, "notice_s": 6.0})
    warned: list[NodeStatus] = []

    def told() -> bool:
        beat = heartbeat(address, scheduler)
        warned.extend([beat] if beat and beat.notice_s else [])
        return bool(warned)

    wait_until(told)
    assert warned[0].notice_s is not None
    assert began_s + 4 <= warned[0].notice_s <= time.time() + 6
    assert warned[0].draining
    wait_until(lambda: not running.left())
    assert running.see(name)["StateReason"]["Code"] == "Server.SpotInstanceTermination"


@pytest.mark.real
def test_nothing_outlives_an_emulator_that_is_killed(running: Running, scheduler: Any) -> None:
    launch(running, scheduler)
    wait_until(running.left)
    running.stop(signal.SIGKILL)
    wait_until(lambda: not running.left())


@pytest.mark.real
def test_a_new_emulator_ends_what_an_old_one_left(running: Running, tmp_path: Path) -> None:
    running.stop()
    state = str((tmp_path / "state").resolve())
    tags = {"SPOTWEAVE_NODE_ID": "i-0", "SPOTWEAVE_NODE_STATE": state}
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, **tags})
    running.start()
    assert left.wait(timeout=30) == -signal.SIGKILL


@pytest.mark.real
def test_a_script_runs_with_the_metadata_service(running: Running) -> None:
    name = running.run(UserData="#!/bin/sh\necho $AWS_EC2_METADATA_SERVICE_ENDPOINT > where\n")
    where = running.folder / "state" / "instances" / name / "root" / "where"
    wait_until(lambda: where.exists() and where.read_text().strip())
    metadata = Metadata(where.read_text().strip())
    assert metadata.text("instance-id") == name
    assert metadata.text("placement/availability-zone") == "us-east-1a"
    assert metadata.text("instance-life-cycle") == "on-demand"
    assert metadata.interruption_s() is None
    running.ec2.terminate_instances(InstanceIds=[name])
    assert running.left() == []


# Warnings and advice come through EventBridge and SQS to the scheduler, and none is lost or read in vain.


def listening(cloud: Cloud, **changes: Any) -> AwsProvider:
    """A provider that reads the queue."""
    return cloud.provider(**{"events_queue": "events", "visible_within_s": 120.0, **changes})


@pytest.fixture
def provider(cloud: Cloud) -> AwsProvider:
    return listening(cloud)


@pytest.fixture
def name(provider: AwsProvider) -> str:
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
    world = cloud.emulator.world
    world.send("us-east-1", kind, name, ZONE, world.clock.now(), detail)


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


def test_times_of_events_are_utc() -> None:
    event = {"detail-type": WARNING, "detail": {"instance-id": "i-1"}}
    expected = datetime(2026, 1, 31, 12, 2, tzinfo=UTC).timestamp()
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00"):
        assert _Event.model_validate({**event, "time": text}).ends_s == expected
