"""Objects in a bucket of S3."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from deploy.objects.base import ObjectsError, require_kept
from deploy.objects.location import Bucket
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.errors import aws_errors, code_of
from deploy.providers.base import ProviderError

REGION = "us-east-1"
"""Where S3 is asked first: it says where a bucket is, and the SDK goes there."""
_EXISTS = "PreconditionFailed"
_RACE = "ConditionalRequestConflict"
_RACES = 5
_RACE_S = 0.2


class S3Objects:
    """Implements `deploy.objects.base.Objects`; safe to use from several threads.

    Args:
        clients: of AWS; they try again what is throttled or fails on AWS's side.
        place: bucket and prefix.
    """

    def __init__(self, clients: Clients, place: Bucket) -> None:
        self._clients = clients
        self._place = place

    @property
    def uri(self) -> str:
        """See Objects."""
        return self._place.uri

    def put(self, name: str, content: bytes) -> None:
        """See Objects. S3 itself refuses what would overwrite, and what did not arrive as it was sent."""
        existed = False
        for tries in range(1, _RACES + 1):
            try:
                with self._asking(f"{self.uri}/{name}"):
                    self._s3().put_object(
                        **self._object(name), Body=content, IfNoneMatch="*", ChecksumAlgorithm="SHA256"
                    )
                break
            except ObjectsError as error:
                code = code_of(error.__cause__) if isinstance(error.__cause__, ClientError) else ""
                if code == _EXISTS:
                    existed = True
                    break
                if code != _RACE or tries == _RACES:
                    raise
                time.sleep(random.uniform(0.0, _RACE_S * 2**tries))
        require_kept(f"{self.uri}/{name}", content, self.get(name), existed=existed)

    def get(self, name: str) -> bytes | None:
        """See Objects."""
        try:
            with self._asking(f"{self.uri}/{name}"):
                content: bytes = (
                    self._s3().get_object(**self._object(name), ChecksumMode="ENABLED")["Body"].read()
                )
                return content
        except ObjectsError as error:
            if isinstance(error.__cause__, ClientError) and code_of(error.__cause__) == "NoSuchKey":
                return None
            raise

    def names(self, start: str) -> Sequence[str]:
        """See Objects."""
        with self._asking(self.uri):
            pages = (
                self._s3()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._place.name, Prefix=self._place.key(start))
            )
            own = len(self._place.key(""))
            return [entry["Key"][own:] for page in pages for entry in page.get("Contents", ())]

    def delete(self, name: str) -> None:
        """See Objects."""
        with self._asking(f"{self.uri}/{name}"):
            self._s3().delete_object(**self._object(name))

    def probe(self) -> None:
        """Look whether the bucket is there and may be listed. Raises ObjectsError, from the SDK's."""
        with self._asking(self.uri):
            self._s3().list_objects_v2(Bucket=self._place.name, Prefix=self._place.key(""), MaxKeys=1)

    def _s3(self) -> Any:
        return self._clients.get("s3", REGION)

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._place.name, "Key": self._place.key(name)}

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            with aws_errors(what):
                yield
        except ProviderError as error:
            raise ObjectsError(str(error)) from error.__cause__
