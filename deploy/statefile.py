"""What must survive a restart, as JSON in a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from spotweave.files import write_private


class StateFile(BaseModel):
    """A document that is written whole or not at all, and that only its owner may read."""

    # A diverged training has metrics that are no numbers; as null they could not be read back.
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read a file; None if there is none. Raises ValidationError if it is damaged."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None

    @classmethod
    def load_whole(cls, path: Path) -> Self | None:
        """Read a file; None if there is none or it is damaged."""
        try:
            return cls.load(path)
        except ValidationError:
            return None

    def save(self, path: Path) -> None:
        """Write the file; its folder must exist."""
        write_private(path, self.model_dump_json(indent=1))
