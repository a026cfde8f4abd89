"""What systemd of a new instance is told of its agent."""

from __future__ import annotations

import configparser
import json

from deploy.model.instances import LaunchRequest
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.userdata import user_data

CONFIG = AwsConfig.model_validate(
    {
        "regions": {
            "us-east-1": {"image": "ami-0", "security_group": "sg-0", "subnets": {"us-east-1a": "subnet-0"}}
        },
        "instance_types": {"m5.large": {"quota": 1}},
        "node": {"scheduler_url": "https://scheduler.example:8443", "address": "public"},
    }
)


def test_a_job_that_forks_or_eats_memory_does_not_end_the_agent() -> None:
    request = LaunchRequest("token-1", "aws/us-east-1a/m5.large/spot", "test", "job", "main", "n" * 43)
    content = json.loads(user_data(request, CONFIG, None).partition("\n")[2])
    (unit,) = [one["content"] for one in content["write_files"] if one["path"].endswith(".service")]
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(unit)
    service = read["Service"]
    # By default systemd ends a service of which the kernel has killed one process for its memory.
    assert service["OOMPolicy"] == "continue"
    assert 1000 <= int(service["TasksMax"]) <= 30_000
    assert (service["KillMode"], service["Restart"], service["User"]) == (
        "process",
        "on-failure",
        "spotweave",
    )
