"""Whether a bucket can be used, before anything is launched. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

from botocore.exceptions import ClientError

from deploy.objects.base import ObjectsError
from deploy.objects.location import Bucket
from deploy.objects.s3 import REGION, S3Objects
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.errors import REMEDY, aws_errors, code_of
from deploy.providers.aws.rights import simulated
from deploy.providers.base import ProviderError
from deploy.providers.config import Finding

ACTIONS = ("s3:PutObject", "s3:GetObject", "s3:DeleteObject")
"""On objects; whether they may be listed is seen by doing it."""
_WHAT = "checkpoints"


def check_bucket(clients: Clients, place: Bucket) -> Iterator[Finding]:
    """Whether it is there, may be listed, and its objects be put, read and deleted."""
    try:
        S3Objects(clients, place).probe()
    except ObjectsError as error:
        cause = error.__cause__
        code = code_of(cause) if isinstance(cause, ClientError) else ""
        text = str(error)
        if code == "NoSuchBucket":
            text = (
                f"{place.uri}: there is no such bucket: create it (docs/aws.md), or set runners.checkpoints"
            )
        elif code == "AccessDenied":
            text = f"{place.uri}: this identity may not s3:ListBucket: {REMEDY}"
        yield Finding(_WHAT, "missing", text)
        return
    try:
        with aws_errors(_WHAT):
            identity = str(clients.get("sts", REGION).get_caller_identity()["Arn"])
        partition = identity.split(":")[1]
        objects = f"arn:{partition}:s3:::{place.name}/{place.key('*')}"
        denied = simulated(clients.get("iam", REGION), identity, ACTIONS, objects)
    except ProviderError as error:
        yield Finding(_WHAT, "unknown", f"{place.uri} is there; rights cannot be simulated: {error}")
        return
    for action in denied:
        yield Finding(_WHAT, "missing", f"{place.uri}: this identity may not {action}: {REMEDY}")
    if not denied:
        yield Finding(_WHAT, "right", f"{place.uri}: may be listed, written, read and deleted")
