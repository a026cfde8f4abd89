"""What a new instance is told: cloud-init starts the node agent, which then asks the scheduler for its token.

User data can be read by every process of the instance, and by everyone who may describe the account's
instances. So it holds no secret, only a join token that is worth nothing once the node has answered
(`deploy.security.joining`).
"""

from __future__ import annotations

import json

from deploy.model.instances import LaunchRequest
from deploy.providers.aws.config import AwsConfig
from deploy.security.joining import join_token
from deploy.yamlfile import ConfigError

JOIN_FILE = "/etc/spotweave/join.json"
_UNIT_FILE = "/etc/systemd/system/spotweave-node.service"
_USER = "spotweave"
_MOST_TASKS = 16384
"""Threads of everything on a node: a Java process has hundreds."""
_MOST_BYTES = 16384
"""EC2's limit."""
_UNIT = """[Unit]
Description=Spotweave node agent
Wants=network-online.target
After=network-online.target

[Service]
User={user}
ExecStart={python} -m deploy.node --join {join_file}
Restart=on-failure
RestartSec=5
# What runs on the node outlives its agent, and does not take it along when memory is short.
KillMode=process
OOMPolicy=continue
# A job that forks for ever ends here, not with the machine.
TasksMax={tasks}

[Install]
WantedBy=multi-user.target
"""


def user_data(request: LaunchRequest, config: AwsConfig, ca_pem: str | None) -> str:
    """A cloud-config for one instance. The same request always gives the same text.

    Raises:
        ConfigError: if it is longer than EC2 takes.
    """
    node = config.node
    join = {
        "scheduler_url": node.scheduler_url,
        "ca_pem": ca_pem,
        "client_token": request.client_token,
        "join_token": join_token(request.node_token, request.client_token),
        "port": node.port,
        "workdir": node.workdir,
        "imds_poll_s": node.imds_poll_s,
    }
    unit = _UNIT.format(user=_USER, python=node.python, join_file=JOIN_FILE, tasks=_MOST_TASKS)
    content = {
        "users": ["default", {"name": _USER, "system": True, "shell": "/usr/sbin/nologin"}],
        "write_files": [
            # Deferred: the user must be there first.
            {
                "path": JOIN_FILE,
                "owner": f"{_USER}:{_USER}",
                "permissions": "0600",
                "defer": True,
                "content": json.dumps(join),
            },
            {"path": _UNIT_FILE, "permissions": "0644", "content": unit},
        ],
        "runcmd": [
            *node.setup,
            ["install", "-d", "-o", _USER, "-g", _USER, "-m", "0700", node.workdir],
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "spotweave-node.service"],
        ],
    }
    text = "#cloud-config\n" + json.dumps(content, indent=1) + "\n"
    if len(text.encode()) > _MOST_BYTES:
        raise ConfigError(
            f"the user data has {len(text.encode())} bytes, EC2 takes {_MOST_BYTES}: shorten node.setup"
        )
    return text
