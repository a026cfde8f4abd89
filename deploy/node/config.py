"""What a node agent is told when it starts, and what it leaves for whoever looks for it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, FiniteFloat, IPvAnyAddress, ValidationError

from spotweave.deploy.yamlfile import ConfigError, Part, terse_mistake

STATE_FOLDER = ".agent"  # inside the working folder; not reachable through the files endpoint
STATUS_FILE = "status.json"
MetadataKind = Literal["ec2", "gce"]


class PrivateFile(Part):
    """A JSON file that only its owner may read, because of the secrets in it."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read one. Raises ConfigError, which never repeats what the file holds."""
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            content = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        if mode & 0o077:
            raise ConfigError(f"{path} has mode {mode:04o} and holds a token: chmod 600 it")
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise ConfigError(f"{path}: {terse_mistake(error)}") from error


class AgentConfig(PrivateFile):
    """The agent's configuration file."""

    # as the provider calls the instance
    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,120}$")]
    address: IPvAnyAddress  # the instance's own IP address; the agent listens there and nowhere else
    # 0 for a free one; `WORKDIR/.agent/status.json` says which
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    workdir: Annotated[str, Field(pattern="^/")]  # absolute path of the node's working folder
    token: Annotated[str, Field(min_length=16, max_length=512, repr=False)]  # bearer token of every request
    # what the agent shows, PEM; the scheduler talks to no other
    certificate: Annotated[str, Field(max_length=8192, repr=False)]
    key: Annotated[str, Field(max_length=8192, repr=False)]  # of the certificate, PEM
    metadata: MetadataKind = "ec2"  # which metadata service the instance has
    # root of the instance metadata service, e.g. "http://169.254.169.254"; None for none.
    imds_url: Annotated[str, Field(pattern="^http://")] | None = None
    imds_poll_s: Annotated[FiniteFloat, Field(gt=0)] = 5.0  # seconds between two looks at it
    # UUIDs of the GPUs that are this instance's; None: all that the machine has
    gpus: tuple[Annotated[str, Field(max_length=120)], ...] | None = None
