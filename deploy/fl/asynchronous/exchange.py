"""What a client is asked for beside the model, and what it says of its update, in a record of Flower's."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

from flwr.app import ConfigRecord, RecordDict

KEY = "spotweave-update"
Form = Literal["model", "difference", "shards"]
"""The trained weights; their difference from what the client was sent; that, by way of the brokers."""


class Wish(NamedTuple):
    """The form in which an update is asked for, and was sent.

    Attributes:
        form: of the update.
        version: of the model that the client begins with.
    """

    form: Form
    version: int

    def into(self, content: RecordDict) -> None:
        """Say so in a message."""
        content.config_records[KEY] = ConfigRecord({"form": self.form, "version": self.version})

    @classmethod
    def of(cls, content: RecordDict) -> Self | None:
        """What a message says; None: nothing that can be understood."""
        record = content.config_records.get(KEY, ConfigRecord())
        form, version = record.get("form"), record.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            return None
        match form:
            case "model" | "difference" | "shards":
                return cls(form, version)
        return None
