"""Refusals of an emulated cloud, as its clients read them."""

from __future__ import annotations


class CloudError(Exception):
    """A refusal.

    Attributes:
        code: as in the service's documentation.
        message: for a person.
        status: of the HTTP answer.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status
