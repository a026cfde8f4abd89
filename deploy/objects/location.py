"""A place for whole objects: its interface, a folder, and how people write one (`s3://BUCKET/PREFIX`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from spotweave.files import write_bytes

_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_PREFIX = r"[A-Za-z0-9!_.*'()-]+"
_PLACE = re.compile(
    rf"(?P<scheme>s3|s3a|gs)://(?P<bucket>{_BUCKET})(?:/(?P<prefix>{_PREFIX}(?:/{_PREFIX})*))?/?"
)
"""Characters of keys that are safe everywhere:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html

Cloud Storage also takes `_` in a bucket's name; what both take is enough.
"""


@dataclass(frozen=True)
class Bucket:
    """A bucket of S3 or of Cloud Storage, and what names in it begin with (without a slash at its ends)."""

    name: str
    prefix: str = ""
    scheme: Literal["s3", "gs"] = "s3"

    @property
    def uri(self) -> str:
        """As the clouds' own tools write it."""
        return f"{self.scheme}://{self.name}/{self.prefix}".rstrip("/")

    @property
    def spark_uri(self) -> str:
        """As Hadoop's client writes it."""
        return f"s3a{self.uri.removeprefix('s3')}" if self.scheme == "s3" else self.uri

    def key(self, name: str) -> str:
        """Key of the object with this name."""
        return f"{self.prefix}/{name}" if self.prefix else name


def parse(text: str) -> Bucket | Path:
    """Parse a location. Raises ValueError (one line) if it is neither a bucket nor an absolute path."""
    if found := _PLACE.fullmatch(text):
        return Bucket(found["bucket"], found["prefix"] or "", "gs" if found["scheme"] == "gs" else "s3")
    if Path(text).is_absolute():
        return Path(text)
    raise ValueError(
        f"{text!r} is no place for checkpoints: expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or an "
        "absolute folder"
    )


class ObjectsError(Exception):
    """Temporary failure; one line. A later retry may help."""


class ConflictError(ObjectsError):
    """Another object has the name: permanent, do not retry."""


ClientsT = TypeVar("ClientsT")


class Objects(Protocol):
    """Objects by name ("a/b"), each written once. May be used from several threads; every method may wait."""

    @property
    def uri(self) -> str:
        """URI of the objects, for messages."""

    def put(self, name: str, content: bytes) -> None:
        """Keep an object. When this returns it has been read back, and is what was given.

        An object that is there already is never overwritten: the same content is success. Raises
        ConflictError if there is one with other content; ObjectsError if it is not known to be kept; the same
        may be tried again.
        """

    def get(self, name: str) -> bytes | None:
        """What was kept; None if there is nothing of that name. Raises ObjectsError."""

    def names(self, start: str) -> Sequence[str]:
        """Names that begin so, in no order. Raises ObjectsError."""

    def delete(self, name: str) -> None:
        """Let go of an object, if there is one. Raises ObjectsError."""


class BucketObjects(Generic[ClientsT]):
    """Objects in a bucket: the part that all clouds share."""

    def __init__(self, clients: ClientsT, place: Bucket) -> None:
        self._clients, self._place = clients, place

    @property
    def uri(self) -> str:
        """See Objects."""
        return self._place.uri


def require_kept(where: str, content: bytes, found: bytes | None, *, existed: bool) -> None:
    """Compare what is read back with what was put. Raises ConflictError (it `existed`), ObjectsError."""
    if found == content:
        return
    if existed and found is not None:
        raise ConflictError(f"{where} is there already, with other content")
    raise ObjectsError(f"{where}: what is read back is not what was put")


class FolderObjects:
    """Implements `deploy.objects.location.Objects`; each object is a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def uri(self) -> str:
        """See Objects."""
        return str(self._folder)

    def put(self, name: str, content: bytes) -> None:
        """See Objects. Whole or not at all, and on the disk."""
        path = self._folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                write_bytes(path, content, mode=0o600, overwrite=False)
        except OSError as error:
            raise ObjectsError(f"{path} cannot be written: {error.strerror}") from error
        if self.get(name) != content:
            raise ConflictError(f"{path} is there already, with other content")

    def get(self, name: str) -> bytes | None:
        """See Objects."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ObjectsError(f"{self._folder / name} cannot be read: {error.strerror}") from error

    def names(self, start: str) -> Sequence[str]:
        """See Objects."""
        # Only the folder that a name's start leads to is searched: others may hold very many.
        below = self._folder / start.rpartition("/")[0]
        found = (path.relative_to(self._folder).as_posix() for path in below.rglob("*") if path.is_file())
        return [name for name in found if name.startswith(start) and not Path(name).name.startswith(".")]

    def delete(self, name: str) -> None:
        """See Objects."""
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise ObjectsError(f"{self._folder / name} cannot be deleted: {error.strerror}") from error
