"""Ways in which the store fails; every message is one line that says what to do."""

from __future__ import annotations

from sqlalchemy import exc


class StoreError(ValueError):
    """The store cannot be used as it was asked to."""


class StoreUnavailableError(StoreError):
    """The database cannot be reached, is locked or full; trying again may help. Nothing half-done is there.

    Where the connection broke during a commit it is not known which: read before acting again.
    """


class LeaseLostError(StoreUnavailableError):
    """Another process leads the deployment by now; nothing was written."""


class StoreDamagedError(StoreError):
    """The database is corrupt, of another program, or newer than this one: nothing was changed."""


class NotFoundError(StoreError):
    """No such row."""


UNUSABLE = (
    StoreDamagedError,
    StoreUnavailableError,
    exc.OperationalError,
    exc.InterfaceError,
    exc.InternalError,
    exc.TimeoutError,
)
"""The store itself fails, whatever was asked of it. (Inside a transaction they are not translated yet.)"""
