"""What a broker knows, on its disk before anybody is told of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from agents.federated.asynchronous.shards import Shard
from agents.federated.asynchronous.updates import UpdateId
from spotweave.files import write_private

_FILE = re.compile(r"([0-9]+)-([0-9]+)-([0-9]+)\.shard")


class Memory(BaseModel):
    """Beside the shards.

    Attributes:
        size: d, weights of the model.
        version: of the model.
        agreed: the list of this version's successor, once all brokers have confirmed it.
        settled: updates that are never taken again.
        attended: Fed-SUDA: who has taken part in the present episode.
        episode: Fed-SUDA: its number.
        used: how many updates of each client were used.
    """

    model_config = ConfigDict(extra="forbid")

    size: int
    version: int
    agreed: list[UpdateId] = []
    settled: list[UpdateId] = []
    attended: list[int] = []
    episode: int = 0
    used: list[int] = []

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """None if nothing was kept."""
        try:
            return cls.model_validate_json((folder / "memory.json").read_bytes())
        except FileNotFoundError:
            return None

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        write_private(folder / "memory.json", self.model_dump_json())


class ShardFiles:
    """The shards of one broker.

    Args:
        folder: that is theirs.
        number: of the broker.
        samples: of each client.
    """

    def __init__(self, folder: Path, number: int, samples: list[int]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._number, self._samples = folder, number, samples

    def keep(self, shard: Shard) -> None:
        """Write one."""
        write_private(self._file(shard.id), shard.values.tobytes())

    def holds(self, shard: Shard) -> bool:
        """Whether this one is here, the same in every byte."""
        try:
            return self._file(shard.id).read_bytes() == shard.values.tobytes()
        except FileNotFoundError:
            return False

    def all(self, size: int) -> Iterator[Shard]:
        """In the order of their arrival; those of another size are left out."""
        for path in sorted(self._folder.glob("*.shard"), key=lambda path: path.stat().st_mtime_ns):
            name, content = _FILE.fullmatch(path.name), path.read_bytes()
            if name and len(content) == 8 * size and int(name[1]) < len(self._samples):
                participant, version, number = int(name[1]), int(name[2]), int(name[3])
                values = np.frombuffer(content, np.uint64)
                samples = self._samples[participant]
                yield Shard(participant, version, self._number, values, samples, number)

    def keep_only(self, held: Collection[UpdateId]) -> None:
        """All others go."""
        names = {self._file(update).name for update in held}
        for path in self._folder.glob("*.shard"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _file(self, update: UpdateId) -> Path:
        return self._folder / f"{update.participant}-{update.base_version}-{update.number}.shard"
