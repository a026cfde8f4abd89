"""Instances that are processes: user data, the metadata service, and an end without leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from deploy.model.instances import LaunchRequest
from deploy.node import procfs
from deploy.node.api import NodeStatus
from deploy.node.client import NodeClient, NodeUnreachable
from deploy.node.metadata import Metadata
from deploy.providers.userdata import user_data
from tests.deploy.emulator.aws.conftest import IMAGE, POOL, SPOT, TYPE, renting
from tests.deploy.node.agents import ROOT, wait_until
from tests.deploy.node.test_join import NODE_TOKEN, services

pytestmark = pytest.mark.real


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

    def post(self, name: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.url}/_emulator/{name}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

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
    with NodeClient(address, 7070, NODE_TOKEN, scheduler.asked[-1]["certificate"]) as client:
        try:
            return client.status()
        except NodeUnreachable:
            return None


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


def test_nothing_outlives_an_emulator_that_is_killed(running: Running, scheduler: Any) -> None:
    launch(running, scheduler)
    wait_until(running.left)
    running.stop(signal.SIGKILL)
    wait_until(lambda: not running.left())


def test_a_new_emulator_ends_what_an_old_one_left(running: Running, tmp_path: Path) -> None:
    running.stop()
    state = str((tmp_path / "state").resolve())
    tags = {"SPOTWEAVE_NODE_ID": "i-0", "SPOTWEAVE_NODE_STATE": state}
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, **tags})
    running.start()
    assert left.wait(timeout=30) == -signal.SIGKILL


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
