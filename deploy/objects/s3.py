"""Objects in a bucket of S3."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spotweave.deploy.objects.location import Bucket, BucketObjects, ObjectsError, require_kept
from spotweave.deploy.providers.aws.check import simulated
from spotweave.deploy.providers.aws.clients import REMEDY, Clients, aws_errors, code_of
from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.providers.config import Finding, granted

REGION = "us-east-1"  # region that is asked first; S3 answers with the bucket's region and the SDK follows
_EXISTS = "PreconditionFailed"
_RACE = "ConditionalRequestConflict"
_RACES = 5
_RACE_S = 0.2


class S3Objects(BucketObjects[Clients]):
    """Implements `deploy.objects.location.Objects`; safe to use from several threads."""

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
                code = code_of(error.__cause__)
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
            if code_of(error.__cause__) == "NoSuchKey":
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


# Whether a bucket can be used, before anything is launched. Nothing is changed.

ACTIONS = ("s3:PutObject", "s3:GetObject", "s3:DeleteObject")
"""On objects; whether they may be listed is seen by doing it."""
_WHAT = "checkpoints"


def check_bucket(clients: Clients, place: Bucket) -> Iterator[Finding]:
    """Whether it is there, may be listed, and its objects be put, read and deleted."""
    try:
        S3Objects(clients, place).probe()
    except ObjectsError as error:
        code, text = code_of(error.__cause__), str(error)
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
    yield from granted(_WHAT, place.uri, denied, REMEDY)
