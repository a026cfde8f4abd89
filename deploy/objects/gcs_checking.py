"""Whether a bucket of Cloud Storage can be used, before anything is launched. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

from google.api_core import exceptions as api

from deploy.objects.base import ObjectsError
from deploy.objects.gcs import GcsObjects
from deploy.objects.location import Bucket
from deploy.providers.config import Finding
from deploy.providers.gcp.clients import Clients
from deploy.providers.gcp.errors import STORAGE_REMEDY

PERMISSIONS = ("storage.objects.create", "storage.objects.get", "storage.objects.delete")
"""On objects; whether they may be listed is seen by doing it."""
_WHAT = "checkpoints"


def check_bucket(clients: Clients, place: Bucket) -> Iterator[Finding]:
    """Whether it is there, may be listed, and its objects be put, read and deleted."""
    objects = GcsObjects(clients, place)
    try:
        objects.probe()
        denied = objects.lacking(PERMISSIONS)
    except ObjectsError as error:
        text = str(error)
        if isinstance(error.__cause__, api.NotFound):
            text = (
                f"{place.uri}: there is no such bucket: create it (docs/gcp.md), or set runners.checkpoints"
            )
        yield Finding(_WHAT, "missing", text)
        return
    for permission in denied:
        yield Finding(_WHAT, "missing", f"{place.uri}: this identity may not {permission}: {STORAGE_REMEDY}")
    if not denied:
        yield Finding(_WHAT, "right", f"{place.uri}: may be listed, written, read and deleted")
