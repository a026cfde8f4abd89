"""How the agent of a cloud instance learns its configuration: from its metadata service and its scheduler."""

from __future__ import annotations

import json
import logging
import random
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from spotweave.deploy.node.config import STATE_FOLDER, AgentConfig, MetadataKind, PrivateFile
from spotweave.deploy.node.metadata import MetadataError, service, url_of
from spotweave.deploy.statefile import StateFile
from spotweave.deploy.yamlfile import ConfigError
from spotweave.files import write_private

PATIENCE_S = 900.0
_TIMEOUT_S = 10.0
_MOST_WAIT_S = 30.0
_MOST_BYTES = 65536
_AGENT_FILE = "config.json"
_PAIR_FILE = "pair.json"
_log = logging.getLogger(__name__)


class JoinError(Exception):
    """The node may not join, or nobody answered; one line."""


class JoinConfig(PrivateFile):
    """What an instance's user data says. Nothing in it is of use once the node has answered."""

    scheduler_url: Annotated[str, Field(pattern=r"^(https:/{2}|http:/{2}(127\.|localhost))")]
    # the authority that signed the scheduler's certificate; None: the image's own trust
    ca_pem: str | None = None
    client_token: Annotated[str, Field(min_length=1, max_length=200)]  # of the instance's launch
    # see `deploy.security.tokens`
    join_token: Annotated[str, Field(min_length=16, max_length=200, repr=False)]
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    workdir: Annotated[str, Field(pattern="^/")]
    imds_poll_s: Annotated[FiniteFloat, Field(gt=0)] = 5.0
    metadata: MetadataKind = "ec2"


class _Pair(StateFile):
    certificate: str
    key: Annotated[str, Field(repr=False)]


class _Joined(BaseModel):
    node_token: Annotated[str, Field(min_length=16, max_length=512, repr=False)]


def join(config: JoinConfig, patience_s: float = PATIENCE_S) -> AgentConfig:
    """The agent's configuration; after a restart the one it had. Raises JoinError, ConfigError."""
    # Where neither the files endpoint nor a job's relative path leads.
    folder = Path(config.workdir) / STATE_FOLDER
    kept = folder / _AGENT_FILE
    if kept.exists():
        return AgentConfig.load(kept)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        pair = _pair(folder / _PAIR_FILE)
    except (OSError, ValidationError) as error:
        raise ConfigError(f"workdir {config.workdir}: {error}") from error
    end_s = time.monotonic() + patience_s
    wait_s = 1.0
    while True:
        try:
            made = _try(config, pair)
            break
        except ValidationError as error:
            raise JoinError(
                f"the metadata service says what cannot be: {error.errors()[0]['msg']}"
            ) from error
        except (MetadataError, OSError) as error:
            if time.monotonic() + wait_s > end_s:
                raise JoinError(f"could not join within {patience_s:.0f} s: {error}") from error
            _log.warning("cannot join yet: %s", error)
        # Many nodes may wait for one scheduler.
        time.sleep(wait_s * random.uniform(0.5, 1.0))
        wait_s = min(_MOST_WAIT_S, 2 * wait_s)
    try:
        write_private(kept, made.model_dump_json())
    except OSError as error:
        raise ConfigError(f"workdir {config.workdir}: {error.strerror}") from error
    return made


def _pair(path: Path) -> _Pair:
    """This node's own, also after a crash: the scheduler keeps the first certificate that it is shown."""
    if (kept := _Pair.load(path)) is not None:
        return kept
    # Only here: it takes longer to load than all the rest.
    from spotweave.deploy.security.keys import node_pair

    made = node_pair()
    pair = _Pair(certificate=made.certificate, key=made.key)
    pair.save(path)
    return pair


def _try(config: JoinConfig, pair: _Pair) -> AgentConfig:
    imds_url = url_of(config.metadata)
    metadata = service(config.metadata, imds_url)
    return AgentConfig.model_validate(
        {
            **config.model_dump(include={"port", "workdir", "metadata", "imds_poll_s"}),
            **pair.model_dump(),
            "instance_id": metadata.instance_id(),
            "address": metadata.address(),
            "imds_url": imds_url,
            "token": _node_token(config, pair.certificate),
        }
    )


def _node_token(config: JoinConfig, certificate: str) -> str:
    shown = {"client_token": config.client_token, "join_token": config.join_token, "certificate": certificate}
    body = json.dumps(shown).encode()
    request = urllib.request.Request(
        f"{config.scheduler_url.rstrip('/')}/v1/join",
        data=body,
        method="POST",
        headers={"Content-Type": "application/json"},
    )
    trust = ssl.create_default_context(cadata=config.ca_pem)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trust) as answer:
            return _Joined.model_validate_json(answer.read(_MOST_BYTES)).node_token
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404, 422):
            raise JoinError(
                f"the scheduler refused this node (HTTP {error.code}): it has joined before, with another "
                "certificate maybe, or came too late"
            ) from error
        raise
    except ValidationError as error:
        raise JoinError(f"{config.scheduler_url} is not this scheduler's service") from error
