"""What the runner writes down of a task: enough to find and to end its latest attempt after any restart."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from deploy.model.tasks import Node, Phase
from spotweave.files import write_private


class Record(BaseModel):
    """A task.

    Attributes:
        attempt: number of the latest that was asked for.
        node: where; None: nowhere.
        phase: how that attempt ended; None while it is not known to have.
        message: why.
        begun_s: seconds of work at the reference speed that it began with.
        kept_s: the same of the newest checkpoint that is kept.
        number: of the latest checkpoint of that attempt that is kept; 0: none of its own is.
        problem: why the latest checkpoint is not kept; "" if it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    attempt: int = 0
    node: Node | None = None
    phase: Phase | None = None
    message: str = ""
    begun_s: float = 0.0
    kept_s: float = 0.0
    number: int = 0
    problem: str = ""

    @classmethod
    def load(cls, file: Path) -> Self:
        """As it was written down; a new one if nothing was, or what was is damaged."""
        try:
            return cls.model_validate_json(file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return cls()

    def save(self, file: Path) -> None:
        """Write it down; it holds a node's token."""
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, self.model_dump_json())
