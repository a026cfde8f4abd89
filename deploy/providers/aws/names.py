"""Names: of offers, and of the tags by which everything rented is found again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deploy.model.instances import LaunchRequest
from deploy.providers.aws.config import AwsConfig

PROVIDER = "aws"
DEPLOYMENT = "spotweave:deployment"
JOB = "spotweave:job"
TASK = "spotweave:task"
OWNER = "spotweave:owner"
TOKEN = "spotweave:client-token"


def tags_of(request: LaunchRequest, config: AwsConfig) -> list[dict[str, str]]:
    """Tags of an instance, as EC2 takes them."""
    values = {
        **config.tags,
        "Name": f"spotweave {request.job_id} {request.task}"[:256],
        DEPLOYMENT: request.deployment,
        JOB: request.job_id,
        TASK: request.task,
        TOKEN: request.client_token,
    }
    if config.owner:
        values[OWNER] = config.owner
    return [{"Key": key, "Value": value} for key, value in values.items()]


def tag_values(tags: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Tags as EC2 gives them."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in tags}


def client_token(request: LaunchRequest) -> str:
    """At most 64 characters for any token and deployment."""
    return hashlib.sha256(f"{request.deployment}\n{request.client_token}".encode()).hexdigest()


def batches(items: Sequence[str], size: int) -> list[Sequence[str]]:
    """Pieces of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
