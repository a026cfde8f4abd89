"""Names of instances, and the labels by which everything rented is found again.

An instance that has been deleted leaves an operation with nothing but its name, so the name says what is
needed to report its end: a hash of its deployment, one of its offer, and its client token.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping

from deploy.model.instances import LaunchRequest
from deploy.providers.config import Place
from deploy.providers.gcp.config import GcpConfig

PROVIDER = "gcp"
DEPLOYMENT = "spotweave-deployment"
JOB = "spotweave-job"
TASK = "spotweave-task"
OWNER = "spotweave-owner"
TOKEN = "spotweave-token"
_NAME = re.compile(r"sw-(?P<deployment>[0-9a-f]{6})-(?P<offer>[0-9a-f]{6})-(?P<token>[a-z0-9-]+)")
_PLAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?")
_SAFE = re.compile(r"[a-z0-9_-]{0,63}")


def instance_name(request: LaunchRequest) -> str:
    """At most 63 characters; the same request always gives the same."""
    token = request.client_token
    if _PLAIN.fullmatch(token) is None:
        # Nobody can read the token back from this: such an instance's end is known only while it is listed.
        token = f"h-{_digest(token, 32)}"
    return f"sw-{_digest(request.deployment, 6)}-{_digest(request.offer_id, 6)}-{token}"


def token_of(name: str, deployment: str, places: Mapping[str, Place]) -> tuple[str, Place] | None:
    """Client token and offer of an instance of a deployment; None for others, and where the name hides it."""
    found = _NAME.fullmatch(name)
    if found is None or found["deployment"] != _digest(deployment, 6) or found["token"].startswith("h-"):
        return None
    for offer_id, place in places.items():
        if _digest(offer_id, 6) == found["offer"]:
            return found["token"], place
    return None


def may_be(name: str, place: Place) -> bool:
    """Whether the name is that of an instance of this offer."""
    found = _NAME.fullmatch(name)
    return found is not None and found["offer"] == _digest(place.offer_id, 6)


def request_id(request: LaunchRequest, refused: tuple[str, ...]) -> str:
    """A UUID: the same request gives the same, until operations of it have failed.

    Args:
        request: of the instance.
        refused: names of those operations. Compute Engine answers a request id that it knows with the
            operation that it had, also if that failed.
    """
    text = "\n".join((request.deployment, request.client_token, *refused))
    return str(uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4))


def labels_of(request: LaunchRequest, config: GcpConfig) -> dict[str, str]:
    """Labels of an instance."""
    found = {
        **config.labels,
        DEPLOYMENT: label(request.deployment),
        JOB: label(request.job_id),
        TASK: label(request.task),
        TOKEN: label(request.client_token),
    }
    return {**found, OWNER: config.owner} if config.owner else found


def label(text: str) -> str:
    """As it is where a label may be so; else a hash of it."""
    return text if _SAFE.fullmatch(text) else f"h-{_digest(text, 32)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
