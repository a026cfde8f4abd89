"""What a new instance is told: cloud-init starts the node agent, which then asks the scheduler for its token.

User data can be read by every process of the instance, and by everyone who may describe the account's
instances. So it holds no secret, only a join token that is worth nothing once the node has answered
(`deploy.security.tokens`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from spotweave.deploy.model.instances import LaunchRequest
from spotweave.deploy.node.config import MetadataKind
from spotweave.deploy.security.tokens import join_token
from spotweave.deploy.yamlfile import ConfigError, Part, Positive

JOIN_FILE = "/etc/spotweave/join.json"
_UNIT_FILE = "/etc/systemd/system/spotweave-node.service"
_USER = "spotweave"
_MOST_TASKS = 16384  # threads of everything on a node: a Java process has hundreds
_UNIT = """[Unit]
Description=Spotweave node agent
Wants=network-online.target
After=network-online.target

[Service]
User={user}
ExecStart={python} -m spotweave.deploy.node --join {join_file}
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


class NodeConfig(Part):
    """How instances start their node agent."""

    # where a node joins, e.g. "https://scheduler.example:8443"; plain http on loopback only.
    scheduler_url: Annotated[
        str, Field(pattern=r"^(https:/{2}[^/\s]+|http:/{2}(127\.[0-9.]+|localhost)(:\d+)?)$")
    ]
    # PEM of the authority that signed the scheduler's certificate, relative to the configuration; None: the
    # image's own trust
    ca_file: Path | None = None
    # interpreter on the image that has this package
    python: Annotated[str, Field(pattern=r"^/[^\s\"']+$")] = "/opt/spotweave/bin/python"
    setup: tuple[str, ...] = ()  # commands that cloud-init runs before, as root
    port: Annotated[int, Field(ge=1024, le=65535)] = 7070  # of the node agent
    workdir: Annotated[str, Field(pattern=r"^/[^\s\"']+$")] = "/var/lib/spotweave"  # of the node agent
    imds_poll_s: Positive = 5.0  # seconds between two looks at the metadata service
    # which address of the instance the scheduler uses. A public one is no weaker: agents speak TLS only, and
    # the scheduler pins their certificates.
    address: Literal["private", "public"] = "private"

    def ca_pem(self, folder: Path) -> str | None:
        """Certificate that nodes trust, from a file relative to this folder. Raises ConfigError."""
        if self.ca_file is None:
            return None
        path = folder / self.ca_file
        try:
            return path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"node.ca_file: cannot read {path}: {error}") from error


def user_data(
    request: LaunchRequest, node: NodeConfig, ca_pem: str | None, metadata: MetadataKind, most_bytes: int
) -> str:
    """A cloud-config; the same request always gives the same. Raises ConfigError if it is too long."""
    join = {
        "scheduler_url": node.scheduler_url,
        "ca_pem": ca_pem,
        "client_token": request.client_token,
        "join_token": join_token(request.node_token, request.client_token),
        "port": node.port,
        "workdir": node.workdir,
        "imds_poll_s": node.imds_poll_s,
        "metadata": metadata,
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
    if len(text.encode()) > most_bytes:
        raise ConfigError(
            f"the user data has {len(text.encode())} bytes, {most_bytes} may be: shorten node.setup"
        )
    return text
