"""A thousand hours on an AWS where everything goes wrong: nothing lost, nothing leaked, bills exact.

Disks are billed to the cent: to a 3.6 thousand millionth of a dollar for each instance and day.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.emulator.aws.account import group_of, subnet_of
from deploy.emulator.aws.app import App
from deploy.emulator.aws.config import AwsEmulatorConfig, region_of
from deploy.emulator.aws.emulator import AwsEmulator
from deploy.model.clock import VirtualClock
from deploy.providers.aws import names
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.provider import AwsProvider
from tests.deploy.emulator.aws.conftest import IMAGE
from tests.deploy.emulator.aws.transport import in_process
from tests.deploy.emulator.chaos import FAULTS, Account, CloudWorld, Tags, run, spells, troubles

TYPE = "g4dn.xlarge"


TAGS = Tags(names.TOKEN, names.DEPLOYMENT, names.JOB)


def account(clock: VirtualClock, emulated: dict[str, Any], zones: Sequence[str]) -> Account:
    """An emulated AWS, in all of whose zones one type is rented."""
    config = AwsEmulatorConfig.model_validate({"images": [{"image_id": IMAGE}], **emulated})
    emulator = AwsEmulator(config, clock)
    session = in_process(App(emulator))
    regions = {
        region: {
            "image": IMAGE,
            "security_group": group_of(region),
            "subnets": {zone: subnet_of(zone) for zone in zones if region_of(zone) == region},
        }
        for region in map(region_of, zones)
    }
    rents = AwsConfig.model_validate(
        {
            "regions": regions,
            "instance_types": {TYPE: {"quota": 20}},
            "node": {"scheduler_url": "https://scheduler.example:8443"},
            "prices_every_s": 300.0,
            "launch_s": 30.0,
        }
    )
    return Account(emulator, rents, lambda: AwsProvider(rents, session, clock.now), TAGS)


class AwsWorld(CloudWorld):
    """EC2 shows what ended for an hour only.

    Of what ended unseen before that nobody knows when it did, and it is billed until it is missed. So nothing
    is hidden for longer than an hour, less the longest pause between two looks.
    """

    tags = TAGS
    zones = ("us-east-1a", "us-east-1b", "us-west-2a", "us-west-2b")
    regions = ("us-east-1", "us-west-2")
    on_demand_usd_hour = 0.526
    troubles = (
        ("ec2:DescribeInstances", "empty", 0.7),
        ("ec2:*", "Unavailable", 0.7),
        ("ec2:*", "RequestLimitExceeded", 0.2),
        ("ec2:RunInstances", "lost", 0.5),
        ("ec2:RunInstances", "ACodeThatIsNew", 1.5),
        ("ec2:RunInstances", "InsufficientInstanceCapacity", 4.0),
        ("ec2:TerminateInstances", "ACodeThatIsNew", 0.5),
        ("ec2:Describe*", "UnauthorizedOperation", 0.7),
        ("ec2:TerminateInstances", "lost", 0.5),
    )

    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        return [account(self.clock, emulated, self.zones)]


@pytest.mark.parametrize(
    ("hours", "troubles_every_h", "interruptions", "failures", "stopped"),
    [
        pytest.param(1000.0, 24.0, 500, 200, 5, marks=pytest.mark.nightly),
        pytest.param(36.0, 3.0, 6, 6, 0, marks=pytest.mark.real),
    ],
)
def test_chaos(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hours: float,
    troubles_every_h: float,
    interruptions: int,
    failures: int,
    stopped: int,
) -> None:
    pool = {"instance_type": TYPE, "on_demand_usd_hour": AwsWorld.on_demand_usd_hour}
    emulated = {
        "pools": spells(tmp_path, 1, hours + 100.0, AwsWorld.zones, pool, up_s=15_000),
        "launch_s": 25.0,
        "spot_quota": {"g": 400},
        "on_demand_quota": {"g": 400},
        "faults": {**FAULTS, "launch_death": 0.02, "spells": troubles(AwsWorld, hours, troubles_every_h)},
    }
    run(AwsWorld(tmp_path, emulated, monkeypatch), hours, interruptions, failures, stopped)
