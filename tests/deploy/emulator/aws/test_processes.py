"""Instances that are processes: user data, the metadata service, and an end without leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import pytest
import yaml

from deploy.model.instances import LaunchRequest
from deploy.node import procfs
from deploy.node.api import NodeStatus
from deploy.node.client import NodeClient, NodeUnreachable
from deploy.node.metadata import Metadata
from deploy.providers.aws.config import AwsConfig
from deploy.providers.userdata import user_data
from tests.deploy.emulator.aws.conftest import IMAGE

pytestmark = pytest.mark.real
TOKEN = "node-token-0123456789abcdef"
ROOT = Path(__file__).parents[4]


shown: list[str] = []
"""Certificates of the nodes that joined."""


class Join(BaseHTTPRequestHandler):
    """The scheduler's side of joining."""

    def do_POST(self) -> None:
        shown.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["certificate"])
        content = json.dumps({"node_token": TOKEN}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def scheduler_url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Join)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


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
            "pools": [
                {
                    "zone": "us-east-1a",
                    "instance_type": "m5.large",
                    "spot_usd_hour": 0.04,
                    "on_demand_usd_hour": 0.096,
                }
            ],
        }
        (folder / "aws.yaml").write_text(yaml.safe_dump(config))
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "deploy.emulator",
                "aws",
                "--config",
                str(self.folder / "aws.yaml"),
                "--port",
                "0",
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().removeprefix("AWS_ENDPOINT_URL=")
        self.ec2 = boto3.client(
            "ec2",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="AKIAEMULATED00000000",
            aws_secret_access_key="x",
        )

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


def until(true: Callable[[], Any], within_s: float = 120.0) -> Any:
    end = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def launch(running: Running, scheduler_url: str, **changes: Any) -> str:
    config = AwsConfig.model_validate(
        {
            "regions": {
                "us-east-1": {"image": IMAGE, "security_group": "sg-0", "subnets": {"us-east-1a": "subnet-0"}}
            },
            "instance_types": {"m5.large": {"quota": 1}},
            "node": {"scheduler_url": scheduler_url, "imds_poll_s": 0.2, "setup": ["true"]},
        }
    )
    request = LaunchRequest("token-1", "aws/us-east-1a/m5.large/spot", "test", "job", "main", TOKEN)
    answer = running.ec2.run_instances(
        ImageId=IMAGE,
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        UserData=user_data(request, config.node, None, "ec2", 16384),
        InstanceMarketOptions={"MarketType": "spot"},
        **changes,
    )
    return str(answer["Instances"][0]["InstanceId"])


def heartbeat(address: str) -> NodeStatus | None:
    if not shown:
        return None
    with NodeClient(address, 7070, TOKEN, shown[-1]) as client:
        try:
            return client.status()
        except NodeUnreachable:
            return None


def test_a_node_agent_starts_is_warned_and_is_gone(running: Running, scheduler_url: str) -> None:
    shown.clear()
    name = launch(running, scheduler_url)
    seen = running.ec2.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"][0]
    address = seen["PrivateIpAddress"]
    status = until(lambda: heartbeat(address))
    assert (status.instance_id, status.address, status.notice_s) == (name, address, None)
    assert status.workdir.startswith(str(running.folder))
    began_s = time.time()
    running.post("interrupt", {"instance_id": name, "notice_s": 6.0})
    warned = until(lambda: (status := heartbeat(address)) and status.notice_s and status)
    assert began_s + 4 <= warned.notice_s <= time.time() + 6
    assert warned.draining
    until(lambda: not running.left())
    seen = running.ec2.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"][0]
    assert seen["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_nothing_outlives_an_emulator_that_is_killed(running: Running, scheduler_url: str) -> None:
    launch(running, scheduler_url)
    until(running.left)
    running.stop(signal.SIGKILL)
    until(lambda: not running.left())


def test_a_new_emulator_ends_what_an_old_one_left(running: Running, tmp_path: Path) -> None:
    running.stop()
    left = subprocess.Popen(
        ["sleep", "600"],
        env={
            **os.environ,
            "SPOTWEAVE_NODE_ID": "i-0",
            "SPOTWEAVE_NODE_STATE": str((tmp_path / "state").resolve()),
        },
    )
    running.start()
    assert left.wait(timeout=30) == -signal.SIGKILL


def test_a_script_runs_with_the_metadata_service(running: Running) -> None:
    script = "#!/bin/sh\necho $AWS_EC2_METADATA_SERVICE_ENDPOINT > where\n"
    answer = running.ec2.run_instances(
        ImageId=IMAGE, InstanceType="m5.large", MinCount=1, MaxCount=1, UserData=script
    )
    name = answer["Instances"][0]["InstanceId"]
    where = running.folder / "state" / "instances" / name / "root" / "where"
    until(lambda: where.exists() and where.read_text().strip())
    metadata = Metadata(where.read_text().strip())
    assert metadata.text("instance-id") == name
    assert metadata.text("placement/availability-zone") == "us-east-1a"
    assert metadata.text("instance-life-cycle") == "on-demand"
    assert metadata.interruption_s() is None
    running.ec2.terminate_instances(InstanceIds=[name])
    assert running.left() == []
