"""What systemd of a new instance is told of its agent."""

from __future__ import annotations

import configparser
import json

from deploy.model.instances import LaunchRequest
from deploy.providers.userdata import NodeConfig, user_data

NODE = NodeConfig(scheduler_url="https://scheduler.example:8443", address="public")


def test_a_job_that_forks_or_eats_memory_does_not_end_the_agent() -> None:
    request = LaunchRequest("token-1", "aws/us-east-1a/m5.large/spot", "test", "job", "main", "n" * 43)
    content = json.loads(user_data(request, NODE, None, "ec2", 16384).partition("\n")[2])
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
