"""Checkpoints within epochs, copied from a client's node to its next one."""

from __future__ import annotations

import hashlib
import logging
import time
from pathlib import Path

from spotweave.deploy.fl.epoch import SAVED, Saved
from spotweave.deploy.node.client import NodeClient, NodeRefused
from spotweave.deploy.runners.workers import file_of
from spotweave.files import write_private

_log = logging.getLogger(__name__)
_EVERY_S = 5.0
_SAVED_BYTES = 1024


class Epochs:
    """Those of one job, in a folder of its own. Clients may write anything: it is copied, never decoded."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._kept: dict[str, Saved | None] = {}
        self._refused: dict[str, str] = {}
        """By client: SHA-256 of the latest one that was too large."""
        self._asked_s: dict[str, float] = {}

    def share(self, name: str, number: int) -> float:
        """Share of a client's epoch in round `number` that its next instance need not repeat."""
        kept = self._of(name)
        return kept.share if kept is not None and kept.round == number else 0.0

    def take(self, agent: NodeClient, name: str, below: str, *, last: bool) -> None:
        """Copy a client's new checkpoint from its state folder `below`, at most every 5 s.

        `last`: its process has ended, so copy now. Raises NodeUnreachable.
        """
        if not last and time.monotonic() - self._asked_s.get(name, -_EVERY_S) < _EVERY_S:
            return
        self._asked_s[name] = time.monotonic()
        try:
            self._take(agent, name, below)
        # ValueError: `Epoch` has not written what is there.
        except (NodeRefused, OSError, ValueError) as error:
            line = " ".join(str(error).split())[:200]
            _log.warning("the checkpoint of client %s is not kept: %s", name, line)

    def give(self, agent: NodeClient, name: str, below: str) -> None:
        """Put a client's checkpoint into the state folder of its new process. Raises NodeError, OSError."""
        if (kept := self._of(name)) is not None:
            agent.put_file(f"{below}/{kept.weights}", (self._folder / f"{name}.npz").read_bytes())
            agent.put_file(f"{below}/{SAVED}", kept.model_dump_json().encode())

    def _take(self, agent: NodeClient, name: str, below: str) -> None:
        told = file_of(agent, f"{below}/{SAVED}", _SAVED_BYTES)
        saved = None if told is None else Saved.model_validate_json(told)
        if saved is None or saved == self._of(name) or saved.sha256 == self._refused.get(name):
            return
        content = file_of(agent, f"{below}/{saved.weights}", self._most_bytes + 1)
        if content is not None and len(content) > self._most_bytes:
            self._refused[name] = saved.sha256
            raise ValueError(f"it has more than {self._most_bytes} bytes")
        # Otherwise a newer one has just replaced it; the next look takes that.
        if content is not None and hashlib.sha256(content).hexdigest() == saved.sha256:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_private(self._folder / f"{name}.npz", content)
            saved.save(self._folder / f"{name}.json")
            self._kept[name] = saved

    def _of(self, name: str) -> Saved | None:
        if name not in self._kept:
            self._kept[name] = Saved.load_whole(self._folder / f"{name}.json")
        return self._kept[name]
