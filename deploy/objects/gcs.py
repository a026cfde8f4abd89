"""Objects in a bucket of Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from google.api_core import exceptions as api
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY

from spotweave.deploy.objects.location import Bucket, BucketObjects, ObjectsError, require_kept
from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.providers.config import Finding, granted
from spotweave.deploy.providers.gcp.clients import STORAGE_REMEDY, Clients, gcp_errors

_RETRY = DEFAULT_RETRY.with_timeout(60.0)
"""Google's own, with waits that double from a second. A write has a precondition and names are written once,
so every call may be repeated."""
_TIMEOUT_S = (3.05, 30.0)  # for a connection, and for each answer
_NONE = 0
"""The generation of an object that is not there.

https://cloud.google.com/storage/docs/request-preconditions
"""


class GcsObjects(BucketObjects[Clients]):
    """Implements `deploy.objects.location.Objects`; safe to use from several threads."""

    def put(self, name: str, content: bytes) -> None:
        """See Objects. The service itself refuses what would overwrite, and what did not arrive as sent."""
        existed = False
        try:
            with self._asking(name) as bucket:
                bucket.blob(self._place.key(name)).upload_from_string(
                    content,
                    content_type="application/octet-stream",
                    if_generation_match=_NONE,
                    checksum="crc32c",
                    retry=_RETRY,
                    timeout=_TIMEOUT_S,
                )
        except ObjectsError as error:
            if not isinstance(error.__cause__, api.PreconditionFailed):
                raise
            existed = True
        require_kept(f"{self.uri}/{name}", content, self.get(name), existed=existed)

    def get(self, name: str) -> bytes | None:
        """See Objects. What does not have the CRC32C that the service tells is an error."""
        try:
            with self._asking(name) as bucket:
                content: bytes = bucket.blob(self._place.key(name)).download_as_bytes(
                    checksum="crc32c", retry=_RETRY, timeout=_TIMEOUT_S
                )
                return content
        except ObjectsError as error:
            if _no_object(error.__cause__):
                return None
            raise

    def names(self, start: str) -> Sequence[str]:
        """See Objects."""
        with self._asking() as bucket:
            own = len(self._place.key(""))
            return [blob.name[own:] for blob in self._listed(bucket, start)]

    def delete(self, name: str) -> None:
        """See Objects."""
        try:
            with self._asking(name) as bucket:
                bucket.blob(self._place.key(name)).delete(retry=_RETRY, timeout=_TIMEOUT_S)
        except ObjectsError as error:
            if not _no_object(error.__cause__):
                raise

    def probe(self) -> None:
        """Look whether the bucket is there and may be listed. Raises ObjectsError, from the client's."""
        with self._asking() as bucket:
            list(self._listed(bucket, "", max_results=1))

    def lacking(self, permissions: Sequence[str]) -> list[str]:
        """Permissions that this identity lacks on the bucket. Raises ObjectsError."""
        with self._asking() as bucket:
            granted = bucket.test_iam_permissions(list(permissions), retry=_RETRY, timeout=_TIMEOUT_S)
            return [one for one in permissions if one not in granted]

    def _listed(self, bucket: Any, start: str, **limits: int) -> Any:
        return bucket.list_blobs(
            prefix=self._place.key(start),
            fields="items(name),nextPageToken",
            retry=_RETRY,
            timeout=_TIMEOUT_S,
            **limits,
        )

    @contextmanager
    def _asking(self, name: str = "") -> Iterator[Any]:
        """The bucket, which is not asked for itself: that would need one more permission."""
        what = f"{self.uri}/{name}" if name else self.uri
        try:
            with gcp_errors(what):
                yield self._clients.storage.bucket(self._place.name)
        except ProviderError as error:
            raise ObjectsError(str(error)) from error.__cause__
        except DataCorruption as error:
            raise ObjectsError(f"{what}: what arrived does not have its CRC32C") from error


def _no_object(error: BaseException | None) -> bool:
    """Whether it is the object that is not there, and not its bucket."""
    return isinstance(error, api.NotFound) and "bucket does not exist" not in str(error.message)


# Whether a bucket of Cloud Storage can be used, before anything is launched. Nothing is changed.

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
    yield from granted(_WHAT, place.uri, denied, STORAGE_REMEDY)
