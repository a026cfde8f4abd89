"""The interface of all places for objects, and the ways in which they fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ObjectsError(Exception):
    """It could not be done now; one line. Trying again later may help."""


class ConflictError(ObjectsError):
    """There is another object of that name: trying the same again is vain."""


class Objects(Protocol):
    """Objects by name ("a/b"), each written once. May be used from several threads; every method may wait."""

    @property
    def uri(self) -> str:
        """Where they are, for people."""

    def put(self, name: str, content: bytes) -> None:
        """Keep an object. When this returns it has been read back, and is what was given.

        An object that is there already is never overwritten: the same content is success.

        Raises:
            ConflictError: if there is one with other content.
            ObjectsError: if it is not known to be kept; the same may be tried again.
        """

    def get(self, name: str) -> bytes | None:
        """What was kept; None if there is nothing of that name. Raises ObjectsError."""

    def names(self, start: str) -> Sequence[str]:
        """Names that begin so, in no order. Raises ObjectsError."""

    def delete(self, name: str) -> None:
        """Let go of an object, if there is one. Raises ObjectsError."""


def require_kept(where: str, content: bytes, found: bytes | None, *, existed: bool) -> None:
    """Compare what is read back with what was put.

    Args:
        where: URI of the object.
        content: that was put.
        found: that was read back.
        existed: whether there was an object already: perhaps our own, whose answer was lost.

    Raises:
        ConflictError: if there was one with other content.
        ObjectsError: if it is not what was put.
    """
    if found == content:
        return
    if existed and found is not None:
        raise ConflictError(f"{where} is there already, with other content")
    raise ObjectsError(f"{where}: what is read back is not what was put")
